//! `signet issue` and `signet renew` with the real program against a real server. openssl checks the files.

mod files;
mod service_token;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::chaos::clocks::FakeClock;
use crate::process::{Dev, Killed, assert_same_key, assert_verifies, dev, openssl, ran, run, signet, signet_by};
use crate::support::wait_until;

struct Desk {
    dev: Dev,
    folder: tempfile::TempDir,
}

/// Stops the server, which must end well.
impl Drop for Desk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.dev.stop();
        }
    }
}

impl Desk {
    fn new() -> Self {
        Self { dev: dev(&[]), folder: tempfile::tempdir().unwrap() }
    }

    /// A desk with a certificate for `web.example.test`.
    fn with_certificate() -> Self {
        let desk = Self::new();
        desk.run(&["issue", "web.example.test"]);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = signet();
        command.args(words).current_dir(self.folder.path());
        command.env("SIGNET_ADDR", &self.dev.address).env("SIGNET_TOKEN", &self.dev.token);
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn run(&self, words: &[&str]) -> (String, String) {
        run(&mut self.command(words))
    }

    fn refused(&self, words: &[&str]) -> String {
        let (well, out, err) = ran(&mut self.command(words));
        assert!(!well, "{words:?}: {out}");
        err
    }

    /// Returns the object that a command prints with `--json`.
    fn json(&self, words: &[&str]) -> Value {
        let (out, _) = self.run(&[words, &["--json"]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// Runs a command with this token. Returns whether it succeeds, and its standard output and error.
    fn run_as(&self, token: &str, words: &[&str]) -> (bool, String, String) {
        ran(self.command(words).env("SIGNET_TOKEN", token))
    }

    /// A token with this policy only.
    async fn token(&self, policy: &str) -> String {
        self.post("sys/policies/acl/narrow", json!({ "policy": policy })).await;
        let made = self.dev.client().post("auth/token/create-orphan", json!({ "policies": ["narrow"] })).await.body;
        made["auth"]["client_token"].as_str().unwrap().to_owned()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.dev.client().post(path, body).await;
        assert!(answer.status < 300, "{path}: {}", answer.text);
        answer.body["data"].clone()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    /// A property of a certificate, as openssl prints it.
    fn told(&self, name: &str, what: &[&str]) -> String {
        openssl(self.folder(), &[&["x509", "-in", name, "-noout"], what].concat()).trim().to_owned()
    }

    fn serial(&self, name: &str) -> String {
        self.told(name, &["-serial"])
    }

    fn count(&self, name: &str) -> usize {
        self.text(name).matches("BEGIN CERTIFICATE").count()
    }
}

/// A server that records requests and returns a list of responses, the last one repeatedly.
pub struct Double {
    pub address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Double {
    pub fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heard);
        let answers = answers.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let mut socket = socket.unwrap();
                let mut request = vec![0; 65536];
                let mut read = 0;
                // The head, then the body by its Content-Length. A TLS client waits after its first record.
                while read < request.len() && request[0] != 0x16 {
                    let text = String::from_utf8_lossy(&request[..read]).to_lowercase();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                        if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
                            break;
                        }
                    }
                    match socket.read(&mut request[read..]).unwrap_or(0) {
                        0 => break,
                        more => read += more,
                    }
                }
                keep.lock().unwrap().push(String::from_utf8_lossy(&request[..read]).into_owned());
                let _ = socket.write_all(answers[n.min(answers.len() - 1)].as_bytes());
            }
        });
        Self { address, heard }
    }

    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn header(request: &str, name: &str) -> String {
    let line = request.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: "))).unwrap();
    line.split_once(": ").unwrap().1.to_owned()
}

const SIGN_DEV: &str = "path \"pki/sign/dev\" { capabilities = [\"update\"] }";
const SIGN_BELOW: &str = "path \"below/sign/web\" { capabilities = [\"update\"] }";

/// A response of a [`Double`]; `status` may have further header lines.
pub fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn denied() -> String {
    response("403 Forbidden", "{\"errors\":[\"not for you\"]}")
}

fn certified(certificate: &str, authority: &str) -> String {
    response("200 OK", &json!({ "data": { "certificate": certificate, "issuing_ca": authority } }).to_string())
}

/// Runs a command that asks a [`Double`]. Returns whether it succeeds, and its standard error.
fn run_at(double: &Double, folder: &Path, words: &[&str]) -> (bool, String) {
    let mut command = signet();
    command.args(words).current_dir(folder).env("SIGNET_ADDR", &double.address).env("SIGNET_TOKEN", "hunter2");
    let (well, _, err) = ran(&mut command);
    (well, err)
}

#[test]
fn issue_generates_key_locally_and_sends_only_a_csr() {
    let double = Double::start(&[&denied()]);
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = run_at(&double, folder.path(), &["issue", "web.example.test", "--role", "web"]);
    assert!(text.contains("the token is not known to the server"), "{text}");
    let heard = double.heard();
    assert!(heard.len() == 2 && heard[1].starts_with("POST /v1/sys/internal/explain-self "), "{heard:?}");
    assert!(heard[0].starts_with("POST /v1/pki/sign/web HTTP/1.1\r\n"), "{}", heard[0]);
    assert!(heard[0].contains("BEGIN CERTIFICATE REQUEST") && !heard[0].contains("PRIVATE"), "{}", heard[0]);
    assert_eq!(header(&heard[0], "idempotency-key").len(), 36);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a refusal leaves nothing behind");
}

