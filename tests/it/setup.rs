//! `signet setup`: the real program in an empty folder and the resulting server, checked with openssl and curl; also
//! repeated and failed setups, an external root, a database, and the renewal of the listener's certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use signet::http::secrets::all_routes;
use signet::http::secrets::route::{Route, RouteAccess, operation_name};

use crate::cluster;
use crate::process::{openssl, ran, refused, run, shell, signet, token_of, write_private};
use crate::serve::Served;
use crate::support::{wait_until, with};

const CHECK: [&str; 3] = ["verify", "-x509_strict", "-CAfile"];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = signet();
        command.args(words).args(["--config", "signet.toml"]).current_dir(self.0.path()).env_remove("SIGNET_LOG");
        command
    }

    fn setup(&self, more: &[&str]) -> String {
        self.again(&[&["--listen", "127.0.0.1:0", "--domain", "example.test"], more].concat())
    }

    fn again(&self, flags: &[&str]) -> String {
        let (out, err) = run(self.command(&["setup"]).args(flags));
        assert_eq!(err, "", "{out}");
        out
    }

    fn refused(&self, flags: &[&str]) -> String {
        refused(self.command(&["setup"]).args(flags))
    }

    fn serve(&self) -> Served {
        Served::start(&mut self.command(&["serve"]), &self.path("log"))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn admin(&self) -> String {
        self.text("admin-token").trim().to_owned()
    }

    /// Sends a request over TLS, trusting the root file of the setup. Returns status and body.
    fn ask(&self, served: &Served, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut command = Command::new("curl");
        command.args(["-sS", "--noproxy", "*", "--cacert", "root-ca.pem", "-w", "\n%{http_code}", "-X", method]);
        command.arg("-H").arg(format!("X-Service-Token: {token}")).arg(served.url(&format!("v1/{path}")));
        if method == "PATCH" {
            command.args(["-H", "Content-Type: application/merge-patch+json"]);
        }
        if let Some(body) = body {
            command.arg("-d").arg(body.to_string());
        }
        let (out, _) = run(command.current_dir(self.0.path()));
        let (body, status) = out.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    fn shown(&self, served: &Served) -> String {
        let connect = ["s_client", "-connect", served.socket(), "-CAfile", "root-ca.pem", "-verify_return_error"];
        std::fs::write(self.path("shown.pem"), openssl(self.0.path(), &connect)).unwrap();
        openssl(self.0.path(), &["x509", "-in", "shown.pem", "-noout", "-serial"]).trim().to_owned()
    }

    /// Mode and content of every file in the folder, without the store's files.
    fn files(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
                let path = entry.path();
                let data = entry.metadata().unwrap();
                let name = entry.file_name().into_string().unwrap();
                if data.is_dir() {
                    folders.push(path);
                } else if !name.starts_with("signet.db") && !name.starts_with("signet.lock") {
                    found.insert(path.clone(), (data.permissions().mode() & 0o777, std::fs::read(&path).unwrap()));
                }
            }
        }
        found
    }
}

/// Paths not granted by the administrator's policy: audit devices, and another form of a read that `default` grants.
const WITHHELD: [&str; 2] = ["auth/token/lookup-self", "sys/audit/x"];

