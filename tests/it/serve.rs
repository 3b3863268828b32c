//! `signet serve`, `operator init` and `migrate`: the real program with a configuration file, certificates by openssl,
//! curl as the client.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster;
use crate::process::{Killed, openssl, refused, run, signet, token_of, write_private};
use crate::signers::hsm::{Hsm, PIN, SOFTHSM};
use crate::support::{Client, send, until, wait_until};

pub struct Site(tempfile::TempDir);

impl Site {
    pub fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        site.configure("");
        site
    }

    /// A site with the first root token.
    pub fn initialized() -> Self {
        let site = Self::new();
        site.init();
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn configure(&self, more: &str) {
        let data = self.path("data");
        let text = format!("listen = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nworkers = 1\n{more}", data.display());
        std::fs::write(self.path("signet.toml"), text).unwrap();
    }

    /// Replaces the configuration by one with this database, this seal key file and more settings.
    pub fn configure_database(&self, url: &str, key: &str, more: &str) {
        let key = self.path(key);
        let text = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\ndatabase_url = \"{url}\"\nseal_key_file = \"{}\"\n{more}",
            key.display()
        );
        std::fs::write(self.path("signet.toml"), text).unwrap();
    }

    pub fn with_tls(self, serial: &str) -> Self {
        let ca = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca"];
        openssl(self.0.path(), &[&ca[..], &["-keyout", "ca-key.pem", "-out", "ca.pem"]].concat());
        self.certify(serial);
        self.configure(&self.tls_settings());
        self
    }

    pub fn tls_settings(&self) -> String {
        let [certificate, key] = ["tls.pem", "tls-key.pem"].map(|name| self.path(name).display().to_string());
        format!("tls_certificate_file = \"{certificate}\"\ntls_key_file = \"{key}\"\n")
    }

    /// Replaces the server's certificate.
    fn certify(&self, serial: &str) {
        let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=s"];
        let issuer = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-set_serial", serial];
        let form = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
        let out = ["-keyout", "tls-key.pem", "-out", "tls.pem"];
        openssl(self.0.path(), &[&key[..], &issuer, &form, &out].concat());
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = signet();
        command.args(words).arg("--config").arg(self.path("signet.toml"));
        command
    }

    fn run(&self, words: &[&str]) -> (String, String) {
        run(&mut self.command(words))
    }

    pub fn init(&self) -> String {
        token_of(&mut self.command(&["operator", "init"]))
    }

    pub fn serve(&self) -> Served {
        Served::start(&mut self.command(&["serve"]), &self.path("log"))
    }

    /// Runs curl, which trusts only the site's CA and uses HTTP/1.1 by default. Returns head and body.
    pub fn curl(&self, arguments: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["-sS", "-i", "--http1.1", "--noproxy", "*", "--cacert"])
            .arg(self.path("ca.pem"))
            .args(arguments)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The serial of the certificate on a new connection, verified by openssl.
    fn shown_serial(&self, served: &Served) -> String {
        let connect = ["s_client", "-connect", served.socket(), "-CAfile", "ca.pem", "-verify_return_error"];
        let shown = openssl(self.0.path(), &connect);
        std::fs::write(self.path("shown.pem"), shown).unwrap();
        openssl(self.0.path(), &["x509", "-in", "shown.pem", "-noout", "-serial"]).trim().to_owned()
    }
}