#[test]
fn busy_server_is_retried_after_its_delay_with_same_key() {
    let busy = response("503 Busy\r\nRetry-After: 1", "{}");
    let double = Double::start(&[&busy, &busy, &denied()]);
    let folder = tempfile::tempdir().unwrap();
    let ask = |patience| run_at(&double, folder.path(), &["issue", "web.example.test", "--patience", patience]).1;
    let begun = Instant::now();
    let text = ask("0s");
    assert!(text.contains("status 503"), "{text}");
    assert_eq!(double.heard().len(), 1);
    let text = ask("30s");
    assert!(text.contains("status 403"), "{text}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let heard = double.heard();
    assert_eq!(heard.len(), 4, "with the question why it was denied");
    assert_eq!(header(&heard[1], "idempotency-key"), header(&heard[2], "idempotency-key"));
    assert_ne!(header(&heard[0], "idempotency-key"), header(&heard[1], "idempotency-key"));
}

#[test]
fn an_answer_for_another_key_is_refused_and_nothing_is_written() {
    let desk = Desk::new();
    desk.run(&["issue", "other.example.test"]);
    let double = Double::start(&[&certified(&desk.text("other.example.test.pem"), &desk.text("ca.pem"))]);
    let text = desk.refused(&["issue", "web.example.test", "--address", &double.address]);
    assert!(text.contains("is for another key"), "{text}");
    assert!(!desk.path("web.example.test-key.pem").exists() && !desk.path("web.example.test.pem").exists());
}

#[test]
fn control_characters_of_a_server_do_not_reach_the_terminal() {
    let desk = Desk::with_certificate();
    let text = "\u{1b}[2Jno\nsignet: \u{9b}31mall is well\u{202e}";
    let double = Double::start(&[&response("403 No", &json!({ "errors": [text] }).to_string())]);
    for words in [&["issue", "x.example.test"][..], &["status"], &["renew", "web.example.test.pem", "--force"]] {
        let shown = desk.refused(&[words, &["--address", &double.address]].concat());
        assert!(shown.contains("\\u001b[2Jno\\u000asignet: \\u009b31mall is well\\u202e"), "{words:?}: {shown}");
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{words:?}: {shown}");
    }
}

#[actix_web::test]
async fn renew_refuses_useless_certificate_before_files_change() {
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "10.0.0.7"]);
    let file = "web.example.test.pem";
    let key = "web.example.test-key.pem";
    // Certificates for the same key: with other names, too short, expired.
    let signed = |names: &str, ttl: &str, out: &str| {
        let subject = ["req", "-new", "-key", key, "-subj", "/CN=x.example.test", "-addext", names, "-out", "x.csr"];
        openssl(desk.folder(), &subject);
        std::fs::create_dir(desk.path(out)).unwrap();
        desk.run(&["issue", "--csr", "x.csr", "--ttl", ttl, "--out", out, "--chain", "none"]);
        desk.text(&format!("{out}/x.example.test.pem"))
    };
    let all = "subjectAltName=DNS:web.example.test,IP:10.0.0.7";
    let others = signed("subjectAltName=DNS:web.example.test", "72h", "others");
    let short = signed(all, "1h", "short");
    let ended = signed(all, "1s", "ended");
    let good = signed(all, "72h", "good");
    let root = desk.text("ca.pem");
    desk.post("pki/root/rotate/internal", json!({ "common_name": "Next root", "key_type": "ec", "ttl": "700h" })).await;
    let next = desk.post("pki/root/replace", json!({ "default": "next" })).await;
    assert!(next["default"].is_string(), "{next}");
    desk.run(&["issue", "next.example.test"]);
    let stranger = desk.text("next.example.test-ca.pem");
    let checked = ["x509", "-checkend", "0", "-noout", "-in", "ended/x.example.test.pem"];
    wait_until("the end of a certificate", || {
        let output = Command::new("openssl").args(checked).current_dir(desk.folder()).output().unwrap();
        output.status.code() == Some(1)
    });
    let state = || [file, key, "ca.pem"].map(|name| desk.text(name));
    let before = state();
    for (certificate, authority, says) in [
        (&others, &root, "the new certificate is not for 10.0.0.7"),
        (&short, &root, "before the old one"),
        (&ended, &root, "one of the clocks is wrong"),
        (&good, &stranger, "is not signed by the returned authority"),
    ] {
        let double = Double::start(&[&certified(certificate, authority)]);
        let renew = ["renew", file, "--before", "72h", "--reuse-key", "--address", &double.address];
        let text = desk.refused(&renew);
        assert!(text.contains(says), "{text}");
        assert!(state() == before, "{says}: a file changed");
    }
    // A shorter lifetime is accepted if it was requested.
    let double = Double::start(&[&certified(&short, &root)]);
    desk.run(&["renew", file, "--ttl", "1h", "--before", "72h", "--reuse-key", "--address", &double.address]);
    assert_eq!(desk.text(file), short);
}

#[actix_web::test]
async fn issue_puts_names_of_every_kind_into_the_certificate() {
    let desk = Desk::new();
    desk.post("pki/roles/all", json!({ "allow_any_name": true, "allowed_uri_sans": "spiffe://*", "key_type": "any" }))
        .await;
    let names = ["10.0.0.7", "web.example.test", "ops@example.test", "spiffe://example.test/web", "2001:db8::7"];
    let more = ["--role", "all", "--alt-names", "b.example.test,10.0.0.8", "--json"];
    let (out, err) = desk.run(&[&["issue"], &names[..], &more].concat());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["certificate"], "./10.0.0.7.pem", "{out}");
    assert_eq!(
        (told["common_name"].as_str(), told["warnings"].as_array().map(Vec::len)),
        (Some("web.example.test"), Some(0))
    );
    assert!(told["renew_after"].as_str() < told["not_after"].as_str(), "{out}");
    assert_eq!(err, "");
    let sans = desk.told("10.0.0.7.pem", &["-ext", "subjectAltName"]);
    for name in [
        "DNS:web.example.test",
        "DNS:b.example.test",
        "email:ops@example.test",
        "IP Address:10.0.0.7",
        "IP Address:10.0.0.8",
        "IP Address:2001:DB8:0:0:0:0:0:7",
        "URI:spiffe://example.test/web",
    ] {
        assert!(sans.contains(name), "{name}: {sans}");
    }
    assert_verifies(desk.folder(), "ca.pem", "10.0.0.7.pem");
    assert_same_key(desk.folder(), "10.0.0.7-key.pem", "10.0.0.7.pem");
    // If the role ignores the names of the CSR, the body has them.
    let role =
        json!({ "allow_any_name": true, "key_type": "any", "use_csr_sans": false, "use_csr_common_name": false });
    desk.post("pki/roles/body", role).await;
    let (_, err) = desk.run(&["issue", "body.example.test", "10.0.0.9", "--role", "body"]);
    let sans = desk.told("body.example.test.pem", &["-ext", "subjectAltName"]);
    assert!(sans.contains("DNS:body.example.test") && sans.contains("IP Address:10.0.0.9"), "{sans}");
    assert_eq!(err, "");
    assert!(
        desk.refused(&["issue", "web.example.test:8443"])
            .contains("is not a DNS name, an IP address, a URI or an e-mail address")
    );
}

