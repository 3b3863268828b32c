//! The `signet` binary: `dev` and `check`, and what `issue` refuses before it asks.

use std::time::Duration;

use serde_json::json;

use crate::process::{Dev, dev, dev_with, refused, signet};
use crate::support::{Answer, send};

#[actix_web::test]
async fn dev_is_ready_when_it_says_so_and_drains_on_sigterm() {
    let dev = dev(&["--root-token", "my-root"]);
    assert_eq!(dev.token, "my-root");
    let client = dev.client();
    assert_eq!(client.with_token("").get("sys/health").await.status, 200);
    assert_eq!(client.get("sys/mounts/pki").await.status, 200);
    assert_eq!(client.page("/metrics").await.status, 200);
    assert!(dev.terminate() < Duration::from_secs(10));
}

/// GETs a path of the projects API with a token.
async fn projects(dev: &Dev, token: &str, path: &str) -> Answer {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    send(http.get(format!("{}/api/v2/{path}", dev.address)).bearer_auth(token)).await
}

#[actix_web::test]
async fn the_token_of_dev_is_that_of_an_owner_of_organization_dev() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let first = dev(&[&data[..], &["--root-token", "my-root"]].concat());
    let list = projects(&first, "my-root", "organizations/dev/projects").await;
    assert_eq!(list.body["data"][0]["attributes"]["name"], "Default Project", "{}", list.text);
    assert_eq!(list.body["data"][0]["attributes"]["permissions"]["can-destroy"], true);
    assert!(first.printed().contains("/api/v2/organizations/dev/projects"), "{}", first.printed());
    first.terminate();
    // Started again: another token, and the older one is revoked. The same one stands.
    for again in [
        &data[..],
        &[&data[..], &["--root-token", "my-root"]].concat(),
        &[&data[..], &["--root-token", "my-root"]].concat(),
    ] {
        let started = dev(again);
        let account = projects(&started, &started.token, "account/details").await;
        assert_eq!(account.body["data"]["attributes"]["username"], json!("dev"), "{}", account.text);
        let older = projects(&started, "my-root", "organizations/dev").await;
        assert_eq!(older.status, if started.token == "my-root" { 200 } else { 401 });
        started.terminate();
    }
}

#[actix_web::test]
async fn the_seal_key_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    dev(&["--data-dir", path.to_str().unwrap()]).terminate();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("seal.key"))), (0o700, 0o600));
}

#[test]
fn logs_have_no_colours_in_a_file_and_start_up_lines_of_the_library_for_debugging_only() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let logged = |level: &str| {
        let file = std::fs::File::create(&log).unwrap();
        dev_with(signet().env("SIGNET_LOG", level).stderr(file), &[]).terminate();
        std::fs::read_to_string(&log).unwrap()
    };
    let usual = logged("info");
    assert!(usual.contains("stopping") && !usual.contains("actix_server"), "{usual}");
    let debugging = logged("debug");
    assert!(debugging.contains("actix_server"), "{debugging}");
    assert!(!usual.contains('\u{1b}') && !debugging.contains('\u{1b}'), "{debugging}");
}

#[test]
fn dev_refuses_other_addresses_and_databases() {
    assert!(refused(signet().args(["dev", "--listen", "0.0.0.0:0"])).contains("loopback only"));
    let database = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://localhost/x"];
    assert!(refused(signet().args(database)).contains("needs --data-dir"));
    let folder = tempfile::tempdir().unwrap();
    let keys = ["--data-dir", folder.path().to_str().unwrap()];
    let tls = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://u:hunter2@localhost/x?sslmode=require"];
    let text = refused(signet().args(tls).args(keys));
    assert!(text.contains("TLS, which is unsupported") && !text.contains("hunter2"), "{text}");
}

#[test]
fn issue_never_overwrites_and_looks_before_it_asks() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("web.test-key.pem"), "mine").unwrap();
    // Nothing listens there: the refusal comes before the question.
    let command = ["issue", "web.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(command)).contains("web.test-key.pem exists and is not overwritten"));
    assert_eq!(std::fs::read(folder.path().join("web.test-key.pem")).unwrap(), b"mine");
    let bad = ["issue", "../web", "--out", out, "--token", "t"];
    assert!(refused(signet().args(bad)).contains("cannot be the name of a file"));
    let gone = ["issue", "other.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(gone)).contains("http://127.0.0.1:9: no answer"));
}

#[test]
fn check_tells_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signet.toml");
    std::fs::write(&file, "data_dir = \"/var/lib/signet\"\n").unwrap();
    assert!(signet().args(["check", "--config"]).arg(&file).output().unwrap().status.success());
    std::fs::write(&file, "data_dri = \"x\"\nworkers = -1\n").unwrap();
    let text = refused(signet().args(["check", "--config"]).arg(&file));
    for problem in ["data_dri: unknown setting", "workers: must be", "data_dir: must be"] {
        assert!(text.contains(problem), "{text}");
    }
}