fn sample_path(kind: &str, pattern: &str) -> String {
    let mount = match kind {
        "system" => "sys".to_owned(),
        "pki" | "identity" | "cubbyhole" => kind.to_owned(),
        _ => format!("auth/{kind}"),
    };
    let segments = pattern.split('/').map(|part| if part.starts_with([':', '*']) { "x" } else { part });
    std::iter::once(mount.as_str()).chain(segments).collect::<Vec<_>>().join("/")
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[actix_web::test]
async fn setup_in_empty_folder_creates_ca_that_issues_over_tls() {
    let place = Place::new();
    let public = ["--public-url", "http://pki.example.test", "--public-listen", "127.0.0.1:0"];
    let out = place.setup(&[&["--organization", "Example Ltd"][..], &public].concat());
    for made in
        ["the seal key", "the root", "Issuing CA", "the role server", "the policy admin", "which the server renews"]
    {
        assert!(out.lines().any(|line| line.starts_with("made: ") && line.contains(made)), "{made}: {out}");
    }
    assert!(out.contains("signet serve --config signet.toml") && out.contains("--mount pki --role server"), "{out}");
    assert!(out.contains("    signet operator new-root-token --config signet.toml\n"), "{out}");
    let modes = ["seal.key", "admin-token", "data/tls-key.pem", "data", "signet.toml", "root-ca.pem"];
    assert_eq!(modes.map(|name| mode(&place.path(name))), [0o600, 0o600, 0o600, 0o700, 0o600, 0o644]);
    let token = place.admin();
    assert!(!out.contains(&token), "the token is in its file alone");
    assert!(!out.contains("an earlier one"), "this token is the first: {out}");
    assert!(place.command(&["check"]).output().unwrap().status.success());
    let lines = "public_listen = \"127.0.0.1:0\"\npublic_url = \"http://pki.example.test\"\n";
    assert!(place.text("signet.toml").contains(lines), "{}", place.text("signet.toml"));

    let served = place.serve();
    place.shown(&served);
    let (_, itself) = place.ask(&served, &token, "GET", "auth/token/lookup-self", None);
    let itself = &itself["data"];
    assert_eq!((&itself["orphan"], &itself["policies"]), (&json!(true), &json!(["admin", "default"])), "{itself}");
    assert_eq!(itself["period"], json!(768 * 3600));
    // Changes one field of a role, as the pages describe.
    let names = json!({ "allowed_domains": ["localhost", "second.example.test"] });
    assert_eq!(place.ask(&served, &token, "PATCH", "pki/roles/listener", Some(names)).0, 200);
    let outlives = |name: &str, days: u32| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-in", name, "-noout", "-checkend"]).arg((days * 86_400).to_string());
        command.current_dir(place.0.path()).output().unwrap().status.success()
    };
    assert!(outlives("root-ca.pem", 3649) && !outlives("root-ca.pem", 3651));
    assert!(outlives("data/tls.pem", 29) && !outlives("data/tls.pem", 31));

    // The administrator issues, with a complete chain.
    let issue = |name: &str| {
        let mut command = signet();
        command.args(["issue", name, "--mount", "pki", "--role", "server", "--out"]).arg(place.0.path());
        command.args(["--address", served.url("").trim_end_matches('/'), "--cacert"]).arg(place.path("root-ca.pem"));
        command.env("SIGNET_TOKEN", &token);
        command
    };
    run(&mut issue("www.example.test"));
    let verified = openssl(place.0.path(), &[&CHECK[..], &["ca.pem", "www.example.test.pem"]].concat());
    assert_eq!(verified.trim(), "www.example.test.pem: OK");
    let text = openssl(place.0.path(), &["x509", "-in", "www.example.test.pem", "-noout", "-text"]);
    assert!(text.contains("URI:http://pki.example.test/v1/pki/issuer/") && text.contains("/crl/der"), "{text}");
    assert!(refused(&mut issue("www.elsewhere.test")).contains("elsewhere.test"));

    // The policy grants daily operations, but not everything.
    for (method, path, body, status) in [
        ("POST", "sys/mounts/other", Some(json!({ "type": "pki" })), 204),
        ("POST", "other/root/generate/internal", Some(json!({ "common_name": "Other" })), 200),
        ("DELETE", "sys/mounts/other", None, 204),
        ("POST", "sys/policy/old", Some(json!({ "policy": "path \"pki/ca\" { capabilities = [\"read\"] }" })), 204),
        ("GET", "sys/policy/old", None, 200),
        ("DELETE", "sys/policy/old", None, 204),
        ("POST", "sys/config/cors", Some(json!({ "allowed_origins": "https://ui.example.test" })), 204),
        ("LIST", "sys/compromised-keys", None, 404),
        ("POST", "pki/roles/web", Some(json!({ "allow_any_name": true })), 200),
        (
            "POST",
            "sys/policies/acl/web",
            Some(json!({ "policy": "path \"pki/issue/web\" { capabilities = [\"update\"] }" })),
            204,
        ),
        ("POST", "auth/token/create-orphan", Some(json!({ "policies": ["web"] })), 200),
        ("POST", "auth/token/create", Some(json!({ "policies": ["root"] })), 400),
        ("POST", "auth/token/renew-self", None, 200),
        ("LIST", "auth/token/accessors", None, 200),
        ("GET", "pki-root/cert/ca", None, 200),
        ("POST", "cubbyhole/own", Some(json!({ "a": "b" })), 204),
        ("POST", "sys/audit/second", Some(json!({ "type": "file" })), 403),
    ] {
        let (got, body) = place.ask(&served, &token, method, path, body);
        assert_eq!(got, status, "{method} {path}: {body}");
    }
    let routes: Vec<_> =
        all_routes().filter(|(_, route)| [RouteAccess::Token, RouteAccess::Sudo].contains(&route.access)).collect();
    let paths: Vec<String> = routes.iter().map(|(kind, route)| sample_path(kind, route.pattern)).collect();
    let (_, found) = place.ask(&served, &token, "POST", "sys/capabilities-self", Some(json!({ "paths": paths })));
    let lacks = |(path, (_, route)): &(&String, &(&str, &Route))| {
        let has = |word: &str| found["data"][path].as_array().unwrap().contains(&json!(word));
        !has(operation_name(route.operation)) || (route.access == RouteAccess::Sudo && !has("sudo"))
    };
    let withheld: BTreeSet<&str> = paths.iter().zip(&routes).filter(lacks).map(|(path, _)| path.as_str()).collect();
    assert_eq!(withheld, BTreeSet::from(WITHHELD));
    let asked = json!({ "policies": ["issue-server"], "period": "24h" });
    let (_, made) = place.ask(&served, &token, "POST", "auth/token/create-orphan", Some(asked));
    let client = made["auth"]["client_token"].as_str().unwrap();
    let wanted = json!({ "common_name": "a.example.test" });
    assert_eq!(place.ask(&served, client, "POST", "pki/issue/server", Some(wanted.clone())).0, 200);
    assert_eq!(place.ask(&served, client, "POST", "pki/issue/listener", Some(wanted)).0, 403);

    // The setup has revoked its own root token: the new one is the only one.
    let root = &token_of(&mut place.command(&["operator", "new-root-token"]));
    let (_, accessors) = place.ask(&served, root, "LIST", "auth/token/accessors", None);
    let roots = accessors["data"]["keys"].as_array().unwrap().iter().filter(|accessor| {
        let body = json!({ "accessor": accessor });
        let (_, found) = place.ask(&served, root, "POST", "auth/token/lookup-accessor", Some(body));
        found["data"]["policies"] == json!(["root"])
    });
    assert_eq!(roots.count(), 1);
    assert!(!served.log().contains("this store is new"), "{}", served.log());
    served.terminate();
}