#[actix_web::test]
async fn issue_supports_other_key_types_and_existing_csrs() {
    let desk = Desk::new();
    desk.post("pki/roles/any", json!({ "allow_any_name": true, "key_type": "any" })).await;
    for (kind, bits, says) in
        [("rsa", "2048", "rsaEncryption"), ("ec", "384", "(384 bit)"), ("ed25519", "0", "ED25519")]
    {
        let name = format!("{kind}.example.test");
        desk.run(&["issue", &name, "--role", "any", "--key-type", kind, "--key-bits", bits]);
        let certificate = format!("{name}.pem");
        let key = format!("{name}-key.pem");
        assert!(desk.told(&certificate, &["-text"]).contains(says), "{kind}");
        assert_same_key(desk.folder(), &key, &certificate);
        assert_verifies(desk.folder(), "ca.pem", &certificate);
        assert_eq!(desk.mode(&key), 0o600);
    }
    // The role wants another key type: the error names the flag.
    assert!(desk.refused(&["issue", "rsa2.example.test", "--key-type", "rsa"]).contains("--key-type"));
    // Without `--key-type`, the key follows the role, which defaults to RSA.
    desk.post("pki/roles/usual", json!({ "allow_any_name": true, "key_bits": 3072 })).await;
    desk.run(&["issue", "usual.example.test", "--role", "usual"]);
    assert!(desk.told("usual.example.test.pem", &["-text"]).contains("(3072 bit)"));
    desk.run(&["issue", "server.example.test", "--server-key"]);
    assert_same_key(desk.folder(), "server.example.test-key.pem", "server.example.test.pem");
    // A key elsewhere: no key file is written or read.
    let new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"];
    openssl(desk.folder(), &[&new[..], &["/CN=own.example.test", "-keyout", "own.key", "-out", "own.csr"]].concat());
    let (out, _) = desk.run(&["issue", "--csr", "own.csr"]);
    assert!(!out.contains("key:") && !desk.path("own.example.test-key.pem").exists(), "{out}");
    assert_same_key(desk.folder(), "own.key", "own.example.test.pem");
    std::fs::write(desk.path("bad.csr"), "no request").unwrap();
    assert!(desk.refused(&["issue", "--csr", "bad.csr"]).contains("bad.csr: csr: "));
    // A role with `no_store` cannot repeat a response: the request has no idempotency key.
    desk.post("pki/roles/nothing", json!({ "allow_any_name": true, "key_type": "any", "no_store": true })).await;
    desk.run(&["issue", "kept-nowhere.example.test", "--role", "nothing"]);
}

/// A mount `below` with an intermediate of the root in `pki`; it has no certificate but its own.
async fn intermediate(desk: &Desk) {
    desk.post("sys/mounts/below", json!({ "type": "pki" })).await;
    let csr =
        desk.post("below/intermediate/generate/internal", json!({ "common_name": "Below", "key_type": "ec" })).await;
    let body = json!({ "csr": csr["csr"], "common_name": "Below", "ttl": "200h" });
    let signed = desk.post("pki/root/sign-intermediate", body).await;
    desk.post("below/intermediate/set-signed", json!({ "certificate": signed["certificate"] })).await;
    desk.post("below/roles/web", json!({ "allow_any_name": true, "key_type": "any", "ttl": "24h" })).await;
}

#[actix_web::test]
async fn issue_below_intermediate_writes_verifiable_chain() {
    let desk = Desk::new();
    intermediate(&desk).await;
    let (_, err) = desk.run(&["issue", "web.example.test", "--mount", "below", "--role", "web"]);
    assert_eq!(err, "");
    assert_eq!((desk.count("web.example.test.pem"), desk.count("ca.pem")), (2, 2));
    assert_verifies(desk.folder(), "ca.pem", "web.example.test.pem");
    // A client that trusts only the root, with the chain that a server sends.
    let root = desk.dev.client().with_token("").get("pki/ca/pem").await.text;
    std::fs::write(desk.path("root.pem"), root).unwrap();
    let shown =
        ["verify", "-x509_strict", "-CAfile", "root.pem", "-untrusted", "web.example.test.pem", "web.example.test.pem"];
    assert!(openssl(desk.folder(), &shown).contains("OK"));
    let issue = ["issue", "web.example.test", "--mount", "below", "--role", "web"];
    for (chain, count) in [("none", 1), ("full", 3)] {
        desk.run(&[&issue[..], &["--chain", chain, "--existing", "replace"]].concat());
        assert_eq!(desk.count("web.example.test.pem"), count, "{chain}");
    }
    // A token without access to the root's mount: a warning names the missing root.
    std::fs::write(desk.path("token"), format!("{}\n", desk.token(SIGN_BELOW).await)).unwrap();
    std::fs::create_dir(desk.path("narrow")).unwrap();
    let mut command = desk.command(&issue);
    let (well, _, err) = ran(command.args(["--out", "narrow", "--token-file", "token"]).env_remove("SIGNET_TOKEN"));
    assert!(well && err.contains("warning: the mount has no root certificate above"), "{err}");
}

#[actix_web::test]
async fn warnings_of_the_server_are_shown() {
    let desk = Desk::new();
    desk.post("pki/roles/long", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "200h" })).await;
    desk.post("sys/mounts/pki/tune", json!({ "max_lease_ttl": "100h" })).await;
    let long = ["--role", "long"];
    let (_, err) = desk.run(&[&["issue", "long.example.test"], &long[..]].concat());
    assert!(err.starts_with("warning: ttl: the role's ttl, 200h, is above the mount's max_lease_ttl"), "{err}");
    let (out, err) = desk.run(&[&["issue", "longer.example.test", "--json"], &long[..]].concat());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert!(told["warnings"][0].as_str().unwrap().starts_with("ttl: ") && err.is_empty(), "{out}");
}

