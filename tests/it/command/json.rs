//! `--json` and the exit statuses of the command line.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster;
use crate::process::{dev, run, signet};
use crate::serve::Site;

/// The exit status of a command with `--json`, and its JSON objects on standard output and standard error.
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
            // Log lines have their own format.
            text.lines().filter(|line| line.starts_with('{')).map(object).collect()
        };
        Self { status: status.code().unwrap(), out: objects(stdout), err: objects(stderr) }
    }

    fn only(command: &mut Command) -> Value {
        let ran = Self::of(command);
        assert!(ran.status == 0 && ran.out.len() == 1, "{command:?}: {} {:?} {:?}", ran.status, ran.out, ran.err);
        ran.out[0].clone()
    }

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
    assert!(again.contains("the first root token exists already"), "{again}");
    assert!(Ran::only(&mut quiet(&["operator", "new-root-token"]))["token"].is_string());
    let out = site.path("root-token").display().to_string();
    let written = Ran::only(&mut quiet(&["operator", "new-root-token", "--out", &out]));
    assert_eq!(written, json!({ "token_file": out }));
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
    let dev = dev(&[]);
    let folder = tempfile::tempdir().unwrap();
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
    // A root token never ends and cannot be renewed.
    let renewed = Ran::of(&mut client(&["status", "--renew-token"]));
    let wrong = &renewed.out[0]["wrong"];
    assert!(renewed.status == 3 && wrong[0].as_str().unwrap().starts_with("the token was not renewed: "), "{wrong}");
    let revoked = Ran::only(&mut client(&["revoke", "web.example.test.pem"]));
    assert!(revoked["serial_number"] == issued["serial_number"] && revoked["mount"] == "pki", "{revoked}");
    assert!(revoked["revocation_time"].is_string() && revoked["warnings"] == json!([]), "{revoked}");
    let health = Ran::only(&mut client(&["health"]));
    assert_eq!(health, json!({ "address": dev.address, "ready": true }));
    let mut explain = client(&["explain", "-", "POST", "pki/issue/dev"]);
    let own = Ran::error(explain.stdin(std::process::Stdio::null()), 1);
    assert!(own.starts_with("standard input: must hold a token; to ask about the token from SIGNET_TOKEN, "), "{own}");
    let refused =
        Ran::error(&mut client(&["issue", "web.example.test", "--role", "absent", "--existing", "replace"]), 1);
    assert!(refused.contains("unknown role: absent"), "{refused}");
    // `import` prints one object for each issuer and each CRL.
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
async fn exit_status_distinguishes_problems_from_failed_requests() {
    let site = Site::new();
    let gone = |words: &[&str]| {
        let mut command = signet();
        command.args(words).env("SIGNET_ADDR", "http://127.0.0.1:9").env("SIGNET_TOKEN", "t");
        command
    };
    for words in [&["status", "--patience", "0s"][..], &["health"], &["health", "--live"]] {
        let error = Ran::error(&mut gone(words), 1);
        assert!(error.contains("http://127.0.0.1:9: no response"), "{error}");
    }
    // A store without a root token: the server responds that it is not ready.
    let mut serve = site.command(&["serve"]);
    std::fs::DirBuilder::new().mode(0o700).create(site.path("data")).unwrap();
    signet::storage::seal::SealKey::create_file(&site.path("data/seal.key")).unwrap();
    let served = crate::serve::Served::start(&mut serve, &site.path("log"));
    let error = Ran::error(gone(&["health"]).env("SIGNET_ADDR", served.url("").trim_end_matches('/')), 3);
    assert!(error.contains("not ready: its store is new"), "{error}");
    served.terminate();
    // A configuration that does not exist, and one without its seal key.
    let mut absent = signet();
    absent.args(["check", "--config", "absent.toml"]);
    assert_eq!(Ran::error(&mut absent, 1), "--config: file does not exist: absent.toml (signet setup creates one)");
    std::fs::remove_file(site.path("data/seal.key")).unwrap();
    let error = Ran::error(&mut site.command(&["check"]), 3);
    assert_eq!(error, "1 problem found");

    // A mount without an issuer is a problem, although the server responded.
    let dev = dev(&[]);
    assert_eq!(dev.client().post("sys/mounts/empty", json!({ "type": "pki" })).await.status, 204);
    let mut status = signet();
    status.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token);
    assert_eq!(Ran::error(&mut status, 3), "1 problem found");
    let mut denied = signet();
    denied.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", "hunter2");
    assert!(Ran::error(&mut denied, 1).contains("permission denied"));
    dev.terminate();
}

