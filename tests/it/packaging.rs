//! The parts of `packaging/` other than the Debian package: the container, the composed installation and the Helm chart.

mod helm;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{openssl, signet};

/// How an orchestrator asks whether a node is ready, where there is nothing but the program to ask with.
const HEALTH: [&str; 5] = ["CMD", "/usr/bin/signet", "health", "--config", "/etc/signet/signet.toml"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A YAML file, read by the Python that tests/run made.
fn yaml(file: &str) -> Value {
    documents(&std::fs::read_to_string(root().join(file)).unwrap()).remove(0)
}

/// The documents of a YAML text, without empty ones.
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
fn what_is_composed_is_published_on_the_loopback_alone_and_has_no_more_rights_than_it_needs() {
    let compose = yaml("packaging/compose/compose.yaml");
    let services = compose["services"].as_object().unwrap();
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, ["database", "grafana", "node1", "node2", "prometheus"]);
    for (name, service) in services {
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
        assert!(service["privileged"].is_null() && service["cap_add"].is_null(), "{name}");
        for volume in texts(&service["volumes"]) {
            let (source, rest) = volume.split_once(':').unwrap();
            if let Some(file) = source.starts_with('.').then(|| root().join("packaging/compose").join(source)) {
                assert!(rest.ends_with(":ro"), "{name}: {volume}: of the host, and not to be changed");
                assert!(source.contains("/made/") || file.exists(), "{name}: {volume}");
            } else {
                assert!(compose["volumes"].get(source).is_some(), "{name}: {volume}");
            }
        }
    }
    for node in [&services["node1"], &services["node2"]] {
        assert_eq!(node["read_only"], true);
        assert_eq!(texts(&node["cap_drop"]), ["ALL"]);
        assert_eq!(texts(&node["healthcheck"]["test"]), HEALTH);
        assert_eq!(texts(&node["security_opt"]), ["no-new-privileges:true"]);
    }
    assert_eq!(services["database"]["network_mode"], "none", "a socket is the only way to it");
}

#[test]
fn grafana_finds_the_dashboards_and_prometheus_the_rules_where_they_are_mounted() {
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
fn the_container_runs_as_nobody_and_holds_nothing_to_run_but_the_server() {
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
    // What the build copies is what the build gets.
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    for needed in ["src", "migrations", "benches", "load", "Cargo.lock", "build.rs", "packaging/stage", "LICENSE"] {
        assert!(ignored.lines().any(|line| line == format!("!{needed}")), "{needed}");
    }
    for line in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(root().join(line).exists(), "{line}");
    }
}

#[test]
fn what_prepare_makes_is_what_the_nodes_take() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["prepare", "signet.toml"] {
        std::fs::copy(root().join("packaging/compose").join(name), folder.path().join(name)).unwrap();
    }
    let prepare = || Command::new(folder.path().join("prepare")).output().unwrap();
    let output = prepare();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!prepare().status.success(), "keys that are there are not replaced");
    for host in ["node1", "node2", "localhost"] {
        let verified = openssl(
            folder.path(),
            &["verify", "-x509_strict", "-verify_hostname", host, "-CAfile", "made/tls/ca.pem", "made/tls/node.pem"],
        );
        assert_eq!(verified.trim(), "made/tls/node.pem: OK");
    }
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let user = file(".env");
    let user = user.trim().strip_prefix("SIGNET_USER=").unwrap();
    assert!(!user.starts_with("0:"), "{user}");
    let config = file("signet.toml").replace("/etc/signet/tls", folder.path().join("made/tls").to_str().unwrap());
    std::fs::write(folder.path().join("signet.toml"), config).unwrap();
    let mut check = signet();
    check.args(["check", "--file-only", "--config", "signet.toml"]).current_dir(folder.path());
    check.envs(file("made/node.env").lines().map(|line| line.split_once('=').unwrap()));
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