#[test]
fn existing_flag_rejects_retains_or_replaces_files() {
    let desk = Desk::new();
    let issue = ["issue", "web.example.test"];
    let [keep, replace] = ["keep", "replace"].map(|word| [&issue[..], &["--existing", word]].concat());
    desk.run(&keep);
    let first = (desk.text("web.example.test.pem"), desk.text("web.example.test-key.pem"));
    assert!(desk.refused(&issue).contains("exists and is not overwritten"));
    let (out, _) = desk.run(&keep);
    assert!(out.contains("is kept"), "{out}");
    assert_eq!((desk.text("web.example.test.pem"), desk.text("web.example.test-key.pem")), first);
    // A missing certificate is issued for the existing key.
    std::fs::remove_file(desk.path("web.example.test.pem")).unwrap();
    desk.run(&keep);
    assert_eq!(desk.text("web.example.test-key.pem"), first.1);
    assert_same_key(desk.folder(), "web.example.test-key.pem", "web.example.test.pem");
    assert_ne!(desk.text("web.example.test.pem"), first.0);
    // Files are replaced atomically: another inode, the mode of an existing key file, no other file left.
    let key = desk.path("web.example.test-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let inode = std::fs::metadata(&key).unwrap().ino();
    desk.run(&replace);
    assert_ne!(desk.text("web.example.test-key.pem"), first.1);
    assert_ne!(std::fs::metadata(&key).unwrap().ino(), inode);
    assert_eq!(desk.mode("web.example.test-key.pem"), 0o640);
    assert_same_key(desk.folder(), "web.example.test-key.pem", "web.example.test.pem");
    assert_eq!(std::fs::read_dir(desk.folder()).unwrap().count(), 3);
    // A certificate without its key is rejected, and so is a key that does not match.
    std::fs::remove_file(&key).unwrap();
    assert!(desk.refused(&keep).contains("exists without its key"));
    desk.run(&["issue", "other.example.test"]);
    std::fs::copy(desk.path("other.example.test-key.pem"), &key).unwrap();
    assert!(desk.refused(&keep).contains("is not the key of"));
}

#[test]
fn renew_replaces_due_certificates_and_runs_the_command() {
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "10.0.0.7", "ops@example.test"]);
    let file = "web.example.test.pem";
    let key = "web.example.test-key.pem";
    let first = desk.serial(file);
    let first_key = desk.text(key);
    let sans = desk.told(file, &["-ext", "subjectAltName"]);
    let exec = ["--exec", "openssl x509 -in web.example.test.pem -noout -serial >> ran; test -z \"$SIGNET_TOKEN\""];
    let (out, _) = desk.run(&[&["renew", file], &exec[..]].concat());
    assert!(out.contains("to be renewed at"), "{out}");
    assert_eq!((desk.serial(file), desk.path("ran").exists()), (first.clone(), false));
    // `--before` covers the certificate's whole lifetime.
    let (out, err) = desk.run(&[&["renew", file, "--before", "72h"], &exec[..]].concat());
    assert!(out.contains("renewed, valid until") && err.is_empty(), "{out}{err}");
    assert_ne!(desk.serial(file), first);
    assert_ne!(desk.text(key), first_key);
    assert_eq!(desk.told(file, &["-ext", "subjectAltName"]), sans);
    assert_verifies(desk.folder(), "ca.pem", file);
    assert_same_key(desk.folder(), key, file);
    assert_eq!(desk.mode(key), 0o600);
    assert_eq!(desk.text("ran").trim(), desk.serial(file), "after the files were in place");
    let kept = desk.text(key);
    desk.run(&["renew", file, "--force", "--reuse-key"]);
    assert_eq!(desk.text(key), kept);
    assert_same_key(desk.folder(), key, file);
    // A crash between the two replacements leaves a mismatched pair, which is due immediately.
    desk.run(&["issue", "other.example.test"]);
    std::fs::copy(desk.path("other.example.test-key.pem"), desk.path(key)).unwrap();
    let (out, _) = desk.run(&["renew", file, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["renewed"], true, "{out}");
    assert_same_key(desk.folder(), key, file);
    assert_eq!(std::fs::read_dir(desk.folder()).unwrap().count(), 6, "nothing is left behind");
}

#[test]
fn failed_exec_command_is_reported_and_run_again() {
    let desk = Desk::with_certificate();
    let file = "web.example.test.pem";
    let first = desk.serial(file);
    let text = desk.refused(&["renew", file, "--force", "--exec", "exit 7"]);
    assert!(text.contains("--exec: exit status: 7; the certificates are in place"), "{text}");
    let second = desk.serial(file);
    assert_ne!(second, first);
    desk.run(&["renew", file, "--exec", "echo again > ran"]);
    assert_eq!((desk.text("ran").trim(), desk.serial(file)), ("again", second));
    desk.run(&["renew", file, "--exec", "echo once more > ran"]);
    assert_eq!(desk.text("ran").trim(), "again");
    let text = desk.refused(&["renew", file, "--force", "--exec", "sleep 60", "--exec-timeout", "200ms"]);
    assert!(text.contains("took too long"), "{text}");
    // A file that cannot be renewed does not stop the others.
    let text = desk.refused(&["renew", "gone.pem", file, "--force"]);
    assert!(text.contains("FILE: file does not exist: gone.pem") && desk.serial(file) != first, "{text}");
}

#[actix_web::test]
async fn renew_adds_new_root_to_the_trust_file() {
    let desk = Desk::with_certificate();
    let old = desk.text("web.example.test.pem");
    std::fs::write(desk.path("old.pem"), old).unwrap();
    desk.post("pki/root/rotate/internal", json!({ "common_name": "Next root", "key_type": "ec", "ttl": "700h" })).await;
    desk.post("pki/root/replace", json!({ "default": "next" })).await;
    let (_, err) = desk.run(&["renew", "web.example.test.pem", "--force"]);
    assert!(err.contains("ca.pem: a new authority was added"), "{err}");
    assert_eq!(desk.count("ca.pem"), 2);
    assert_verifies(desk.folder(), "ca.pem", "web.example.test.pem");
    assert_verifies(desk.folder(), "ca.pem", "old.pem");
}

