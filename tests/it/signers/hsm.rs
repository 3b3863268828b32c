//! SoftHSM with the tokens of one test, in a process of its own, and a shim that injects errors.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use actix_web::rt::System;
use futures_util::future::join_all;
use signet::keys::pkcs11::TokenAddress;
use signet::keys::{KeyBackend, Libraries, Pkcs11Config, Pkcs11Key, SignerActor, SignerLimits};
use signet::secret::Secret;
use signet::x509::algorithm::KeyKind;

pub const PIN: &str = "4711-pin-of-the-hsm";
pub const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";
/// Set if the test already runs in a process of its own.
const FOLDER: &str = "SIGNET_TEST_HSM";

pub const RSA: u64 = 0x0001;
pub const RSA_PSS: u64 = 0x000d;
pub const ECDSA: u64 = 0x1041;
pub const EDDSA: u64 = 0x1057;

static STARTED: Mutex<Vec<SignerActor>> = Mutex::new(Vec::new());

pub struct Hsm {
    folder: PathBuf,
}

/// Runs `test`, the test `name` of `module`, in a process of its own with an empty SoftHSM.
pub fn alone<F: Future<Output = ()>>(module: &str, name: &str, test: impl FnOnce(Hsm) -> F) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return System::new().block_on(async {
            test(Hsm { folder: folder.into() }).await;
            // A module must not be in use when the process ends.
            let started = std::mem::take(&mut *STARTED.lock().unwrap());
            join_all(started.iter().map(|actor| actor.stop(Duration::from_secs(5)))).await;
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let hsm = Hsm::new(folder.path());
    let test = format!("{}::{name}", module.split_once("::").unwrap().1);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .env("SOFTHSM2_CONF", hsm.settings())
        .env("SHIM_MODULE", SOFTHSM)
        .env("SHIM_ORDERS", folder.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && out.contains("1 passed"), "{test}: {}\n{out}\n{err}", output.status);
}

/// Defines a test in a process of its own for each function `async fn name(hsm: &Hsm)`. The SoftHSM has the tokens that
/// are listed before the names.
macro_rules! tests_alone {
    ($($name:ident),+ $(,)?) => {
        $crate::signers::hsm::tests_alone!([] => $($name),+);
    };
    ($tokens:tt => $($name:ident),+ $(,)?) => {
        mod process {
            $(#[test] fn $name() {
                let test = |hsm: $crate::signers::hsm::Hsm| async move {
                    hsm.tokens(&$tokens);
                    super::$name(&hsm).await
                };
                $crate::signers::hsm::alone(module_path!(), stringify!($name), test);
            })+
        }
    };
}
pub(crate) use tests_alone;

impl Hsm {
    /// An empty SoftHSM in this folder.
    pub fn new(folder: &Path) -> Self {
        let hsm = Self { folder: folder.to_owned() };
        let tokens = folder.join("tokens");
        std::fs::create_dir(&tokens).unwrap();
        let tokens = format!("directories.tokendir = {}\n", tokens.display());
        std::fs::write(hsm.settings(), tokens + "objectstore.backend = file\nlog.level = ERROR\n").unwrap();
        hsm
    }

    /// The value of `SOFTHSM2_CONF`.
    pub fn settings(&self) -> PathBuf {
        self.folder.join("softhsm2.conf")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).env("SOFTHSM2_CONF", self.settings()).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn tokens(&self, labels: &[&str]) {
        labels.iter().for_each(|label| self.token(label));
    }

    pub fn token(&self, label: &str) {
        let arguments = ["--init-token", "--free", "--label", label, "--so-pin", "so-pin-1", "--pin", PIN];
        self.run("softhsm2-util", &arguments);
    }

    pub fn import(&self, token: &str, label: &str, id: &str, arguments: &[&str]) {
        let key = self.folder.join("key.pem");
        let key = key.to_str().unwrap();
        self.run("openssl", &[&["genpkey", "-out", key], arguments].concat());
        let arguments = ["--import", key, "--token", token, "--label", label, "--id", id, "--pin", PIN];
        self.run("softhsm2-util", &arguments);
    }

    /// Imports only the private key object of a PEM key.
    pub fn import_private(&self, token: &str, label: &str, pem: &str) {
        let key = self.folder.join("private.pem");
        let der = self.folder.join("private.der");
        std::fs::write(&key, pem).unwrap();
        let key = key.to_str().unwrap();
        let der = der.to_str().unwrap();
        self.run("openssl", &["pkcs8", "-topk8", "-nocrypt", "-in", key, "-outform", "DER", "-out", der]);
        let login = ["--module", SOFTHSM, "--token-label", token, "--login", "--pin", PIN];
        let object = ["--write-object", der, "--type", "privkey", "--label", label, "--usage-sign"];
        self.run("pkcs11-tool", &[&login[..], &object[..]].concat());
    }

