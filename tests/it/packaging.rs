//! `packaging/` without the Debian package: container, Compose installation, Helm chart and releases.

mod helm;
mod images;
mod release;

use std::io::{BufRead as _, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::cluster;
use crate::process::{openssl, refused, run, signet};
use crate::serve::Served;

/// The readiness check of orchestrators; the image contains no other program.
const HEALTH: [&str; 5] = ["CMD", "/usr/bin/signet", "health", "--config", "/etc/signet/signet.toml"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Parses a YAML file with the Python that tests/run installs.
fn yaml(file: &str) -> Value {
    documents(&std::fs::read_to_string(root().join(file)).unwrap()).remove(0)
}

/// Parses the documents of a YAML text, without empty ones.
fn documents(text: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; print(json.dumps([d for d in yaml.safe_load_all(sys.stdin) if d]))";
    let mut python = Command::new(root().join("target/peers/bin/python"));
    let mut python = python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|list| list.iter().map(|text| text.as_str().unwrap()).collect()).unwrap_or_default()
}

#[test]
fn compose_services_publish_on_loopback_with_minimal_rights() {
    let compose = yaml("packaging/compose/compose.yaml");
    let services = compose["services"].as_object().unwrap();
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, ["database", "grafana", "node1", "node2", "prometheus", "setup"]);
    for (name, service) in services {
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
        assert!(service["privileged"].is_null() && service["cap_add"].is_null(), "{name}");
        for volume in texts(&service["volumes"]) {
            let (source, rest) = volume.split_once(':').unwrap();
            if let Some(file) = source.starts_with('.').then(|| root().join("packaging/compose").join(source)) {
                // A node may change only its own audit file; the setup writes its results.
                let is_own = source == format!("./made/audit/{name}") || name == "setup" && source == "./made/signet";
                assert!(rest.ends_with(":ro") || is_own, "{name}: {volume}: of the host, and not to be changed");
                assert!(source.contains("/made/") || file.exists(), "{name}: {volume}");
            } else {
                assert!(compose["volumes"].get(source).is_some(), "{name}: {volume}");
            }
        }
    }
    assert_eq!(texts(&services["setup"]["profiles"]), ["setup"], "it runs when it is called by its name");
    for node in [&services["node1"], &services["node2"], &services["setup"]] {
        assert_eq!(node["read_only"], true);
        assert_eq!(texts(&node["cap_drop"]), ["ALL"]);
        assert_eq!(texts(&node["healthcheck"]["test"]), HEALTH);
        assert_eq!(texts(&node["security_opt"]), ["no-new-privileges:true"]);
    }
    assert_eq!(services["database"]["network_mode"], "none", "a socket is the only way to it");
}

#[test]
fn compose_mounts_dashboards_and_rules_at_configured_paths() {
    let compose = yaml("packaging/compose/compose.yaml");
    let mounted = |service: &str, source: &str, target: &Value| {
        let volume = format!("{source}:{}:ro", target.as_str().unwrap());
        assert!(texts(&compose["services"][service]["volumes"]).contains(&volume.as_str()), "{service}: {volume}");
    };
    let provider = &yaml("packaging/compose/grafana/dashboards/signet.yml")["providers"][0];
    mounted("grafana", "../../grafana/dashboards", &provider["options"]["path"]);
    let rules = &yaml("packaging/compose/prometheus.yml")["rule_files"];
    mounted("prometheus", "../../grafana/alerts.yml", &rules[0]);
    assert_eq!(rules.as_array().unwrap().len(), 1);
}

#[test]
fn container_is_unprivileged_and_contains_only_the_server() {
    let file = std::fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let (_, last) = file.rsplit_once("\nFROM ").unwrap();
    assert!(last.starts_with("gcr.io/distroless/"), "{last}");
    let user = last.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert!(user.split(':').all(|id| id.parse::<u32>().unwrap() > 0), "{user}");
    assert!(!last.contains("\nRUN ") && !last.contains("\nADD "), "{last}");
    assert!(
        last.contains(&format!("CMD {}\n", Value::from(HEALTH[1..].to_vec()).to_string().replace(',', ", "))),
        "{last}"
    );
    // The build context contains everything that the build copies.
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    for needed in ["src", "migrations", "benches", "load", "Cargo.lock", "build.rs", "packaging/stage", "LICENSE"] {
        assert!(ignored.lines().any(|line| line == format!("!{needed}")), "{needed}");
    }
    for line in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(root().join(line).exists(), "{line}");
    }
}

struct Composed(tempfile::TempDir);