#[test]
fn signal_during_exec_ends_the_command() {
    let desk = Desk::with_certificate();
    let exec = "echo $$ > begun; sleep 60; echo done > over";
    for signal in [Signal::TERM, Signal::HUP] {
        let _ = std::fs::remove_file(desk.path("begun"));
        // Under `nohup`, the command would ignore SIGHUP.
        let mut renew = signet_by("env", &["--default-signal=HUP"]);
        renew.args(["renew", "web.example.test.pem", "--force", "--exec", exec]).current_dir(desk.folder());
        renew.env("SIGNET_ADDR", &desk.dev.address).env("SIGNET_TOKEN", &desk.dev.token);
        let mut renew = renew.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the command", || desk.path("begun").metadata().is_ok_and(|found| found.len() > 0));
        let shell: i32 = desk.text("begun").trim().parse().unwrap();
        kill_process(Pid::from_child(&renew), signal).unwrap();
        assert_eq!(renew.wait().unwrap().code(), Some(1), "{signal:?}");
        wait_until("its end", || !Path::new(&format!("/proc/{shell}")).exists());
        assert!(desk.path(".web.example.test.pem.exec").exists(), "it is run again");
    }
    assert!(!desk.path("over").exists());
}

#[test]
fn address_may_end_with_api_prefix() {
    let desk = Desk::new();
    for (end, name) in [("/v1", "a.example.test"), ("/v1/", "b.example.test"), ("/", "c.example.test")] {
        let address = format!("{}{end}", desk.dev.address);
        desk.run(&["issue", name, "--address", &address]);
        desk.run(&["status", "--address", &address]);
    }
}

#[test]
fn too_long_file_name_is_reported() {
    let desk = Desk::new();
    let name = format!("{}.example.test", vec!["a".repeat(59); 4].join("."));
    assert!(name.len() < 254);
    let error = desk.refused(&["issue", &name]);
    assert!(error.contains("cannot be written (the file's name is too long)"), "{error}");
}

struct Service(Killed);

impl Service {
    fn start(desk: &Desk, words: &[&str]) -> Self {
        Self::of(desk, &mut desk.command(&[&["renew", "web.example.test.pem", "--service"], words].concat()))
    }

    /// Starts a command whose log is the file `log` of the desk.
    fn of(desk: &Desk, command: &mut Command) -> Self {
        let log = std::fs::File::create(desk.path("log")).unwrap();
        Self(Killed(command.stdout(Stdio::null()).stderr(log).spawn().unwrap()))
    }

    fn terminate(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn service_renews_when_due() {
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "--ttl", "4s"]);
    let ran = || std::fs::read_to_string(desk.path("ran")).unwrap_or_default().lines().count();
    let exec = "openssl x509 -in web.example.test.pem -noout -serial >> ran";
    let service = Service::start(&desk, &["--ttl", "4s", "--exec", exec]);
    wait_until("three renewals", || ran() >= 3);
    service.terminate();
    let serials: std::collections::BTreeSet<String> = desk.text("ran").lines().map(str::to_owned).collect();
    assert_eq!(serials.len(), desk.text("ran").lines().count(), "each is another one");
    assert_verifies(desk.folder(), "ca.pem", "web.example.test.pem");
    assert_same_key(desk.folder(), "web.example.test-key.pem", "web.example.test.pem");
}

#[test]
fn service_with_clock_ahead_renews_with_growing_pauses() {
    let Some(clock) = FakeClock::new() else { return };
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "--ttl", "1h"]);
    clock.step("+2d");
    let mut command = desk.command(&["renew", "web.example.test.pem", "--service", "--ttl", "1h"]);
    let service = Service::of(&desk, command.envs(clock.environment()));
    wait_until("the third pause", || desk.text("log").contains("seconds=4"));
    service.terminate();
    let log = desk.text("log");
    assert!(["seconds=1", "seconds=2", "this machine's clock"].iter().all(|part| log.contains(part)), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("seconds=")).count(), 3, "{log}");
}

#[test]
fn service_retries_failed_renewal_and_command() {
    let desk = Desk::new();
    desk.run(&["issue", "web.example.test", "--ttl", "20s"]);
    // The server is unavailable, and the certificate is due.
    let double = Double::start(&[&response("503 Busy", "{}")]);
    let service = Service::start(&desk, &["--address", &double.address]);
    wait_until("three tries", || double.heard().len() >= 3);
    service.terminate();
    assert!(desk.text("log").contains("not renewed; retrying"), "{}", desk.text("log"));
    // The command fails and is run again without another renewal.
    let exec = "test -e ready && openssl x509 -in web.example.test.pem -noout -serial >> ran";
    let service = Service::start(&desk, &["--ttl", "72h", "--exec", exec]);
    wait_until("a failure", || desk.text("log").contains("--exec failed; retrying"));
    let serial = desk.serial("web.example.test.pem");
    std::fs::write(desk.path("ready"), "").unwrap();
    wait_until("the command", || desk.path("ran").exists());
    service.terminate();
    assert_eq!((desk.text("ran").trim(), desk.serial("web.example.test.pem")), (serial.as_str(), serial.clone()));
}

/// Asserts that a service exits on SIGTERM long before its waits would time out.
fn leaves(mut service: Service) {
    kill_process(Pid::from_child(&service.0), Signal::TERM).unwrap();
    wait_until("the end of the service", || service.0.try_wait().unwrap().is_some());
    assert!(service.0.wait().unwrap().success());
}

#[test]
fn a_signal_ends_a_service_that_waits_for_a_server() {
    let desk = Desk::with_certificate();
    let serial = desk.serial("web.example.test.pem");
    std::fs::copy(desk.path("web.example.test.pem"), desk.path("b.pem")).unwrap();
    std::fs::copy(desk.path("web.example.test-key.pem"), desk.path("b-key.pem")).unwrap();
    // Accepts the request and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let service = Service::start(&desk, &["b.pem", "--before", "72h", "--address", &address]);
    let (mut socket, _) = silent.accept().unwrap();
    assert!(socket.read(&mut [0; 1024]).unwrap() > 0);
    leaves(service);
    assert_eq!(desk.serial("web.example.test.pem"), serial);
}

