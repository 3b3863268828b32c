//! The `signet` binary: `dev` and `check`, and what `issue` refuses before it asks.

use std::time::Duration;

use crate::process::{dev, dev_with, refused, signet};

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
    let database = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://x"];
    assert!(refused(signet().args(database)).contains("embedded store only"));
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