#[test]
fn setup_retains_existing_files_and_objects() {
    let place = Place::new();
    place.setup(&[]);
    let before = place.files();
    let out = place.again(&[]);
    assert!(!out.contains("made: "), "{out}");
    for kept in [
        "the configuration",
        "the mount pki-root",
        "the root in",
        "the issuer in pki",
        "the role server",
        "the role listener",
        "the policy admin",
        "administrator's token",
        "listener's certificate",
    ] {
        assert!(out.lines().any(|line| line.starts_with("kept: ") && line.contains(kept)), "{kept}: {out}");
    }
    assert_eq!(place.files(), before);
    // Without the flag, the example's domain comes from the role.
    assert!(out.contains("    signet issue www.example.test --mount pki --role server\n"), "{out}");
    // Only the missing files are created again.
    for name in ["admin-token", "data/tls.pem", "data/tls-key.pem", "root-ca.pem"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let out = place.again(&[]);
    assert_eq!(out.lines().filter(|line| line.starts_with("made: ")).count(), 3, "{out}");
    assert!(out.contains("no parent; an earlier one remains valid until it expires)"), "{out}");
    assert_eq!(place.text("root-ca.pem").as_bytes(), before[&place.path("root-ca.pem")].1);
    assert!(place.text("admin-token").as_bytes() != before[&place.path("admin-token")].1);
    // A certificate without its key, or a key without its certificate, is an error.
    for (lost, left) in [("data/tls.pem", "data/tls-key.pem"), ("data/tls-key.pem", "data/tls.pem")] {
        std::fs::rename(place.path(lost), place.path("away")).unwrap();
        let error = place.refused(&[]);
        let left = place.path(left).display().to_string();
        assert!(
            error.contains(&format!("{left}: exists")) && error.contains("neither is of use without the other"),
            "{error}"
        );
        std::fs::rename(place.path("away"), place.path(lost)).unwrap();
    }
    for name in ["admin-token", "root-ca.pem"] {
        std::fs::write(place.path(name), "").unwrap();
    }
    let out = place.again(&[]);
    assert_eq!(out.lines().filter(|line| line.starts_with("made: ")).count(), 2, "{out}");
    assert_eq!(place.text("root-ca.pem").as_bytes(), before[&place.path("root-ca.pem")].1);
    assert_eq!((place.admin().is_empty(), mode(&place.path("admin-token"))), (false, 0o600));
    // The file may contain other certificates than the root.
    let others = place.text("data/tls.pem") + &place.text("root-ca.pem");
    std::fs::write(place.path("root-ca.pem"), &others).unwrap();
    assert!(place.again(&[]).contains("kept: root-ca.pem"));
    assert_eq!(place.text("root-ca.pem"), others);
    // Nothing is created if a later file could not be written.
    for name in ["admin-token", "data/tls.pem", "data/tls-key.pem"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let error = place.refused(&["--admin-token-file", "absent/token"]);
    assert!(error.contains("--admin-token-file: absent is not a folder"), "{error}");
    assert!(!place.path("data/tls.pem").exists() && !place.path("data/tls-key.pem").exists());
    place.again(&[]);
    // The setup needs the store for itself.
    let served = place.serve();
    assert!(place.refused(&[]).contains("in use by another signet process: stop that process first"));
    served.terminate();
}

#[test]
fn setup_repeats_equal_options_and_names_all_others_at_once() {
    let place = Place::new();
    let files =
        ["--data-dir", "data/", "--seal-key-file", "seal.key", "--tls-dir", "data", "--audit-file", "audit.log"];
    let listeners = ["--metrics-listen", "127.0.0.1:0", "--public-listen", "127.0.0.1:0"];
    let names = ["--public-url", "http://pki.example.test", "--name", "localhost,::1"];
    let flags = [&files[..], &listeners, &names].concat();
    place.setup(&flags);
    let out = place.setup(&flags);
    assert!(!out.contains("made: "), "{out}");
    place.again(&["--name", "0:0:0:0:0:0:0:1", "--name", "localhost", "--data-dir", "./data"]);
    let before = place.files();
    let other = ["--listen", "127.0.0.1:9", "--name", "localhost", "--public-url", "http://other.test"];
    let error = place.refused(&[&other[..], &["--database-url", "postgres://signet:hunter2@db/signet"]].concat());
    for line in [
        "--listen: signet.toml has listen = \"127.0.0.1:0\"\n",
        "--name: signet.toml has tls_renew.names = \"::1, localhost\"\n",
        "--public-url: signet.toml has public_url = \"http://pki.example.test\"\n",
        "--database-url: signet.toml has another store\n",
        "change the settings in signet.toml, or omit these options",
    ] {
        assert!(error.contains(line), "{line}: {error}");
    }
    assert!(!error.contains("hunter2"), "{error}");
    assert_eq!(place.files(), before);
    let place = Place::new();
    place.setup(&[]);
    let error = place.refused(&["--metrics-listen", "127.0.0.1:0", "--audit-file", "audit.log"]);
    for line in
        ["--metrics-listen: signet.toml has no metrics_listen\n", "--audit-file: signet.toml has no audit file_path\n"]
    {
        assert!(error.contains(line), "{line}: {error}");
    }
}

#[test]
fn setup_audit_file_records_the_setup_itself() {
    let place = Place::new();
    place.setup(&["--audit-file", "audit.log", "--metrics-listen", "127.0.0.1:0"]);
    let log = place.text("audit.log");
    for path in ["pki-root/root/generate/internal", "pki/intermediate/set-signed", "auth/token/create-orphan"] {
        assert!(log.contains(&format!("\"path\":\"{path}\"")), "{path}: {log}");
    }
    assert!(!log.contains(&place.admin()));
    let text = place.text("signet.toml");
    let audit = format!("\naudit = [{{ type = \"file\", file_path = \"{}\" }}]\n", place.path("audit.log").display());
    assert!(text.contains(&audit) && text.contains("\nmetrics_listen = \"127.0.0.1:0\"\n"), "{text}");
    assert!(place.command(&["check"]).output().unwrap().status.success());
}

#[test]
fn setup_public_url_without_a_listener_prints_a_note() {
    let url = ["--public-url", "http://pki.example.test"];
    let note = "note: --public-url: this server has no public_listen (--public-listen), so another server must serve";
    let place = Place::new();
    for out in [place.setup(&url), place.again(&url)] {
        assert!(out.contains(note), "{out}");
    }
    let out = place.again(&[]);
    assert!(!out.contains("note: "), "{out}");
    let out = Place::new().setup(&[&url[..], &["--public-listen", "127.0.0.1:0"]].concat());
    assert!(!out.contains("note: "), "{out}");
}

#[test]
fn setup_example_name_does_not_repeat_www() {
    let place = Place::new();
    let (out, _) = run(&mut place.command(&["setup", "--listen", "127.0.0.1:0", "--domain", "www.example.test"]));
    assert!(out.contains("    signet issue www.example.test --mount pki --role server\n"), "{out}");
}

#[test]
fn setup_admin_policy_protects_the_mount_of_the_root() {
    let place = Place::new();
    place.setup(&[]);
    let served = place.serve();
    let token = place.admin();
    let ask = |method: &str, path: &str, body: Option<Value>| place.ask(&served, &token, method, path, body);
    for (method, path) in [
        ("POST", "roles/any"),
        ("POST", "issue/any"),
        ("POST", "sign/any"),
        ("POST", "sign-verbatim"),
        ("POST", "sign-verbatim/any"),
        ("POST", "external-policy/issue"),
        ("POST", "issuer/root/issue/any"),
        ("POST", "issuer/root/sign/any"),
        ("POST", "issuer/root/sign-verbatim"),
        ("POST", "issuer/root/external-policy/issue"),
        ("DELETE", "root"),
        ("DELETE", "issuer/root"),
        ("DELETE", "key/default"),
    ] {
        let (status, body) = ask(method, &format!("pki-root/{path}"), Some(json!({})));
        assert_eq!(status, 403, "{method} {path}: {body}");
    }
    assert_eq!(ask("DELETE", "sys/mounts/pki-root", None).0, 403);
    // Reading, CRLs, and the renewal of the intermediate.
    for (method, path) in [
        ("GET", "pki-root/issuer/root"),
        ("LIST", "pki-root/issuers"),
        ("LIST", "pki-root/keys"),
        ("GET", "pki-root/config/crl"),
        ("POST", "pki-root/crl/rotate"),
        ("GET", "sys/mounts/pki-root"),
        ("GET", "sys/mounts/pki-root/tune"),
    ] {
        let (status, body) = ask(method, path, None);
        assert_eq!(status, 200, "{method} {path}: {body}");
    }
    assert_eq!(ask("LIST", "pki-root/roles", None).0, 404, "visible, and empty");
    let wanted = json!({ "common_name": "Next Issuing CA", "key_type": "ec" });
    let (_, made) = ask("POST", "pki/issuers/generate/intermediate/internal", Some(wanted));
    let wanted = json!({ "csr": made["data"]["csr"], "common_name": "Next Issuing CA", "ttl": "10h" });
    let (status, signed) = ask("POST", "pki-root/root/sign-intermediate", Some(wanted));
    assert_eq!(status, 200, "{signed}");
    let (status, body) =
        ask("POST", "pki-root/revoke", Some(json!({ "serial_number": signed["data"]["serial_number"] })));
    assert_eq!(status, 200, "{body}");
    // The mount that issues is not restricted.
    assert_eq!(ask("POST", "pki/roles/any", Some(json!({ "allow_any_name": true }))).0, 200);
    served.terminate();
}

#[test]
fn setup_rejects_remains_of_an_earlier_installation() {
    let place = Place::new();
    place.setup(&[]);
    let data = place.path("data");
    std::fs::rename(&data, place.path("away")).unwrap();
    let flags = ["--domain", "example.test"];
    let refuses = |what: &str| {
        let before = place.files();
        let error = place.refused(&flags);
        assert!(error.contains(what) && error.contains("is its volume mounted?"), "{what}: {error}");
        assert_eq!(place.files(), before);
    };
    refuses("root-ca.pem: exists from an earlier setup, but there is no store in");
    std::fs::create_dir(&data).unwrap();
    refuses("root-ca.pem: exists from an earlier setup, but there is no store in");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0);
    let migrated = place.command(&["migrate"]).output().unwrap();
    assert!(migrated.status.success() && data.join("signet.db").exists());
    refuses("root-ca.pem: exists from an earlier setup, but there is no authority in");
    std::fs::rename(place.path("root-ca.pem"), place.path("old-root.pem")).unwrap();
    refuses("admin-token: exists from an earlier setup, but there is no authority in");
    std::fs::rename(place.path("admin-token"), place.path("old-token")).unwrap();
    let out = place.again(&flags);
    assert!(out.contains("made: root-ca.pem") && out.contains("made: admin-token"), "{out}");

    // A restored file of another store is not accepted.
    std::fs::rename(place.path("old-token"), place.path("admin-token")).unwrap();
    let out = place.again(&[]);
    assert!(out.contains("left: admin-token (not a valid token of this store: move the file away"), "{out}");
    std::fs::rename(place.path("old-root.pem"), place.path("root-ca.pem")).unwrap();
    let error = place.refused(&[]);
    assert!(error.contains("root-ca.pem: does not contain the root of the issuer in pki, "), "{error}");
    std::fs::write(place.path("root-ca.pem"), "no certificate").unwrap();
    assert!(place.refused(&[]).contains("root-ca.pem: does not contain the root of the issuer"));
}

#[test]
fn setup_uses_an_existing_configuration() {
    let place = Place::new();
    let [data, pem, key] =
        ["data", "tls/own.pem", "tls/own-key.pem"].map(|name| place.path(name).display().to_string());
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata_dir = \"{data}\"\ntls_certificate_file = \"{pem}\"\ntls_key_file = \"{key}\"\n\
         public_url = \"http://pki.example.test\"\n[tls_renew]\nmount = \"issuing\"\nrole = \"own\"\nnames = [\"localhost\", \"127.0.0.1\"]\n"
    );
    std::fs::write(place.path("signet.toml"), &text).unwrap();
    assert!(place.refused(&[]).contains("--domain: must be given"));
    let out = place.again(&["--domain", "example.test"]);
    let urls = "made: the URLs of issuing, below http://pki.example.test/v1/issuing";
    assert!(
        out.contains("made: the mount issuing") && out.contains("made: the role own") && out.contains(urls),
        "{out}"
    );
    assert_eq!(place.text("signet.toml"), text);
    assert_eq!(mode(&place.path("data/seal.key")), 0o600);
    let mut served = place.serve();
    place.shown(&served);
    served.send_sigterm();
    let mut rest = String::new();
    served.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "there is an authority, and nothing more to say");
    served.wait();
}