/// Runs a command that must succeed. Each line of its standard output must be a JSON document.
fn printed(command: &mut Command) -> Vec<Value> {
    let (text, _) = run(command.arg("--json").env("SIGNET_LOG", "error"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// Starts a server, connects to its address and stops it. Its standard output must be one JSON document.
fn greeting(command: &mut Command) -> Value {
    let mut child = command.arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    let object: Value = serde_json::from_str(&first).unwrap_or_default();
    let socket = object["address"].as_str().and_then(|address| address.split_once("://"));
    let is_reached = socket.is_some_and(|(_, socket)| TcpStream::connect(socket).is_ok());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(is_reached && rest.is_empty(), "{first}{rest}");
    object
}

fn types(object: &Value) -> Value {
    let members = object.as_object().unwrap_or_else(|| panic!("{object}")).iter();
    members.map(|(name, value)| (name.clone(), type_name(value))).collect()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "unsigned",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn copy_store_json_has_an_object_per_table_and_a_result() {
    let site = Site::initialized();
    let url = cluster::shared().database().url();
    let copy_store = || site.command(&["operator", "copy-store", "--to", &url]);
    let lines = printed(&mut copy_store());
    let (verdict, tables) = lines.split_last().unwrap();
    assert_eq!(*verdict, json!({ "subject": "the database", "ok": true, "findings": [] }));
    for table in tables {
        assert_eq!(types(table), json!({ "table": "string", "rows": "unsigned" }));
    }
    assert!(tables.contains(&json!({ "table": "certificate", "rows": 0 })), "{tables:?}");
    let again = Ran::error(copy_store().env("SIGNET_LOG", "error"), 1);
    assert!(again.contains("the database is not empty"), "{again}");
}

#[test]
fn setup_and_serve_json_have_their_fields_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let signet_in_folder = |words: &[&str]| {
        let mut command = signet();
        command.args(words).args(["--config", "signet.toml"]).current_dir(folder.path());
        command
    };
    let first = ["setup", "--listen", "127.0.0.1:0", "--domain", "example.test"];
    for (words, action) in [(&first[..], "made"), (&first[..1], "kept")] {
        let lines = printed(&mut signet_in_folder(words));
        let (next, steps) = lines.split_last().unwrap();
        for step in steps {
            assert_eq!(types(step), json!({ "action": "string", "about": "string" }));
        }
        assert!(steps.iter().any(|step| step["action"] == action), "{action}: {steps:?}");
        let expected = json!({
            "config": "signet.toml",
            "admin_token_file": "admin-token",
            "root_ca_file": "root-ca.pem",
            "csr_file": null,
            "mount": "pki",
            "role": "server",
            "example_name": "www.example.test",
        });
        assert_eq!(*next, expected);
    }
    let served = greeting(&mut signet_in_folder(&["serve"]));
    let without_listeners = json!({
        "address": "string",
        "metrics_address": "null",
        "public_address": "null",
        "has_authority": "boolean",
    });
    assert_eq!(types(&served), without_listeners);
    assert!(served["address"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{served}");
    assert_eq!(served["has_authority"], true);
}

#[test]
fn setup_json_without_a_root_names_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = signet();
    setup.args(["setup", "--listen", "127.0.0.1:0", "--domain", "example.test", "--csr", "own.csr"]);
    let lines = printed(setup.current_dir(folder.path()));
    let next = lines.last().unwrap();
    assert_eq!((&next["csr_file"], &next["example_name"]), (&json!("own.csr"), &Value::Null), "{next}");
    assert!(folder.path().join("own.csr").exists());
}

#[test]
fn serve_json_names_every_listener() {
    let site = Site::new();
    site.configure("metrics_listen = \"127.0.0.1:0\"\npublic_listen = \"127.0.0.1:0\"\n");
    site.init();
    let served = greeting(&mut site.command(&["serve"]));
    let with_listeners = json!({
        "address": "string",
        "metrics_address": "string",
        "public_address": "string",
        "has_authority": "boolean",
    });
    assert_eq!(types(&served), with_listeners);
    assert!(served["metrics_address"].as_str().unwrap().ends_with("/metrics"), "{served}");
    assert_eq!(served["has_authority"], false);
}

#[test]
fn dev_json_has_its_fields_and_types() {
    let dev = ["dev", "--listen", "127.0.0.1:0", "--root-token", "my-root"];
    let listener = ["--public-listen", "127.0.0.1:0"];
    for (more, public) in [(&listener[..0], "null"), (&listener[..], "string")] {
        let greeted = greeting(signet().args(dev).args(more));
        let expected = json!({ "address": "string", "public_address": public, "token": "string", "storage": "string" });
        assert_eq!(types(&greeted), expected);
        assert_eq!(greeted["token"], "my-root");
    }
}