#[test]
fn service_stop_waits_for_command_or_ends_it_for_rerun() {
    let desk = Desk::with_certificate();
    let note = || desk.path(".web.example.test.pem.exec").exists();
    let run = |command: &str| {
        let _ = std::fs::remove_file(desk.path("pid"));
        // `--before` covers the certificate's whole lifetime, so it is due.
        let service = Service::start(&desk, &["--before", "72h", "--exec", command]);
        wait_until("the command", || std::fs::read_to_string(desk.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
        service
    };
    let endless = run("echo $$ > pid; exec sleep 300");
    leaves(endless);
    assert!(note(), "it is to be run again");
    let pid = Pid::from_raw(desk.text("pid").trim().parse().unwrap()).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_err(), "it is still there");
    desk.run(&["renew", "web.example.test.pem", "--exec", "true"]);
    assert!(!note());
    let short = run("echo $$ > pid; until test -e go; do sleep 0.05; done; touch done");
    kill_process(Pid::from_child(&short.0), Signal::TERM).unwrap();
    std::fs::write(desk.path("go"), "").unwrap();
    leaves(short);
    assert!(desk.path("done").exists() && !note());
}

#[test]
fn excessive_retry_after_is_treated_as_plain_503() {
    let desk = Desk::with_certificate();
    for seconds in ["18446744073709551615", "99999999999999999999999", "31536000"] {
        let double = Double::start(&[&response(&format!("503 Busy\r\nRetry-After: {seconds}"), "{}")]);
        for words in [&["status"][..], &["renew", "web.example.test.pem", "--force"], &["who", "0a"]] {
            let output = desk.command(words).env("SIGNET_ADDR", &double.address).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && text.contains("status 503"), "{words:?} {seconds}: {text}");
        }
        let service = Service::start(&desk, &["--before", "72h", "--address", &double.address]);
        wait_until("a rest", || desk.text("log").contains("not renewed; retrying"));
        let log = desk.text("log");
        let line = log.lines().find(|line| line.contains("not renewed; retrying")).unwrap();
        let rest: u64 = line.split("seconds=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        assert!((3600..=4320).contains(&rest), "{log}");
        leaves(service);
    }
}

#[test]
fn role_or_mount_with_path_traversal_is_rejected_locally() {
    let double = Double::start(&[&denied()]);
    let folder = tempfile::tempdir().unwrap();
    let issue = ["issue", "x.example.test"];
    let renew = ["renew", "x.example.test.pem"];
    let import = ["import", "."];
    let revoke = ["revoke", "0a:0b"];
    for (command, arguments, named) in [
        (&issue, &["--mount", "sys", "--role", "../rotate"][..], "--mount"),
        (&issue, &["--role", "../../sys/rotate"], "--role"),
        (&issue, &["--role", "..\\rotate"], "--role"),
        (&issue, &["--role", "%2e%2e"], "--role"),
        (&issue, &["--role", "a?b"], "--role"),
        (&issue, &["--mount", "sys/rotate?x="], "--mount"),
        (&issue, &["--mount", ""], "--mount"),
        (&renew, &["--mount", "pki/../sys"], "--mount"),
        (&renew, &["--role", "a#b"], "--role"),
        (&revoke, &["--mount", "pki/../sys"], "--mount"),
        (&import, &["--mount", "pki//a"], "--mount"),
        (&import, &["--mount", "."], "--mount"),
    ] {
        let (well, text) = run_at(&double, folder.path(), &[&command[..], arguments].concat());
        assert!(!well && text.contains(&format!("for '{named} ")), "{arguments:?}: {text}");
    }
    assert!(double.heard().is_empty(), "{:?}", double.heard());
}

#[test]
fn token_argument_overrides_environment_for_every_command() {
    let double = Double::start(&[&denied()]);
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in [("one", "of-file-one\n"), ("two", "of-file-two\n"), ("empty", "\n"), ("odd", "a\nb\n")] {
        std::fs::write(folder.path().join(name), token).unwrap();
    }
    let authority =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a"];
    openssl(folder.path(), &[&authority[..], &["-keyout", "a-key.pem", "-out", "a.pem"]].concat());
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::rename(folder.path().join("a.pem"), folder.path().join("folder/a.pem")).unwrap();
    let run = |words: &[&str], arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = signet();
        command.args(words).args(arguments).current_dir(folder.path());
        let (well, _, err) = ran(command.env("SIGNET_ADDR", &double.address).envs(variables.iter().copied()));
        (well, err)
    };
    let commands = [&["issue", "x.example.test"][..], &["import", "folder"], &["explain", "accessor", "GET", "x"]];
    let both = [("SIGNET_TOKEN", "variable"), ("SIGNET_TOKEN_FILE", "two")];
    for words in commands {
        for (arguments, variables, (token, place)) in [
            (&["--token", "argument"][..], &both[..], ("argument", "--token")),
            (&["--token-file", "one"], &both, ("of-file-one", "one")),
            (&[], &both, ("of-file-two", "two")),
            (&[], &both[..1], ("variable", "SIGNET_TOKEN")),
        ] {
            let (_, text) = run(words, arguments, variables);
            assert_eq!(header(double.heard().last().unwrap(), "x-service-token"), token, "{words:?}");
            let is_named = words[0] == "explain" || text.contains(&format!("the token is from {place})"));
            assert!(is_named, "{words:?}: {text}");
        }
        let heard = double.heard().len();
        for (arguments, variables, says) in [
            (&["--token", "a", "--token-file", "one"][..], &[][..], "cannot be used with"),
            (&["--token", ""], &both, "--token: must hold a token"),
            (&["--token-file", "empty"], &both, "--token-file: empty: must hold a token"),
            (&["--token-file", "odd"], &both, "--token-file: odd: invalid characters"),
            (&[], &[("SIGNET_TOKEN_FILE", "absent")], "SIGNET_TOKEN_FILE: file does not exist: absent"),
            (&[], &[], "SIGNET_TOKEN: not set"),
        ] {
            let (well, text) = run(words, arguments, variables);
            assert!(!well && text.contains(says), "{words:?} {arguments:?}: {text}");
        }
        assert_eq!(double.heard().len(), heard, "{words:?}");
    }
}