#[test]
fn setup_by_root_is_refused_where_another_user_owns_the_folders() {
    if !rustix::process::geteuid().is_root() {
        return crate::crash::left_out("only root can write to folders of other users");
    }
    for owned in ["data", "."] {
        let place = Place::new();
        std::fs::create_dir_all(place.path(owned)).unwrap();
        std::os::unix::fs::chown(place.path(owned), Some(4711), Some(4712)).unwrap();
        let error = place.refused(&["--listen", "127.0.0.1:0", "--domain", "example.test"]);
        assert!(error.contains("setpriv --reuid 4711 --regid 4712"), "{owned}: {error}");
        assert!(place.files().is_empty(), "{owned}: {:?}", place.files().keys());
    }
}

#[test]
fn setup_requires_role_flag_if_only_another_role_exists() {
    let place = Place::new();
    place.setup(&["--role", "web"]);
    let error = place.refused(&[]);
    assert!(
        error.contains("--role: pki has no role server; it has web: specify one of them (--role web), or"),
        "{error}"
    );
    assert!(place.again(&["--role", "web"]).contains("kept: the role web"));
    assert!(place.again(&["--domain", "other.test"]).contains("made: the role server for other.test"));
}

#[test]
fn invalid_setup_is_rejected_and_leaves_no_files() {
    let flags = ["--domain", "example.test"];
    for (file, flags, problem) in [
        ("admin-token", &flags[..], "admin-token: exists, and is never overwritten"),
        ("root-ca.pem", &flags, "root-ca.pem: exists, and is never overwritten"),
        (
            "data/signet.db",
            &flags,
            "data has a store, but signet.toml does not exist: give its configuration with --config",
        ),
        ("data/other", &flags, "is not empty: give its configuration with --config"),
        ("mine", &[], "--domain: must be given"),
        ("mine", &["--domain", "example.test", "--listen", "nowhere"], "--listen"),
        ("mine", &["--domain", "example.test", "--name", "a b"], "tls_renew.names: must be host names"),
        ("mine", &["--domain", "example.test", "--root-ttl", "1h"], "--intermediate-ttl: must not be longer"),
        (
            "mine",
            &["--domain", "example.test", "--role", "listener"],
            "--role: listener is the role of this server's own",
        ),
        ("mine", &["--domain", "example.test", "--role", "a/b"], "--role: must consist of letters"),
        (
            "mine",
            &["--domain", "example.test", "--admin-token-file", "absent/token"],
            "--admin-token-file: absent is not a folder: create it first",
        ),
        (
            "mine",
            &["--domain", "example.test", "--csr", "absent/own.csr"],
            "--csr: absent is not a folder: create it first",
        ),
        (
            "mine",
            &["--domain", "example.test", "--audit-file", "absent/audit.log"],
            "--audit-file: absent is not a folder: create it first",
        ),
        (
            "mine",
            &["--domain", "example.test", "--mount", "sys"],
            "--mount: cannot mount \"sys/\": reserved for the system; choose another path",
        ),
        ("mine", &["--domain", "example.test", "--root-mount", "identity/pki"], "--root-mount: cannot mount"),
        ("mine", &["--domain", "example.test", "--root-mount", "pki/root"], "--root-mount: must be another mount"),
        ("seal.key", &flags, "must not be open to group or others"),
    ] {
        let place = Place::new();
        std::fs::create_dir(place.path("data")).unwrap();
        std::fs::write(place.path(file), "mine").unwrap();
        std::fs::set_permissions(place.path(file), std::fs::Permissions::from_mode(0o644)).unwrap();
        let before = place.files();
        let error = place.refused(flags);
        assert!(error.contains(problem), "{file}: {error}");
        assert_eq!(place.files(), before, "{file}");
    }
    let place = Place::new();
    write_private(place.path("seal.key"), "5a".repeat(32));
    assert!(place.setup(&[]).contains("kept: "));
    assert_eq!(place.text("seal.key"), "5a".repeat(32));
}