impl Composed {
    /// Copies its files, with pinned images as by `packaging/pin-images`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["prepare", "signet.toml"] {
            std::fs::copy(root().join("packaging/compose").join(name), folder.path().join(name)).unwrap();
        }
        let text = std::fs::read_to_string(root().join("packaging/compose/compose.yaml")).unwrap();
        let pinned: String = text
            .lines()
            .map(|line| match line.trim().strip_prefix("image: ") {
                Some(image) if image.contains(':') && !image.contains('@') => {
                    format!("{line}@sha256:{}\n", "0".repeat(64))
                }
                _ => format!("{line}\n"),
            })
            .collect();
        std::fs::write(folder.path().join("compose.yaml"), pinned).unwrap();
        Self(folder)
    }

    fn prepare(&self) -> Output {
        Command::new(self.0.path().join("prepare")).output().unwrap()
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = signet();
        command.args(words).current_dir(self.0.path());
        command.envs(self.file("made/node.env").lines().map(|line| line.split_once('=').unwrap()));
        command
    }

    /// Adapts the prepared configuration to paths and ports of this machine.
    fn move_configuration(&self) {
        let made = self.0.path().join("made");
        let config = self.file("made/signet/signet.toml");
        let config = config.replace("/etc/signet", made.join("signet").to_str().unwrap());
        let config = config.replace("/var/log/signet", made.join("audit/node1").to_str().unwrap());
        let config = [8200, 8080, 8201]
            .iter()
            .fold(config, |config, port| config.replace(&format!("0.0.0.0:{port}"), "127.0.0.1:0"));
        std::fs::write(made.join("signet/signet.toml"), config).unwrap();
    }
}

#[test]
fn compose_prepare_creates_keys_certificates_and_valid_config() {
    let composed = Composed::new();
    let output = composed.prepare();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!composed.prepare().status.success(), "keys that are there are not replaced");
    for host in ["node1", "node2", "localhost"] {
        let names = ["-verify_hostname", host, "-CAfile", "made/signet/tls/ca.pem", "made/signet/tls/node.pem"];
        let verified = openssl(composed.0.path(), &[&["verify", "-x509_strict"], &names[..]].concat());
        assert_eq!(verified.trim(), "made/signet/tls/node.pem: OK");
    }
    let user = composed.file(".env");
    let user = user.trim().strip_prefix("SIGNET_USER=").unwrap();
    assert!(!user.starts_with("0:"), "{user}");
    composed.move_configuration();
    run(&mut composed.command(&["check", "--file-only", "--config", "made/signet/signet.toml"]));
}

#[test]
fn compose_prepare_names_images_without_a_digest() {
    let composed = Composed::new();
    let text = composed.file("compose.yaml");
    let (start, rest) = text.split_once("@sha256:").unwrap();
    let unpinned = start.lines().last().unwrap();
    std::fs::write(composed.0.path().join("compose.yaml"), format!("{start}{}", &rest[64..])).unwrap();
    let error = refused(&mut Command::new(composed.0.path().join("prepare")));
    assert!(error.contains("these images have no digest; run ../pin-images"), "{error}");
    assert!(error.contains(unpinned.trim()) && !error.contains("sha256"), "{error}");
    assert!(!composed.0.path().join("made").exists(), "nothing is made");
}

#[actix_web::test]
async fn compose_setup_creates_ca_public_listener_and_audit_file() {
    let composed = Composed::new();
    assert!(composed.prepare().status.success());
    composed.move_configuration();
    let made = composed.0.path().join("made");
    // Here the nodes run as the user of the test.
    let owner = rustix::process::getuid();
    for name in ["signet", "signet/tls", "audit", "audit/node1"] {
        rustix::fs::chown(made.join(name), Some(owner), None).unwrap();
    }
    let database = cluster::shared().database();
    let compose = yaml("packaging/compose/compose.yaml");
    let words: Vec<String> = texts(&compose["services"]["setup"]["command"])
        .into_iter()
        .map(|word| word.replace("/etc/signet", made.join("signet").to_str().unwrap()))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(composed.command(&words).env("SIGNET_DATABASE_URL", database.url()));
    openssl(&made, &["x509", "-in", "signet/root-ca.pem", "-noout"]);

    let mut serve = composed.command(&["serve", "--config", "made/signet/signet.toml"]);
    let mut served = Served::start(serve.env("SIGNET_DATABASE_URL", database.url()), &composed.0.path().join("log"));
    let mut issue = composed.command(&["issue", "www.example.test", "--mount", "pki", "--role", "server"]);
    issue.args(["--token-file", "made/signet/admin-token"]).env("SIGNET_ADDR", served.url(""));
    run(issue.env("SIGNET_CACERT", "made/signet/tls/ca.pem"));
    let mut line = String::new();
    while !line.starts_with("public listener on ") {
        line.clear();
        assert!(served.lines.read_line(&mut line).unwrap() > 0, "no public listener");
    }
    let public = line.trim().strip_prefix("public listener on ").unwrap();
    let output = Command::new("curl").args(["-sSf", "--noproxy", "*", &format!("{public}/v1/pki/ca/pem")]).output();
    assert!(String::from_utf8(output.unwrap().stdout).unwrap().contains("BEGIN CERTIFICATE"));
    let leaf = openssl(composed.0.path(), &["x509", "-in", "www.example.test.pem", "-noout", "-text"]);
    assert!(leaf.contains("OCSP - URI:http://localhost:8080/v1/pki/ocsp"), "{leaf}");
    assert!(composed.file("made/audit/node1/audit.log").contains("pki/sign/server"));
    served.terminate();
}
