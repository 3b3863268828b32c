//! Judges that did not grow up with this server and speak Python: pkilint, the X.509 verifier of
//! `cryptography`, and hvac. Their scripts are in `tests/judges`; `tests/run` installs what they import.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script of `tests/judges`, which must be content. What it printed.
pub fn judge(script: &str, arguments: &[&str]) -> String {
    let (content, printed) = run(script, arguments);
    assert!(content, "{script}:\n{printed}");
    printed
}

/// As [`judge`], where the script must not be content.
pub fn refusal(script: &str, arguments: &[&str]) -> String {
    let (content, printed) = run(script, arguments);
    assert!(!content, "{script}:\n{printed}");
    printed
}

/// Runs a script of the judges: whether it succeeded, and what it printed.
pub fn run(script: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(python()).arg(scripts().join(script)).args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

/// The folder of the scripts and of what they need.
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
fn hvac_finds_what_it_needs_in_every_answer() {
    let dev = crate::process::dev(&[]);
    judge("hvac_calls.py", &[&dev.address, &dev.token]);
    dev.terminate();
}

#[test]
fn hvac_logs_in_with_jwt() {
    let dev = crate::process::dev(&[]);
    judge("hvac_jwt.py", &[&dev.address, &dev.token]);
    dev.terminate();
}

#[test]
fn hvac_logs_in_with_approle() {
    let dev = crate::process::dev(&[]);
    judge("hvac_approle.py", &[&dev.address, &dev.token]);
    dev.terminate();
}