pub struct Served {
    child: Killed,
    address: String,
    pub lines: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Served {
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let errors = std::fs::File::create(log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on ").map(str::to_owned);
        let address = address.unwrap_or_else(|| panic!("{}", std::fs::read_to_string(log).unwrap()));
        Self { child: Killed(child), address, lines, log: log.to_owned() }
    }

    pub fn socket(&self) -> &str {
        self.address.split_once("://").unwrap().1
    }

    pub fn client(&self, token: &str) -> Client {
        Client::new(self.socket().parse().unwrap(), token)
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn wait_for_log(&self, text: &str) {
        let started = Instant::now();
        while !self.log().contains(text) {
            assert!(started.elapsed() < Duration::from_secs(40), "no {text:?} in {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send_sigterm(&self) {
        self.signal(Signal::TERM);
    }

    pub fn wait(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    pub fn terminate(self) {
        self.send_sigterm();
        self.wait();
    }
}

/// An open TLS connection of openssl.
pub struct Held(pub Killed);

impl Held {
    pub fn open(site: &Site, served: &Served) -> Self {
        let arguments =
            ["s_client", "-connect", served.socket(), "-CAfile", "ca.pem", "-verify_return_error", "-quiet"];
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(site.0.path());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(Killed(command.spawn().unwrap()))
    }

    fn ask(&mut self) -> String {
        let request = b"GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n";
        self.0.stdin.as_mut().unwrap().write_all(request).unwrap();
        let mut reader = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut status = String::new();
        let mut length = 0;
        reader.read_line(&mut status).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        status
    }
}

#[test]
fn curl_gets_a_certificate_over_tls() {
    let site = Site::new().with_tls("0x1001");
    let token = site.init();
    let served = site.serve();
    assert!(served.address.starts_with("https://127.0.0.1:"), "{}", served.address);
    let health = site.curl(&[&served.url("v1/sys/health")]);
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    assert!(health.to_ascii_lowercase().contains("strict-transport-security: max-age=31536000"), "{health}");

    let header = format!("X-Service-Token: {token}");
    let post = |path: &str, body: Value| {
        let answer = site.curl(&["-H", &header, "-d", &body.to_string(), &served.url(path)]);
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        answer
    };
    post("v1/sys/mounts/pki", json!({ "type": "pki" }));
    post("v1/pki/root/generate/internal", json!({ "common_name": "root.test", "key_type": "ec" }));
    post("v1/pki/roles/web", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" }));
    assert!(post("v1/pki/issue/web", json!({ "common_name": "web.test" })).contains("BEGIN CERTIFICATE"));
    // Plain HTTP to the same port is rejected.
    let plain = served.url("v1/sys/health").replace("https://", "http://");
    assert!(Command::new("curl").args(["-sSf", "--noproxy", "*", &plain]).output().unwrap().status.code() == Some(22));
    served.terminate();
}

#[test]
fn sighup_reloads_certificate_and_preserves_open_connections() {
    let site = Site::new().with_tls("0x1001");
    site.init();
    let served = site.serve();
    assert_eq!(site.shown_serial(&served), "serial=1001");
    let mut held = Held::open(&site, &served);
    assert!(held.ask().starts_with("HTTP/1.1 200"));

    site.certify("0x2002");
    assert_eq!(site.shown_serial(&served), "serial=1001", "files alone change nothing");
    served.signal(Signal::HUP);
    wait_until("the other certificate", || site.shown_serial(&served) == "serial=2002");
    assert!(held.ask().starts_with("HTTP/1.1 200"), "the connection that stood before");

    // A mismatched key, then an invalid certificate: both keep the certificate in use, and are logged.
    std::fs::copy(site.path("ca-key.pem"), site.path("tls-key.pem")).unwrap();
    served.signal(Signal::HUP);
    served.wait_for_log("tls-key.pem: is not the key of the first certificate of tls_certificate_file");
    std::fs::write(site.path("tls.pem"), "not a certificate").unwrap();
    served.signal(Signal::HUP);
    served.wait_for_log("tls.pem: must contain PEM certificates");
    assert!(served.log().contains("TLS certificate not reloaded"));
    assert_eq!(site.shown_serial(&served), "serial=2002");
    assert!(held.ask().starts_with("HTTP/1.1 200"));
    drop(held);
    served.terminate();

    // At start, there is no certificate to keep.
    let error = refused(&mut site.command(&["serve"]));
    assert!(error.contains("tls_certificate_file:") && error.contains("must contain PEM certificates"), "{error}");
}

#[test]
fn sigterm_does_not_wait_for_idle_tls_connections() {
    let site = Site::new().with_tls("0x1001");
    site.init();
    let served = site.serve();
    let mut held = Held::open(&site, &served);
    assert!(held.ask().starts_with("HTTP/1.1 200"));
    let started = Instant::now();
    served.terminate();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    for piece in [&[b'x'; 4096][..], b"x"] {
        while writer.write_all(piece).is_ok() {}
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn sigterm_ends_server_with_full_stderr_pipe() {
    let site = Site::initialized();
    let (_reader, writer) = full_pipe();
    let mut command = site.command(&["serve"]);
    command.env("SIGNET_LOG", "info").stdout(Stdio::piped()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("listening on "), "{first}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the server does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn data_folder_writable_by_every_user_is_refused() {
    let site = Site::initialized();
    for (name, path) in [("data", site.path("data")), ("signet.db", site.path("data/signet.db"))] {
        let own = std::fs::metadata(&path).unwrap().permissions();
        std::fs::set_permissions(&path, Permissions::from_mode(own.mode() | 0o002)).unwrap();
        let error = refused(&mut site.command(&["serve"]));
        assert!(error.contains(&format!("{name}: every user may write to it")), "{error}");
        std::fs::set_permissions(&path, own).unwrap();
    }
    site.serve().terminate();
}

#[test]
fn occupied_address_is_reported_and_the_store_released() {
    let site = Site::initialized();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (variable, setting) in [
        ("SIGNET_LISTEN", "listen (signet dev: --listen)"),
        ("SIGNET_METRICS_LISTEN", "metrics_listen"),
        ("SIGNET_PUBLIC_LISTEN", "public_listen or --public-listen"),
    ] {
        let error = refused(site.command(&["serve"]).env(variable, &address));
        assert!(error.contains(&format!("{address}: cannot listen on this address")), "{error}");
        assert!(error.trim_end().ends_with(&format!("or change {setting}")), "{error}");
    }
    site.serve().terminate();
}

#[test]
fn sighup_without_tls_is_survived() {
    let site = Site::initialized();
    let served = Served::start(site.command(&["serve"]).env("SIGNET_LOG", "info"), &site.path("log"));
    served.signal(Signal::HUP);
    served.wait_for_log("no TLS certificate to reload");
    served.terminate();
}

#[test]
fn sighup_reopens_the_audit_file() {
    let site = Site::new();
    let path = site.path("audit.log");
    let moved = site.path("audit.log.1");
    site.configure(&format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", path.display()));
    site.init();
    let served = site.serve();
    let ask = || {
        let url = format!("{}/v1/sys/mounts", served.address);
        assert!(Command::new("curl").args(["-s", "-o", "/dev/null", &url]).status().unwrap().success());
    };
    let lines = |path: &Path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
    assert_eq!(lines(&path), 2, "of the first root token");
    ask();
    assert_eq!(lines(&path), 4);
    std::fs::rename(&path, &moved).unwrap();
    ask();
    assert_eq!(lines(&moved), 6, "the file that was moved is the device's until the signal");
    served.signal(Signal::HUP);
    wait_until("another file", || path.exists());
    ask();
    assert_eq!((lines(&path), lines(&moved)), (2, 6));
    served.terminate();
}

#[actix_web::test]
async fn sighup_reloads_pkcs11_libraries() {
    let site = Site::new();
    let devices = tempfile::tempdir().unwrap();
    let hsm = Hsm::new(devices.path());
    hsm.token("one");
    let token = site.init();
    let served = Served::start(
        site.command(&["serve"]).env("SIGNET_LOG", "info").env("SOFTHSM2_CONF", hsm.settings()),
        &site.path("log"),
    );
    let client = served.client(&token);
    let path = "sys/managed-keys/pkcs11/web";
    let key = json!({ "library": "hsm", "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": PIN,
        "allow_generate_key": true, "curve": "P256" });
    let absent = "no kms_library configured with name \"hsm\"";
    assert_eq!(client.post(path, key.clone()).await.error(), absent);
    site.configure(&format!("pkcs11_libraries = {{ hsm = \"{SOFTHSM}\" }}\n"));
    assert_eq!(client.post(path, key.clone()).await.error(), absent, "the file alone changes nothing");
    served.signal(Signal::HUP);
    until("the library", async || client.post(path, key.clone()).await.status == 200).await;
    let test = async || client.post(&format!("{path}/test/sign"), json!({})).await;
    assert_eq!(test().await.status, 204);

    // An unusable library and an invalid file are logged and change nothing.
    site.configure("pkcs11_libraries = { hsm = \"/nowhere/module.so\" }\n");
    served.signal(Signal::HUP);
    let missing = "pkcs11 library \"hsm\": file does not exist: /nowhere/module.so";
    served.wait_for_log(&format!("PKCS #11 libraries not reloaded, the current ones stay in use: {missing}"));
    site.configure("pkcs11_libraries = 7\n");
    served.signal(Signal::HUP);
    served.wait_for_log("pkcs11_libraries: must be names of a-z");
    assert_eq!(test().await.status, 204);

    // A removed library disables its keys until it is configured again.
    site.configure("");
    served.signal(Signal::HUP);
    until("no library", async || test().await.error() == format!("configuration: {absent}")).await;
    site.configure(&format!("pkcs11_libraries = {{ hsm = \"{SOFTHSM}\" }}\n"));
    served.signal(Signal::HUP);
    until("the library again", async || test().await.status == 204).await;
    served.terminate();
}

#[test]
fn plain_http_off_the_loopback_is_refused() {
    let site = Site::initialized();
    for word in ["serve", "check"] {
        let error = refused(site.command(&[word]).env("SIGNET_LISTEN", "0.0.0.0:0"));
        assert!(
            error.contains("listen (SIGNET_LISTEN of the environment): plain HTTP is for the loopback only"),
            "{error}"
        );
    }
}

#[test]
fn a_stored_document_that_does_not_open_is_named_at_start() {
    let site = Site::initialized();
    let db = rusqlite::Connection::open(site.path("data/signet.db")).unwrap();
    let find = "SELECT kind, name FROM document WHERE kind = 'policy' ORDER BY name LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let (kind, name) = db.query_row(find, [], read).unwrap();
    let damage = "UPDATE document SET version = version + 1 WHERE kind = $1 AND name = $2";
    assert_eq!(db.execute(damage, [&kind, &name]).unwrap(), 1);
    drop(db);
    let error = refused(&mut site.command(&["serve"]));
    assert!(error.contains(&format!("the document {kind} \"{name}\"")), "{error}");
    assert!(error.contains("altered, moved or damaged"), "{error}");
}

#[test]
fn wrong_or_missing_seal_key_is_rejected_with_the_cause() {
    let site = Site::initialized();
    let other = "00".repeat(32);
    let wrong = |command: &mut Command| refused(command.env("SIGNET_SEAL_KEY", &other));
    assert!(wrong(&mut site.command(&["serve"])).contains("seal key: does not open the data keys of this store"));
    assert!(wrong(&mut site.command(&["migrate"])).contains("seal key: does not open"));
    let short = refused(site.command(&["serve"]).env("SIGNET_SEAL_KEY", "hunter2"));
    assert!(short.contains("seal key: must be 64 hexadecimal digits") && !short.contains("hunter2"), "{short}");

    let key = site.path("data/seal.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&mut site.command(&["serve"])).contains("set its mode to 0600"));
    std::fs::remove_file(&key).unwrap();
    for words in [&["serve"][..], &["operator", "init"]] {
        let error = refused(&mut site.command(words));
        assert!(error.contains("seal_key_file: file does not exist: "), "{error}");
        assert!(!key.exists(), "no new key over old data");
    }
    let error = refused(&mut site.command(&["operator", "init"]));
    assert!(
        error.contains("data has a store, which only its own key opens")
            && !error.contains("with signet operator init"),
        "{error}"
    );
    let site = Site::new();
    std::fs::create_dir_all(site.path("data/lost+found")).unwrap();
    let error = refused(&mut site.command(&["operator", "init"]));
    assert!(
        error.contains("data is not empty: a key is only created for a new")
            && !error.contains("with signet operator init"),
        "{error}"
    );
}

#[actix_web::test]
async fn init_makes_one_root_token_and_never_a_second() {
    let site = Site::new();
    let (out, _) = site.run(&["operator", "init"]);
    assert!(out.contains("seal.key\nKeep a copy"), "{out}");
    let token = out.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    let mode = |name: &str| std::fs::metadata(site.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("data"), mode("data/seal.key")), (0o700, 0o600));
    assert!(refused(&mut site.command(&["operator", "init"])).contains("signet operator new-root-token --config FILE"));

    let served = site.serve();
    let itself = served.client(token).get("auth/token/lookup-self").await;
    assert_eq!(itself.body["data"]["policies"], json!(["root"]), "{}", itself.text);
    assert!(refused(&mut site.command(&["operator", "init"])).contains("in use by another signet process"));
    // Even a revoked first token is not replaced by `init`.
    assert_eq!(served.client(token).post("auth/token/revoke-self", json!({})).await.status, 204);
    served.terminate();
    assert!(refused(&mut site.command(&["operator", "init"])).contains("signet operator new-root-token --config FILE"));
}

/// The statuses of reading the account and of creating an organization with a token.
async fn as_first_user(served: &Served, token: &str) -> (u16, u16) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = |path: &str| served.url(&format!("api/v2/{path}"));
    let account = send(http.get(url("account/details")).bearer_auth(token)).await;
    let body = json!({ "data": { "type": "organizations", "attributes": { "name": "acme", "email": "a@b.test" } } });
    let made = http.post(url("organizations")).bearer_auth(token).header("Content-Type", "application/vnd.api+json");
    (account.status, send(made.body(body.to_string())).await.status)
}

#[actix_web::test]
async fn bootstrap_makes_the_first_user_once() {
    const USER: [&str; 5] = ["bootstrap", "--username", "ada", "--email", "ada@example.test"];
    let site = Site::new();
    assert!(refused(&mut site.command(&USER)).contains("with signet operator init"), "no seal key yet");
    site.init();
    let bad = ["bootstrap", "--username", "a b", "--email", "ada@example.test"];
    assert!(refused(&mut site.command(&bad)).contains("Username must be"));
    let bad = ["bootstrap", "--username", "ada", "--email", "ada"];
    assert!(refused(&mut site.command(&bad)).contains("Email must be"));
    let token = token_of(&mut site.command(&USER));
    assert!(refused(&mut site.command(&USER)).contains("users exist already"));
    let served = site.serve();
    assert!(refused(&mut site.command(&USER)).contains("in use by another signet process"));
    assert_eq!(as_first_user(&served, &token).await, (200, 201));
    served.terminate();
}

#[actix_web::test]
async fn bootstrap_uses_environment_token_and_never_prints_it() {
    const USER: [&str; 5] = ["bootstrap", "--username", "ada", "--email", "ada@example.test"];
    let site = Site::initialized();
    let with = |token: &str| {
        let mut command = site.command(&USER);
        command.env("SIGNET_BOOTSTRAP_TOKEN", token).env("SIGNET_LOG", "trace");
        command
    };
    for bad in ["too-short", "a text of forty characters with blanks in", ""] {
        let error = refused(&mut with(bad));
        assert!(
            error.contains("SIGNET_BOOTSTRAP_TOKEN: must be at least 32") && (bad.is_empty() || !error.contains(bad))
        );
    }
    let token = "a-token-that-a-deployment-chose-and-keeps";
    let (out, err) = run(&mut with(token));
    assert!(!out.contains(token) && !err.contains(token));
    let served = site.serve();
    assert_eq!(as_first_user(&served, token).await, (200, 201));
    served.terminate();
}

#[test]
fn server_without_root_token_prints_how_to_create_one() {
    let site = Site::new();
    let key = "11".repeat(32);
    let mut served = Served::start(site.command(&["serve"]).env("SIGNET_SEAL_KEY", &key), &site.path("log"));
    let mut line = String::new();
    served.lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("no certificate authority yet: signet setup creates one"), "{line}");
    served.wait_for_log("run signet operator init");
    served.terminate();
    let (out, _) = run(site.command(&["operator", "init"]).env("SIGNET_SEAL_KEY", &key));
    assert!(out.starts_with("token: "), "the key is the environment's: {out}");
    assert!(!site.path("data/seal.key").exists());
}

#[test]
fn migrate_logs_applied_migrations_once() {
    let site = Site::new();
    write_private(site.path("key"), "22".repeat(32));
    site.configure(&format!("seal_key_file = \"{}\"\n", site.path("key").display()));
    let (out, err) = site.run(&["migrate"]);
    assert_eq!(out, "the schema is up to date\n");
    assert!(err.contains("0001_init"), "{err}");
    let (out, err) = site.run(&["migrate"]);
    assert_eq!((out.as_str(), err.as_str()), ("the schema is up to date\n", ""));
}

#[test]
fn database_permission_error_is_reported_with_its_message() {
    let site = Site::new();
    let database = cluster::shared().database();
    let role = format!("{}_without_rights", database.name);
    database.psql(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
    let url = database.url().replace("user=signet", &format!("user={role}"));
    std::fs::write(site.path("signet.toml"), format!("database_url = \"{url}\"\n")).unwrap();
    let migrate = || refused(site.command(&["migrate"]).env("SIGNET_SEAL_KEY", "33".repeat(32)));
    let error = migrate();
    assert!(error.contains(&format!("ALTER DATABASE {} OWNER TO {role}", database.name)), "{error}");
    database.psql(&format!("GRANT CREATE ON SCHEMA public TO {role}"));
    let error = migrate();
    assert!(error.contains("cannot be read or upgraded (permission denied to create extension"), "{error}");
}

#[test]
fn a_database_is_prepared_and_taken_with_its_own_key_only() {
    let site = Site::new();
    let database = cluster::shared().database();
    let configure = |key: &str| site.configure_database(&database.url(), key, "");
    configure("key");
    assert!(refused(&mut site.command(&["migrate"])).contains("with signet operator init"), "no key yet");
    let (out, _) = site.run(&["operator", "init"]);
    assert!(out.contains("seal key: ") && out.contains("token: "), "{out}");
    assert_eq!(site.run(&["migrate"]).0, "the schema is up to date\n");
    assert!(refused(&mut site.command(&["operator", "init"])).contains("signet operator new-root-token --config FILE"));
    configure("other");
    assert!(refused(&mut site.command(&["operator", "init"])).contains("seal key: does not open"));
    assert!(!site.path("other").exists(), "a key that opens nothing is not left");
    std::fs::write(site.path("signet.toml"), "database_url = \"postgres://u:hunter2@db.test/signet\"\n").unwrap();
    let error = refused(site.command(&["serve"]).env("SIGNET_SEAL_KEY", "33".repeat(32)));
    assert!(error.contains("sslmode=disable") && !error.contains("hunter2"), "{error}");
}

#[actix_web::test]
async fn metrics_need_a_token_except_on_the_metrics_listener() {
    let site = Site::new();
    site.configure("metrics_listen = \"127.0.0.1:0\"\n");
    let token = site.init();
    let mut served = site.serve();
    let mut line = String::new();
    served.lines.read_line(&mut line).unwrap();
    let open = line.trim().strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let open = Client::new(open.parse().unwrap(), "");

    let root = served.client(&token);
    assert_eq!(root.page("/metrics").await.status, 403);
    let policy = json!({ "policy": "path \"sys/metrics\" { capabilities = [\"read\"] }" });
    assert_eq!(root.post("sys/policies/acl/scrape", policy).await.status, 204);
    for (policy, status) in [("scrape", 200), ("default", 403)] {
        let made = root.post("auth/token/create", json!({ "policies": [policy], "no_default_policy": true })).await;
        let token = made.body["auth"]["client_token"].as_str().unwrap();
        let url = served.url("metrics");
        let answer = send(reqwest::Client::new().get(url).header("X-Service-Token", token)).await;
        assert_eq!((answer.status, answer.text.contains("signet_http_requests_total")), (status, status == 200));
    }
    let page = open.page("/metrics").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/plain; version=0.0.4"));
    assert!(page.text.contains("signet_commit_seconds_bucket"), "{}", page.text);
    assert_eq!(open.page("/v1/sys/health").await.status, 404, "nothing else is there");
    served.terminate();
}

#[actix_web::test]
async fn the_environment_wins_over_the_file() {
    let site = Site::initialized();
    site.configure("compat = true\nmax_request_size = 1024\n");
    let text = std::fs::read_to_string(site.path("signet.toml")).unwrap();
    // An unassigned address (RFC 5737), on which the server could not listen.
    std::fs::write(site.path("signet.toml"), text.replace("127.0.0.1:0", "192.0.2.1:8200")).unwrap();
    let mut command = site.command(&["serve"]);
    let served =
        Served::start(command.env("SIGNET_LISTEN", "127.0.0.1:0").env("SIGNET_COMPAT", "false"), &site.path("log"));
    assert_eq!(served.client("").get("sys/health").await.status, 200);
    assert_eq!(send(served.client("x").request("PUT", "sys/capabilities-self")).await.status, 405);
    served.terminate();
}

#[test]
fn the_example_file_is_taken_by_check() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("signet.example.toml");
    assert!(signet().args(["check", "--file-only", "--config"]).arg(file).output().unwrap().status.success());
}
