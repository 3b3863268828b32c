//! `--json` and the exit statuses of the command line.

use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::process::{dev, signet};
use crate::serve::Site;

/// The exit status of a command with `--json`, and its objects on standard output and standard error.
struct Ran {
    status: i32,
    out: Vec<Value>,
    err: Vec<Value>,
}

impl Ran {
    fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.arg("--json").output().unwrap();
        let objects = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            let object = |line: &str| match serde_json::from_str(line) {
                Ok(object @ Value::Object(_)) => object,
                _ => panic!("{line}"),
            };
            // Log lines have a form of their own.
            text.lines().filter(|line| line.starts_with('{')).map(object).collect()
        };
        Self { status: status.code().unwrap(), out: objects(stdout), err: objects(stderr) }
    }

    /// The one object that a command printed which succeeds.
    fn only(command: &mut Command) -> Value {
        let ran = Self::of(command);
        assert!(ran.status == 0 && ran.out.len() == 1, "{command:?}: {} {:?} {:?}", ran.status, ran.out, ran.err);
        ran.out[0].clone()
    }

    /// The error of a command that ends with this exit status.
    fn error(command: &mut Command, status: i32) -> String {
        let ran = Self::of(command);
        let error = ran.err.last().unwrap_or_else(|| panic!("{command:?}: {:?}", ran.out)).clone();
        assert_eq!((ran.status, error["exit_status"].as_i64()), (status, Some(status.into())), "{command:?}: {error}");
        error["error"].as_str().unwrap().to_owned()
    }
}

#[test]
fn commands_of_an_installation_print_json_objects() {
    let site = Site::new();
    let quiet = |words: &[&str]| {
        let mut command = site.command(words);
        command.env("SIGNET_LOG", "error");
        command
    };
    let root = Ran::only(&mut quiet(&["operator", "init"]));
    assert!(root["token"].is_string() && root["seal_key_file"].as_str().unwrap().ends_with("seal.key"), "{root}");
    let again = Ran::error(&mut quiet(&["operator", "init"]), 1);
    assert!(again.contains("the first root token was made before"), "{again}");
    assert!(Ran::only(&mut quiet(&["operator", "new-root-token"]))["token"].is_string());
    let first = ["bootstrap", "--username", "ada", "--email", "ada@example.test"];
    let first = Ran::only(&mut quiet(&first));
    assert!(first["username"] == "ada" && first["token"].is_string(), "{first}");
    assert!(Ran::only(&mut quiet(&["operator", "new-user-token", "--user", "ada"]))["token"].is_string());
    assert_eq!(Ran::only(&mut quiet(&["migrate"])), json!({ "is_up_to_date": true }));
    let seal = Ran::only(&mut quiet(&["operator", "seal-status"]));
    assert!(seal["seal_type"].is_string() && seal["data_key_term"].is_u64() && seal["encryptions"].is_u64(), "{seal}");
    let rotated = Ran::only(&mut quiet(&["operator", "rotate-seal-key"]));
    assert!(rotated["next_step"].as_str().unwrap().contains("seal.key"), "{rotated}");
    let checked = Ran::only(&mut quiet(&["check"]));
    assert!(checked["ok"] == true && checked["checks"][0]["level"].is_string(), "{checked}");

    let copy = site.path("copy.db");
    let file = copy.to_str().unwrap();
    let made = Ran::only(&mut quiet(&["operator", "backup", "--to", file]));
    assert_eq!((made["file"].as_str(), made["bytes"].as_u64()), (Some(file), Some(copy.metadata().unwrap().len())));
    let verified = Ran::only(&mut quiet(&["operator", "verify-backup", file]));
    assert!(verified["ok"] == true && verified["findings"] == json!([]), "{verified}");
    std::fs::rename(site.path("data/seal.key"), site.path("seal.key")).unwrap();
    std::fs::remove_dir_all(site.path("data")).unwrap();
    site.configure(&format!("seal_key_file = \"{}\"\n", site.path("seal.key").display()));
    assert_eq!(Ran::only(&mut quiet(&["operator", "restore", file]))["bytes"], made["bytes"]);
    assert_eq!(Ran::only(&mut quiet(&["operator", "after-restore"])), json!({ "restored": true }));
    let script = Ran::only(signet().args(["completions", "bash"]));
    assert!(script["script"].as_str().unwrap().contains("_signet"), "{script}");
}

