//! The first steps of a new user with the real program and other tools: start, paste, issue, verify, stop, start again.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Dev, assert_same_key, assert_verifies, dev, openssl, signet};

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

async fn save_authority(dev: &Dev, folder: &Path) {
    let answer = dev.client().with_token("").get("pki/ca/pem").await.assert_status(200);
    std::fs::write(folder.join("root.pem"), answer.text).unwrap();
}

#[actix_web::test]
async fn first_certificate_of_dev_has_no_warnings() {
    let dev = dev(&[]);
    let answer = dev.client().post("pki/issue/dev", json!({ "common_name": "web.dev.test" })).await;
    assert_eq!((answer.status, &answer.body["warnings"]), (200, &Value::Null), "{}", answer.text);
    assert_eq!(dev.client().get("pki/roles/dev").await.body["data"]["ttl"], "72h");
    dev.terminate();
}

#[actix_web::test]
async fn printed_curl_command_gets_a_valid_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev(&[]);
    let output = Command::new("sh").args(["-c", &dev.curl]).output().unwrap();
    let body: Value = serde_json::from_slice(&output.stdout).unwrap();
    let data = &body["data"];
    std::fs::write(folder.path().join("leaf.pem"), data["certificate"].as_str().unwrap()).unwrap();
    std::fs::write(folder.path().join("leaf-key.pem"), data["private_key"].as_str().unwrap()).unwrap();
    save_authority(&dev, folder.path()).await;
    assert_verifies(folder.path(), "root.pem", "leaf.pem");
    assert_same_key(folder.path(), "leaf-key.pem", "leaf.pem");
    assert!(openssl(folder.path(), &["x509", "-in", "leaf.pem", "-noout", "-subject"]).contains("web.dev.test"));
    dev.terminate();
}

#[actix_web::test]
async fn issue_writes_three_files_and_never_overwrites_them() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev(&[]);
    let issue = || {
        let mut command = signet();
        command.args(["issue", "web.example.test"]).current_dir(folder.path());
        command.env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token).output().unwrap()
    };
    let first = issue();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let files = contents(folder.path());
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ca.pem", "web.example.test-key.pem", "web.example.test.pem"]);
    let mode = std::fs::metadata(folder.path().join("web.example.test-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stored = dev.client().list("pki/certs").await.body;

    let second = issue();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("exists and is not overwritten"));
    assert_eq!(contents(folder.path()), files);
    assert_eq!(dev.client().list("pki/certs").await.body["data"], stored["data"], "nothing was issued for nothing");

    save_authority(&dev, folder.path()).await;
    assert_verifies(folder.path(), "ca.pem", "web.example.test.pem");
    assert_same_key(folder.path(), "web.example.test-key.pem", "web.example.test.pem");
    assert_eq!(
        openssl(folder.path(), &["x509", "-in", "ca.pem", "-noout", "-fingerprint", "-sha256"]),
        openssl(folder.path(), &["x509", "-in", "root.pem", "-noout", "-fingerprint", "-sha256"]),
    );
    dev.terminate();
}

#[actix_web::test]
async fn a_request_made_by_openssl_is_certified() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev(&[]);
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "my.key"];
    let request = [&["req", "-new", "-subj", "/CN=my.example.test", "-out", "my.csr"], &key[..]].concat();
    openssl(folder.path(), &request);
    let csr = std::fs::read_to_string(folder.path().join("my.csr")).unwrap();
    let answer = dev.client().post("pki/sign/dev", json!({ "csr": csr })).await.assert_status(200);
    std::fs::write(folder.path().join("my.pem"), answer.body["data"]["certificate"].as_str().unwrap()).unwrap();
    save_authority(&dev, folder.path()).await;
    assert_verifies(folder.path(), "root.pem", "my.pem");
    assert_same_key(folder.path(), "my.key", "my.pem");
    assert_eq!(answer.body["data"]["private_key"], Value::Null);
    dev.terminate();
}

#[actix_web::test]
async fn a_data_folder_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = ["--data-dir", data.to_str().unwrap()];
    let first = dev(&arguments);
    let old_token = first.token.clone();
    let root = first.client().get("pki/ca/pem").await.text;
    let issued = first.client().post("pki/issue/dev", json!({ "common_name": "kept.test" })).await.body;
    let serial = issued["data"]["serial_number"].as_str().unwrap().to_owned();
    first.terminate();

    let second = dev(&arguments);
    let client = second.client();
    assert_eq!(client.get("pki/ca/pem").await.text, root);
    client.with_token(&old_token).get("auth/token/lookup-self").await.assert_denied();
    let kept = client.get(&format!("pki/cert/{serial}")).await;
    assert_eq!(kept.body["data"]["certificate"].as_str(), issued["data"]["certificate"].as_str());
    let next = client.post("pki/issue/dev", json!({ "common_name": "next.test" })).await;
    assert_eq!(next.body["data"]["issuing_ca"], issued["data"]["issuing_ca"]);
    second.terminate();

    // Passing the same token again keeps it valid.
    let given = [&arguments[..], &["--root-token", "given-token"]].concat();
    dev(&given).terminate();
    let again = dev(&given);
    assert_eq!(again.client().get("auth/token/lookup-self").await.status, 200);
    again.terminate();
}

#[actix_web::test]
async fn without_a_data_folder_nothing_is_left() {
    let temporary = tempfile::tempdir().unwrap();
    let dev = crate::process::dev_with(signet().env("TMPDIR", temporary.path()), &[]);
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1);
    dev.terminate();
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

/// A request whose head was sent, but not its body.
struct Begun(TcpStream);

impl Begun {
    fn issue(dev: &Dev, body: &str) -> Self {
        let mut socket = TcpStream::connect(dev.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let token = &dev.token;
        let length = body.len();
        let head = format!(
            "POST /v1/pki/issue/dev HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut taken = [0; 25];
        socket.read_exact(&mut taken).unwrap();
        assert_eq!(&taken, b"HTTP/1.1 100 Continue\r\n\r\n");
        Self(socket)
    }

    fn finish(mut self, body: &str) -> String {
        self.0.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server closes the connection after the response, because it is stopping.
        self.0.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[actix_web::test]
async fn sigterm_waits_for_a_running_request() {
    let dev = dev(&[]);
    let body = json!({ "common_name": "late.test" }).to_string();
    let begun = Begun::issue(&dev, &body);
    let started = Instant::now();
    dev.send_sigterm();
    std::thread::sleep(Duration::from_millis(500));
    let answer = begun.finish(&body);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("BEGIN CERTIFICATE"), "{answer}");
    dev.wait();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[actix_web::test]
async fn sigterm_does_not_wait_for_idle_connections() {
    let dev = dev(&[]);
    let mut idle = TcpStream::connect(dev.socket()).unwrap();
    idle.write_all(b"GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let mut begin = [0; 12];
    idle.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let took = dev.terminate();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[actix_web::test]
async fn sigterm_abandons_an_incomplete_request() {
    let dev = dev(&[]);
    let _begun = Begun::issue(&dev, "{}");
    let took = dev.terminate();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[actix_web::test]
async fn a_signal_at_the_very_start_ends_the_server_in_good_order() {
    for _ in 0..5 {
        let took = dev(&[]).terminate();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