#[test]
fn exec_output_goes_to_stderr_not_stdout() {
    let desk = Desk::with_certificate();
    let (out, err) = desk.run(&["renew", "web.example.test.pem", "--force", "--json", "--exec", "echo reloaded"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["renewed"], true, "{out}");
    assert_eq!(err, "reloaded\n");
}

#[test]
fn closed_stdout_does_not_fail_commands() {
    let desk = Desk::with_certificate();
    let file = "web.example.test.pem";
    let explain = ["explain", "-", "GET", "pki/roles"];
    for words in [&["who", file][..], &["who", file, "--json"], &["status"], &["status", "--json"], &explain] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let (input, mut token) = std::io::pipe().unwrap();
        token.write_all(desk.dev.token.as_bytes()).unwrap();
        drop(token);
        let output = desk.command(words).stdin(input).stdout(write).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[actix_web::test]
async fn who_command_shows_caller_time_and_role_in_readable_mounts() {
    let desk = Desk::new();
    intermediate(&desk).await;
    desk.post("sys/policies/acl/web", json!({ "policy": SIGN_BELOW })).await;
    let made = json!({ "policies": ["web"], "display_name": "build server" });
    let made = desk.dev.client().post("auth/token/create", made).await.body["auth"].clone();
    let token = made["client_token"].as_str().unwrap();
    let issued = desk.run_as(token, &["issue", "web.example.test", "--mount", "below", "--role", "web"]);
    assert!(issued.0, "{issued:?}");
    desk.run(&["issue", "other.example.test"]);
    // By file name, and by serial as openssl prints it.
    let serial = desk.serial("web.example.test.pem");
    for asked in ["web.example.test.pem", serial.as_str()] {
        let (out, _) = desk.run(&["who", asked]);
        let told = |name: &str| out.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!(told("requested by"), "token-build-server", "{out}");
        assert_eq!([told("by role"), told("of mount"), told("revoked")], ["web", "below/", "no"]);
        assert!(told("signed by").contains(" (") && told("at ").ends_with('Z'), "{out}");
    }
    let told = desk.json(&["who", "other.example.test.pem"]);
    assert_eq!([&told["mount"], &told["role"], &told["common_name"]], ["pki/", "dev", "other.example.test"]);
    assert_eq!(told["requester"]["accessor_hash"].as_str().unwrap().len(), 64);
    let serial = told["serial_number"].as_str().unwrap();
    desk.post("pki/revoke", json!({ "serial_number": serial, "reason": "keyCompromise" })).await;
    let (out, _) = desk.run(&["who", serial]);
    assert!(out.contains("(keyCompromise)"), "{out}");
    // The record has neither accessor nor token.
    for secret in ["accessor", "client_token"] {
        assert!(!out.contains(made[secret].as_str().unwrap()), "{secret}");
    }
    assert!(desk.refused(&["who", "0a:0b"]).contains("0a:0b: no record found (below/, pki/ were searched)"));
    assert!(desk.refused(&["who", "nonsense"]).contains("SERIAL: must be hexadecimal digits"));
    // The right to issue does not include the right to read records.
    let (well, _, err) = desk.run_as(token, &["who", "web.example.test.pem"]);
    assert!(!well && err.contains("the token may not read below/cert-record/+"), "{err}");
    let reads = "path \"below/cert-record/+\" { capabilities = [\"read\"] }";
    desk.post("sys/policies/acl/web", json!({ "policy": reads })).await;
    let (well, _, err) = desk.run_as(token, &["who", "web.example.test.pem"]);
    assert!(well, "{err}");
}

#[actix_web::test]
async fn renew_without_role_takes_role_and_mount_from_record() {
    let desk = Desk::new();
    intermediate(&desk).await;
    let file = "web.example.test.pem";
    desk.run(&["issue", "web.example.test", "--mount", "below", "--role", "web"]);
    let first = desk.serial(file);
    let (_, err) = desk.run(&["renew", file, "--force"]);
    assert_eq!(err, "");
    assert_ne!(desk.serial(file), first);
    assert!(desk.told(file, &["-issuer"]).ends_with("Below"), "{}", desk.told(file, &["-issuer"]));
    // A token that may not read the record: the default role, and a message that says so.
    std::fs::write(desk.path("token"), desk.token(SIGN_BELOW).await).unwrap();
    let renew = ["renew", file, "--token-file", "token"];
    let note = "the default is used, role dev of mount pki: give --role and --mount";
    let (out, err) = desk.run(&renew);
    assert!(out.contains("to be renewed at") && err.contains(&format!("warning: {file}: --role: not given")), "{err}");
    assert!(err.contains(note), "{err}");
    let second = desk.serial(file);
    let err = desk.refused(&[&renew[..], &["--force"]].concat());
    assert!(err.contains("pki/sign/dev: status 403") && err.contains(note), "{err}");
    assert_eq!(desk.serial(file), second);
    let (_, err) = desk.run(&[&renew[..], &["--force", "--role", "web", "--mount", "below"]].concat());
    assert_ne!(desk.serial(file), second);
    assert!(!err.contains("--role"), "{err}");
}

#[actix_web::test]
async fn revoke_takes_file_or_serial_and_prints_time() {
    let desk = Desk::with_certificate();
    desk.run(&["issue", "other.example.test"]);
    let serial = desk.serial("other.example.test.pem");
    let web = ["revoke", "web.example.test.pem", "--reason", "keyCompromise"];
    for (revoke, reason) in [(&web[..], "keyCompromise"), (&["revoke", serial.as_str()], "unspecified")] {
        let (out, err) = desk.run(revoke);
        let record = desk.json(&["who", revoke[1]]);
        let [of, at] = ["serial_number", "revocation_time"].map(|name| record[name].as_str().unwrap());
        assert_eq!((out, err), (format!("{of}: revoked at {at}\n"), String::new()));
        assert_eq!(record["revocation_reason"], reason);
    }
    // From a file, a certificate is revoked that is not stored.
    desk.post("pki/roles/loose", json!({ "allow_any_name": true, "key_type": "any", "no_store": true })).await;
    desk.run(&["issue", "loose.example.test", "--role", "loose"]);
    let loose = desk.serial("loose.example.test.pem");
    let err = desk.refused(&["revoke", &loose]);
    assert!(err.contains("not found") && err.contains("(check --mount"), "{err}");
    desk.run(&["revoke", "loose.example.test.pem"]);
    desk.run(&["issue", "short.example.test", "--ttl", "1s"]);
    let err = desk.refused(&["revoke", "short.example.test.pem"]);
    assert!(err.contains(": not revoked (certificate already expired"), "{err}");
    let err = desk.refused(&["revoke", "web.example.test.pem", "--reason", "certificateHold"]);
    assert!(err.contains("reason: must be unspecified, keyCompromise"), "{err}");
    let token = desk.token(SIGN_DEV).await;
    let err = desk.refused(&["revoke", &serial, "--token", &token]);
    assert!(err.contains("status 403") && err.contains("the token is from --token)"), "{err}");
}

#[actix_web::test]
async fn explain_of_own_token_needs_no_permission() {
    let desk = Desk::new();
    let token = desk.token(SIGN_DEV).await;
    let (input, mut sent) = std::io::pipe().unwrap();
    writeln!(sent, "{token}").unwrap();
    drop(sent);
    let mut explain = desk.command(&["explain", "-", "POST", "pki/sign/dev"]);
    let (_, out, err) = ran(explain.env("SIGNET_TOKEN", &token).stdin(input));
    assert!(out.starts_with("allowed: "), "{out}{err}");
}

#[actix_web::test]
async fn status_shows_setup_next_expiries_and_problems() {
    let desk = Desk::new();
    let (out, _) = desk.run(&["status"]);
    for part in [
        ", ready",
        "embedded, sealed by",
        "policies: root",
        "issues by CN=Signet dev root",
        "1 roles",
        "ends next",
        "CRL with 0 entries",
        "root token",
        "nothing is wrong",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.lines().count() <= 24, "one screen: {out}");
    assert!(!out.contains("certificates that expire next"), "there are none, and the root is none: {out}");
    // An issuer that expires soon and a mount without issuer are problems.
    desk.post("sys/mounts/empty", json!({ "type": "pki" })).await;
    desk.post("sys/mounts/short", json!({ "type": "pki" })).await;
    desk.post("short/root/generate/internal", json!({ "common_name": "Short", "key_type": "ec", "ttl": "48h" })).await;
    let output = desk.output(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let wrong: Vec<&str> = told["wrong"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(wrong.iter().any(|text| text.starts_with("empty/: has no issuer")), "{wrong:?}");
    assert!(wrong.iter().any(|text| text.starts_with("short/: issuer CN=Short ends in 4")), "{wrong:?}");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert_eq!(told["leaves_end_next"], json!([]));
    // An authority without a role gets a note, unless another authority is below it.
    let notes = |told: &Value| {
        told["notes"].as_array().unwrap().iter().any(|note| note == "short/: has no role (POST short/roles/NAME)")
    };
    assert!(notes(&told), "{told}");
    let csr =
        desk.post("empty/intermediate/generate/internal", json!({ "common_name": "Below", "key_type": "ec" })).await;
    let signed = json!({ "csr": csr["csr"], "common_name": "Below", "ttl": "24h" });
    let signed = desk.post("short/root/sign-intermediate", signed).await;
    desk.post("empty/intermediate/set-signed", json!({ "certificate": signed["certificate"] })).await;
    let below: Value = serde_json::from_slice(&desk.output(&["status", "--json"]).stdout).unwrap();
    assert!(!notes(&below) && below["leaves_end_next"] == json!([]), "{below}");
    for (name, ttl) in [("late.test", "9h"), ("soon.test", "2h"), ("gone.test", "1h")] {
        let made = desk.post("pki/issue/dev", json!({ "common_name": name, "ttl": ttl })).await;
        if name == "gone.test" {
            desk.post("pki/revoke", json!({ "serial_number": made["serial_number"] })).await;
        }
    }
    let out = String::from_utf8(desk.output(&["status"]).stdout).unwrap();
    let (_, leaves) = out.split_once("\ncertificates that expire next\n").unwrap();
    let leaves: Vec<&str> = leaves.lines().take_while(|line| line.starts_with("  ")).collect();
    assert!(leaves[0].contains("  pki/: soon.test ") && leaves[0].ends_with(" min)"), "{leaves:?}");
    assert!(leaves[1].contains("  pki/: late.test ") && leaves.len() == 2, "{leaves:?}");
    let first = told["ends_next"][0]["at"].as_str().unwrap();
    assert!(told["ends_next"].as_array().unwrap().iter().all(|end| first <= end["at"].as_str().unwrap()));
    // What the token may not read is reported as not visible, not as absent.
    let (well, out, _) = desk.run_as(&desk.token(SIGN_DEV).await, &["status"]);
    assert!(well, "{out}");
    let hidden = "not visible to this token: pki/certs/detailed, pki/config/urls, pki/roles, sys/audit";
    assert!(out.contains("roles not visible") && out.contains(hidden), "{out}");
    assert!(!out.contains("empty/"), "{out}");
}

#[actix_web::test]
async fn status_notes_root_tokens_other_than_the_callers() {
    let desk = Desk::new();
    let note = |token: &str| {
        let (_, out, _) = desk.run_as(token, &["status"]);
        out.lines().find(|line| line.contains("root tokens that never expire")).map(|line| line.trim().to_owned())
    };
    assert_eq!(note(&desk.dev.token), None);
    desk.post("auth/token/create", json!({ "policies": ["root"] })).await;
    let told = note(&desk.dev.token).unwrap_or_default();
    assert!(told.starts_with("other root tokens that never expire: 1; revoke"), "{told}");
    let reader = desk.token("path \"sys/internal/status\" { capabilities = [\"read\"] }").await;
    let told = note(&reader).unwrap_or_default();
    assert!(told.starts_with("root tokens that never expire: 2; revoke"), "{told}");
}