#[test]
fn an_outside_authority_signs_the_intermediate() {
    let place = Place::new();
    let out = place.setup(&["--csr", "intermediate.csr", "--public-url", "http://pki.example.test"]);
    assert!(out.contains("made: intermediate.csr") && out.contains("--signed FILE"), "{out}");
    assert!(!place.path("data/tls.pem").exists() && !place.path("root-ca.pem").exists());
    let request = place.text("intermediate.csr");
    assert!(place.again(&[]).contains("kept: intermediate.csr"));
    assert_eq!(place.text("intermediate.csr"), request);
    std::fs::remove_file(place.path("intermediate.csr")).unwrap();
    assert!(place.again(&[]).contains("made: intermediate.csr"));
    let run = |arguments: &[&str]| openssl(place.0.path(), arguments);
    let key = |csr: &str| run(&["req", "-in", csr, "-noout", "-pubkey"]);
    std::fs::write(place.path("first.csr"), &request).unwrap();
    assert_eq!(key("intermediate.csr"), key("first.csr"));

    let root = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"];
    run(&[&root[..], &["-subj", "/CN=Outside", "-keyout", "outside-key.pem", "-out", "outside.pem"]].concat());
    // The request names the extensions, so the outside authority only copies them.
    std::fs::write(place.path("ca.ext"), "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n").unwrap();
    let sign = ["x509", "-req", "-in", "intermediate.csr", "-CA", "outside.pem", "-CAkey", "outside-key.pem"];
    let named = ["-subj", "/CN=Named Elsewhere", "-copy_extensions", "copy"];
    run(&[&sign[..], &named, &["-days", "1825", "-extfile", "ca.ext", "-out", "signed.pem"]].concat());
    let extensions = run(&["x509", "-in", "signed.pem", "-noout", "-ext", "basicConstraints,keyUsage"]);
    let extensions = extensions.split_whitespace().collect::<Vec<_>>().join(" ");
    for extension in ["Basic Constraints: critical CA:TRUE", "Key Usage: critical Certificate Sign, CRL Sign"] {
        assert!(extensions.contains(extension), "{extension}: {extensions}");
    }
    let error = place.refused(&["--signed", "outside.pem"]);
    assert!(error.contains("--signed: holds no certificate of the key in pki"), "{error}");
    // Without its root the issuer works, but the file for clients is not written.
    let error = place.refused(&["--signed", "signed.pem", "--public-url", "http://other.test"]);
    assert!(error.contains("--public-url: signet.toml has public_url = \"http://pki.example.test\""), "{error}");
    let out = place.again(&["--signed", "signed.pem"]);
    assert!(out.contains("the listener's certificate, which the server renews"), "{out}");
    // The issuer's name is the one that the CA chose.
    assert!(out.contains("made: CN=Named Elsewhere (the issuer in pki)"), "{out}");
    assert!(
        out.contains("left: root-ca.pem (the root certificate for clients): the root is not known, CN=Outside: cont"),
        "{out}"
    );
    assert!(!place.path("root-ca.pem").exists());
    let other = ["-subj", "/CN=Other", "-keyout", "other-key.pem", "-out", "other.pem"];
    run(&[&root[..], &other].concat());
    let error = place.refused(&["--signed", "other.pem"]);
    assert!(error.contains("other.pem: must hold the certificates above the issuer, CN=Outside"), "{error}");
    std::fs::write(place.path("chain.pem"), place.text("signed.pem") + &place.text("outside.pem")).unwrap();
    let out = place.again(&["--signed", "chain.pem"]);
    assert!(out.contains("made: the chain of the issuer, up to CN=Outside"), "{out}");
    assert!(place.again(&["--signed", "chain.pem"]).contains("kept: the chain of the issuer: chain.pem is not needed"));
    assert_eq!(place.text("root-ca.pem").trim(), place.text("outside.pem").trim());
    let served = place.serve();
    place.shown(&served);
    // The public URL is in the issued certificates.
    let leaf = Some(json!({ "common_name": "www.example.test" }));
    let (_, issued) = place.ask(&served, &place.admin(), "POST", "pki/issue/server", leaf);
    std::fs::write(place.path("leaf.pem"), issued["data"]["certificate"].as_str().unwrap()).unwrap();
    let leaf = run(&["x509", "-in", "leaf.pem", "-noout", "-ext", "crlDistributionPoints,authorityInfoAccess"]);
    for start in ["CA Issuers - URI:", "OCSP - URI:", "URI:"] {
        assert!(leaf.contains(&format!("{start}http://pki.example.test/v1/pki/")), "{start}: {leaf}");
    }
    assert_eq!(place.ask(&served, &place.admin(), "GET", "sys/mounts/pki-root", None).0, 400, "no root here");
    let (_, issuers) = place.ask(&served, &place.admin(), "LIST", "pki/issuers", None);
    assert_eq!(issuers["data"]["keys"].as_array().unwrap().len(), 2, "the other one was not left: {issuers}");
    served.terminate();
    let out = place.again(&[]);
    assert!(!out.contains("made: ") && out.contains("kept: the issuer in pki"), "{out}");
}

