//! Signal handling of the program, tested with a running server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, unreachable_pub, reason = "the unit tests use the rest")]
#[path = "double/mod.rs"]
mod double;

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use double::{Double, Shape};
use rustix::process::{Pid, Signal, kill_process};

fn load(addr: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signet-load"));
    command.args(arguments).args(["--addr", addr, "--token", "root", "--clients", "4", "--seconds", "600", "--quiet"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal after 20 requests that contain `part`, and returns the output.
fn interrupted(double: &Double, mut child: Child, part: &str, signal: Signal) -> Output {
    while double.count_requests_containing(part) < 20 {
        assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn signal_ends_a_run_with_its_report_and_cleaned_up() {
    let shape = Shape { ready: vec!["pki"], delay: |_| Duration::from_millis(1), ..Shape::default() };
    for signal in [Signal::INT, Signal::TERM] {
        let double = Double::start(shape.clone());
        let before = double.configured();
        let output = interrupted(&double, load(&double.addr, &["issue"]), "/issue/", signal);
        let shown = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(shown.contains("p99.9") && shown.contains("INTERRUPTED"), "{shown}");
        assert!(errors.ends_with("signet-load: interrupted\n"), "{errors}");
        assert_eq!(double.configured(), before);
    }
}

#[test]
fn signal_during_preload_reports_progress_and_cleans_up() {
    let shape = Shape { issuer: true, delay: |_| Duration::from_millis(1), ..Shape::default() };
    let double = Double::start(shape);
    let before = double.configured();
    let child = load(&double.addr, &["issue", "--preload", "1000000"]);
    let output = interrupted(&double, child, "/issue/", Signal::INT);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("of 1000000 requests succeeded before the interruption"), "{errors}");
    assert_eq!(double.configured(), before);
}
