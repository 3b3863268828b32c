//! Independent checks in Python: pkilint, the X.509 verifier of `cryptography`, and hvac. The scripts are in
//! `tests/judges`; `tests/run` installs their dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn judge(script: &str, arguments: &[&str]) -> String {
    let (content, printed) = run(script, arguments);
    assert!(content, "{script}:\n{printed}");
    printed
}

pub fn refusal(script: &str, arguments: &[&str]) -> String {
    let (content, printed) = run(script, arguments);
    assert!(!content, "{script}:\n{printed}");
    printed
}

pub fn run(script: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(python()).arg(scripts().join(script)).args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges")
}

fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = std::fs::read_to_string(root.join("target/judges/requirements.txt")).unwrap_or_default();
    let wanted = std::fs::read_to_string(scripts().join("requirements.txt")).unwrap();
    assert!(installed == wanted, "target/judges is missing or out of date: tests/run makes it");
    root.join("target/judges/bin/python")
}

#[test]
fn hvac_parses_every_response_and_logs_in() {
    for script in ["hvac_calls.py", "hvac_jwt.py", "hvac_approle.py"] {
        let dev = crate::process::dev(&[]);
        judge(script, &[&dev.address, &dev.token]);
        dev.terminate();
    }
}