#[test]
fn a_database_is_set_up_too() {
    let place = Place::new();
    let database = cluster::shared().database();
    place.setup(&["--database-url", &database.url()]);
    let served = place.serve();
    place.shown(&served);
    assert_eq!(place.ask(&served, &place.admin(), "GET", "pki/roles/server", None).0, 200);
    served.terminate();
}

#[test]
fn setup_of_another_node_creates_only_its_certificate() {
    let first = Place::new();
    let second = Place::new();
    let database = cluster::shared().database();
    first.setup(&["--database-url", &database.url(), "--role", "web"]);
    assert!(
        second
            .refused(&["--listener-only"])
            .contains("--config: file does not exist: signet.toml: --listener-only needs")
    );
    let [here, there] = [&first, &second].map(|place| place.0.path().display().to_string());
    std::fs::write(second.path("signet.toml"), first.text("signet.toml").replace(&here, &there)).unwrap();
    assert!(second.refused(&["--listener-only"]).contains("restore the seal key"));
    assert!(!second.path("seal.key").exists(), "another key would open nothing");
    for name in ["seal.key", "root-ca.pem"] {
        std::fs::copy(first.path(name), second.path(name)).unwrap();
    }
    // An empty database is probably the wrong one.
    let text = second.text("signet.toml");
    let other = cluster::shared().database();
    std::fs::write(second.path("signet.toml"), text.replace(&database.url(), &other.url())).unwrap();
    let error = second.refused(&["--listener-only"]);
    assert!(error.contains("no store in the database: does database_url name the right one?"), "{error}");
    std::fs::remove_file(second.path("root-ca.pem")).unwrap();
    let error = second.refused(&["--listener-only"]);
    assert!(error.contains("no store in the database: does database_url name the right one?"), "{error}");
    std::fs::copy(first.path("root-ca.pem"), second.path("root-ca.pem")).unwrap();
    std::fs::write(second.path("signet.toml"), text).unwrap();
    let served = first.serve();
    let out = second.again(&["--listener-only"]);
    let made: Vec<&str> = out.lines().filter(|line| line.starts_with("made: ")).collect();
    assert!(
        made.len() == 1 && made[0].contains("tls.pem (the listener's certificate, which the server renews)"),
        "{out}"
    );
    assert!(!second.path("admin-token").exists());
    let node = second.serve();
    assert!(second.shown(&node) != first.shown(&served));
    assert_eq!(second.ask(&node, &first.admin(), "GET", "pki/roles/web", None).0, 200);
    node.terminate();
    served.terminate();
}