    pub fn objects(&self, token: &str) -> String {
        let list = ["--module", SOFTHSM, "--token-label", token, "--login", "--pin", PIN, "--list-objects"];
        self.run("pkcs11-tool", &list)
    }

    pub fn aes(&self, token: &str, label: &str, id: &str) {
        let key = self.folder.join("aes.key");
        // The tool reads the key up to the first zero byte.
        std::fs::write(&key, signet::random::base62(32)).unwrap();
        let import = ["--import", key.to_str().unwrap(), "--aes", "--token", token, "--label", label, "--id", id];
        self.run("softhsm2-util", &[&import[..], &["--pin", PIN]].concat());
    }

    pub fn slot(&self, label: &str) -> u64 {
        let slots = self.run("softhsm2-util", &["--show-slots"]);
        let slot = slots
            .split("\nSlot ")
            .find(|slot| slot.lines().any(|line| line.trim() == format!("Label:            {label}")));
        slot.unwrap().lines().next().unwrap().trim().parse().unwrap()
    }

    pub fn libraries(&self) -> Libraries {
        Libraries::new([("hsm".to_owned(), PathBuf::from(SOFTHSM))]).unwrap()
    }

    /// Compiles the shim, as library `hsm`.
    pub fn shim(&self) -> Libraries {
        let shim = self.folder.join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/signers/shim.c");
        self.run(
            "cc",
            &["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", shim.to_str().unwrap(), source.to_str().unwrap()],
        );
        Libraries::new([("hsm".to_owned(), shim)]).unwrap()
    }

    /// Sets the shim's actions for the next calls of a function.
    pub fn order(&self, function: &str, orders: &[&str]) {
        std::fs::write(self.folder.join(function), orders.join("\n") + "\n").unwrap();
    }

    /// Counts the calls of a function since the last count.
    pub fn calls(&self, function: &str) -> usize {
        let log = self.folder.join("log");
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let count = text.lines().filter(|line| *line == function).count();
        let others: String = text.lines().filter(|line| *line != function).map(|line| format!("{line}\n")).collect();
        std::fs::write(&log, others).unwrap();
        count
    }

    /// The maximum number of concurrent sessions.
    pub fn most_open(&self) -> usize {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap();
        let changes = log.lines().map(|line| match line {
            "C_OpenSession" => 1,
            "C_CloseSession" => -1,
            _ => 0_isize,
        });
        let open = changes.scan(0, |open, change| {
            *open += change;
            Some(*open)
        });
        open.max().unwrap().try_into().unwrap()
    }

    pub fn remove_tokens(&self) {
        std::fs::rename(self.folder.join("tokens"), self.folder.join("pulled")).unwrap();
        std::fs::create_dir(self.folder.join("tokens")).unwrap();
    }

    pub fn restore_tokens(&self) {
        std::fs::remove_dir_all(self.folder.join("tokens")).unwrap();
        std::fs::rename(self.folder.join("pulled"), self.folder.join("tokens")).unwrap();
    }
}

/// A key by its label on the token `one`; it may be generated if `generate` is set.
pub fn config(mechanism: u64, label: &str, generate: Option<KeyKind>) -> Pkcs11Config {
    Pkcs11Config {
        name: label.to_owned(),
        library: "hsm".to_owned(),
        token: TokenAddress::Label("one".to_owned()),
        key_label: Some(label.to_owned()),
        key_id: None,
        mechanism,
        pin: Secret::new(PIN),
        force_rw_session: false,
        generate,
        public: None,
    }
}

pub fn backend(libraries: &Libraries, config: Pkcs11Config) -> KeyBackend {
    KeyBackend::Blocking(Pkcs11Key::new(libraries, config).unwrap())
}

pub fn actor(libraries: &Libraries, config: Pkcs11Config) -> SignerActor {
    wide(libraries, config, 1)
}

pub fn wide(libraries: &Libraries, config: Pkcs11Config, max_parallel: usize) -> SignerActor {
    let name = config.key_label.clone().unwrap_or_else(|| "key".to_owned());
    start(&name, backend(libraries, config), max_parallel, SignerLimits::default())
}

pub fn start(name: &str, backend: KeyBackend, max_parallel: usize, limits: SignerLimits) -> SignerActor {
    let actor = SignerActor::start(name, backend, max_parallel, limits);
    STARTED.lock().unwrap().push(actor.clone());
    actor
}