#[test]
fn commands_of_clients_print_json_objects_and_their_errors() {
    let (dev, folder) = (dev(&[]), tempfile::tempdir().unwrap());
    let client = |words: &[&str]| {
        let mut command = signet();
        command.args(words).current_dir(folder.path());
        command.env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token);
        command
    };
    let issued = Ran::only(&mut client(&["issue", "web.example.test"]));
    assert!(issued["kept"] == false && issued["certificate"] == "./web.example.test.pem", "{issued}");
    let kept = Ran::only(&mut client(&["issue", "web.example.test", "--existing", "keep"]));
    assert!(kept["kept"] == true && kept["serial_number"] == issued["serial_number"], "{kept}");
    assert_eq!(Ran::only(&mut client(&["renew", "web.example.test.pem"]))["renewed"], false);
    assert_eq!(Ran::only(&mut client(&["who", "web.example.test.pem"]))["mount"], "pki/");
    assert_eq!(Ran::only(&mut client(&["status"]))["wrong"], json!([]));
    let health = Ran::only(&mut client(&["health"]));
    assert_eq!(health, json!({ "address": dev.address, "ready": true }));
    let mut explain = client(&["explain", "-", "POST", "pki/issue/dev"]);
    let own = Ran::error(explain.stdin(std::process::Stdio::null()), 1);
    assert!(own.starts_with("standard input: must hold a token"), "{own}");
    let refused =
        Ran::error(&mut client(&["issue", "web.example.test", "--role", "absent", "--existing", "replace"]), 1);
    assert!(refused.contains("unknown role: absent"), "{refused}");
    // The import of an authority is a stream: an object for each issuer and each CRL.
    std::fs::create_dir(folder.path().join("old")).unwrap();
    std::fs::copy(folder.path().join("ca.pem"), folder.path().join("old/ca.pem")).unwrap();
    let imported = Ran::of(&mut client(&["import", "old"]));
    assert!(imported.status == 0 && imported.out[0]["is_new"] == false, "{:?} {:?}", imported.out, imported.err);
    assert!(imported.err.iter().any(|line| line["warning"].is_string()), "{:?}", imported.err);
    let usage = Ran::error(&mut client(&["issue"]), 2);
    assert!(usage.contains("<NAME>"), "{usage}");
    dev.terminate();
}

#[actix_web::test]
async fn exit_status_tells_what_is_wrong_from_what_could_not_be_asked() {
    let site = Site::new();
    let gone = |words: &[&str]| {
        let mut command = signet();
        command.args(words).env("SIGNET_ADDR", "http://127.0.0.1:9").env("SIGNET_TOKEN", "t");
        command
    };
    for words in [&["status", "--patience", "0s"][..], &["health"], &["health", "--live"]] {
        let error = Ran::error(&mut gone(words), 1);
        assert!(error.contains("http://127.0.0.1:9: no answer"), "{error}");
    }
    // A store without a root token: the server answers, and is not ready.
    let mut serve = site.command(&["serve"]);
    std::fs::DirBuilder::new().mode(0o700).create(site.path("data")).unwrap();
    signet::storage::seal::SealKey::create_file(&site.path("data/seal.key")).unwrap();
    let served = crate::serve::Served::start(&mut serve, &site.path("log"));
    let error = Ran::error(gone(&["health"]).env("SIGNET_ADDR", served.url("").trim_end_matches('/')), 3);
    assert!(error.contains("not ready: its store is new"), "{error}");
    served.terminate();
    // A configuration that cannot be read, and one that names a folder of others.
    let mut absent = signet();
    absent.args(["check", "--config", "absent.toml"]);
    assert_eq!(Ran::error(&mut absent, 1), "--config: file does not exist: absent.toml (signet setup creates one)");
    std::fs::remove_file(site.path("data/seal.key")).unwrap();
    let error = Ran::error(&mut site.command(&["check"]), 3);
    assert_eq!(error, "one thing is wrong");

    // A mount without an issuer is wrong, and the server answered.
    let dev = dev(&[]);
    assert_eq!(dev.client().post("sys/mounts/empty", json!({ "type": "pki" })).await.status, 204);
    let mut status = signet();
    status.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token);
    assert_eq!(Ran::error(&mut status, 3), "one thing is wrong");
    let mut denied = signet();
    denied.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", "hunter2");
    assert!(Ran::error(&mut denied, 1).contains("permission denied"));
    dev.terminate();
}