#[test]
fn serve_names_the_command_that_replaces_a_lost_certificate() {
    let place = Place::new();
    place.setup(&[]);
    for name in ["data/tls.pem", "data/tls-key.pem"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let error = refused(&mut place.command(&["serve"]));
    let command = "signet setup --config signet.toml --listener-only";
    assert!(error.contains("tls.pem: put it back") && error.trim_end().ends_with(command), "{error}");
    place.again(&["--listener-only"]);
    place.serve().terminate();
}

#[test]
fn setup_with_closed_stdout_completes() {
    let setup = |place: &Place, out: std::process::Stdio| {
        let flags = ["--listen", "127.0.0.1:0", "--domain", "example.test"];
        let (well, _, error) = ran(place.command(&["setup"]).args(flags).stdout(out));
        (well, error)
    };
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(setup(&place, writer.into()), (true, String::new()));
    for name in ["data/tls.pem", "admin-token", "root-ca.pem"] {
        assert!(place.path(name).exists(), "{name}");
    }
    place.serve().terminate();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (well, error) = setup(&Place::new(), full.into());
    assert!(!well && error.contains("standard output: cannot be written (no storage space)"), "{error}");
}

#[test]
fn setup_prompts_for_missing_flags_on_a_terminal() {
    let place = Place::new();
    let answers = "\nhere\n127.0.0.1:0\nlocalhost, 127.0.0.1\nAsked Ltd\n\nexample.test, other.test\noutsid\n\nhttp://pki.example.test\n8080\n127.0.0.1:0\n";
    std::fs::write(place.path("answers"), answers).unwrap();
    let script = format!("script -qec '{} setup' /dev/null < answers", env!("CARGO_BIN_EXE_signet"));
    let (out, _) = run(shell(&script).current_dir(place.0.path()));
    assert!(
        out.contains("Domains for which certificates may be issued: ") && out.contains("Asked Ltd Root CA"),
        "{out}"
    );
    // A repeated question names the rule.
    for rule in [
        "must be an address and a port, such as 127.0.0.1:8200",
        "must be an address and a port, such as 0.0.0.0:8080",
        "must be at least one domain, such as example.com",
        "must be here or outside",
    ] {
        assert_eq!(out.matches(rule).count(), 1, "{out}");
    }
    let lines = "public_listen = \"127.0.0.1:0\"\npublic_url = \"http://pki.example.test\"\n";
    assert!(place.text("signet.toml").contains(lines), "{}", place.text("signet.toml"));
    let served = place.serve();
    let (_, role) = place.ask(&served, &place.admin(), "GET", "pki/roles/server", None);
    assert_eq!(role["data"]["allowed_domains"], json!(["example.test", "other.test"]));
    served.terminate();
}

fn another(place: &Place, served: &Served, before: &str) -> String {
    wait_until("a renewal", || place.shown(served) != before);
    place.shown(served)
}

#[test]
fn listener_certificate_renewal_survives_failure_and_crash() {
    let place = Place::new();
    place.setup(&[]);
    let audit = place.path("audit.log");
    let text = place.text("signet.toml");
    let device = format!("audit = [{{ type = \"file\", file_path = \"{}\" }}]\n[tls_renew]", audit.display());
    let with_audit = text.replace("[tls_renew]", &device);
    std::fs::write(place.path("signet.toml"), with_audit).unwrap();
    let served = place.serve();
    let token = place.admin();
    let change_role = |served: &Served, change: Value| {
        let (_, read) = place.ask(served, &token, "GET", "pki/roles/listener", None);
        let role = with(read["data"].clone(), change);
        assert_eq!(place.ask(served, &token, "POST", "pki/roles/listener", Some(role)).0, 200);
    };
    // Lifetimes of seconds from here on. The first such certificate is installed by hand and read at the next start.
    change_role(&served, json!({ "ttl": "20s", "not_before_duration": "1s" }));
    let wanted = json!({ "common_name": "localhost", "ip_sans": "127.0.0.1", "private_key_format": "pkcs8" });
    let (_, by_hand) = place.ask(&served, &token, "POST", "pki/issue/listener", Some(wanted));
    let data = &by_hand["data"];
    let chain = format!("{}\n{}\n", data["certificate"].as_str().unwrap(), data["issuing_ca"].as_str().unwrap());
    std::fs::write(place.path("data/tls-key.pem"), data["private_key"].as_str().unwrap()).unwrap();
    std::fs::write(place.path("data/tls.pem"), chain).unwrap();
    let first = openssl(place.0.path(), &["x509", "-in", "data/tls.pem", "-noout", "-serial"]).trim().to_owned();
    let key = place.text("data/tls-key.pem");
    served.terminate();
    let served = place.serve();
    let second = another(&place, &served, &first);
    assert!(place.text("data/tls-key.pem") != key, "with a new key");
    assert_eq!(mode(&place.path("data/tls-key.pem")), 0o600);
    another(&place, &served, &second);
    let told = place.text("audit.log");
    let renewals = told.lines().filter(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["auth"]["display_name"] == "tls_renew" && line["request"]["path"] == "pki/issue/listener"
    });
    assert!(renewals.count() >= 4, "{told}");

    // If the role rejects the renewal, the server logs it, keeps its certificate, and renews once the role permits it.
    change_role(&served, json!({ "allow_ip_sans": false }));
    served.wait_for_log("the TLS certificate was not renewed: ");
    assert!(served.log().contains("retry_in_seconds"), "{}", served.log());
    served.terminate();
}

#[test]
fn interrupted_certificate_renewal_is_completed_at_start() {
    let place = Place::new();
    place.setup(&[]);
    let [old_key, certificate] = ["data/tls-key.pem", "data/tls.pem"].map(|name| place.text(name));
    // The files of the next renewal, created by another setup of the same authority.
    for name in ["data/tls-key.pem", "data/tls.pem"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    place.again(&[]);
    assert!(place.text("data/tls-key.pem") != old_key);
    std::fs::rename(place.path("data/tls.pem"), place.path("data/tls.pem.new")).unwrap();
    std::fs::write(place.path("data/tls.pem"), certificate).unwrap();
    let served = place.serve();
    place.shown(&served);
    assert!(
        served.log().contains("a renewal was interrupted; it is completed now")
            && !place.path("data/tls.pem.new").exists()
    );
    served.terminate();
}
