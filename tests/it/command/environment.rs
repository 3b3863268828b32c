//! The command line and its environment: terminal, variables and time limits.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::client::{Double, response};
use crate::cluster;
use crate::process::{dev, refused, signet};
use crate::serve::Site;
use crate::v1::pki::foreign::Ca;

/// Written before and after each progress line.
const ERASE: &str = "\r\u{1b}[K";

#[test]
fn silent_server_is_reported_with_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("ca")).unwrap();
    let openssl = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca"];
    crate::process::openssl(folder.path(), &[&openssl[..], &["-keyout", "ca/key.pem", "-out", "ca/ca.pem"]].concat());
    let client = |words: &[&str]| {
        let mut command = signet();
        command.args(words).current_dir(folder.path()).env("SIGNET_ADDR", &address).env("SIGNET_TOKEN", "t");
        command
    };
    let message = format!("signet: {address}: no response within 1s (--timeout or SIGNET_TIMEOUT)");
    for words in [
        &["status"][..],
        &["health"],
        &["issue", "a.test", "--patience", "0s"],
        &["who", "0a:0b", "--patience", "0s"],
        &["revoke", "0a:0b", "--patience", "0s"],
        &["explain", "accessor", "GET", "sys/health"],
        &["import", "ca"],
    ] {
        let begun = Instant::now();
        let text = refused(client(words).args(["--timeout", "1s"]));
        assert!(text.contains(&message), "{words:?}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{words:?}: {:?}", begun.elapsed());
    }
    assert!(refused(client(&["health"]).env("SIGNET_TIMEOUT", "1s")).contains(&message));
    let text = refused(&mut client(&["health", "--timeout", "0s"]));
    assert!(text.contains("must be a duration above 0"), "{text}");
}

#[test]
fn environment_sets_mount_and_role() {
    let listener = Double::start(&[&response("403 Forbidden", "{\"errors\":[]}")]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = signet();
    command.args(["issue", "a.test"]).current_dir(folder.path()).env("SIGNET_TOKEN", "t");
    command.env("SIGNET_ADDR", &listener.address);
    command.env("SIGNET_MOUNT", "ca/web").env("SIGNET_ROLE", "server");
    refused(&mut command);
    assert!(listener.heard()[0].starts_with("POST /v1/ca/web/sign/server HTTP/1.1"), "{}", listener.heard()[0]);
    refused(command.args(["--role", "other"]));
    let heard = listener.heard();
    assert!(heard.iter().any(|request| request.starts_with("POST /v1/ca/web/sign/other ")), "{heard:?}");
    let text = refused(command.env("SIGNET_MOUNT", "../sys"));
    assert!(text.contains("--mount"), "{text}");
    for (command, variables) in [
        ("issue", &["SIGNET_MOUNT", "SIGNET_ROLE", "SIGNET_TIMEOUT"][..]),
        ("renew", &["SIGNET_ROLE"]),
        ("import", &["SIGNET_MOUNT"]),
        ("revoke", &["SIGNET_MOUNT"]),
    ] {
        let help = String::from_utf8(signet().args([command, "--help"]).output().unwrap().stdout).unwrap();
        for variable in variables {
            assert!(help.contains(&format!("[env: {variable}=")), "{command}: {help}");
        }
    }
}

#[test]
fn help_is_wrapped_to_the_width_of_the_terminal() {
    let width = |columns: &str| {
        let output = signet().args(["issue", "--help"]).env("COLUMNS", columns).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // Examples and the synopsis are not wrapped, so that they can be copied.
        let prose = text.lines().filter(|line| !line.starts_with("  signet ") && !line.starts_with("Usage:"));
        prose.map(|line| line.chars().count()).max().unwrap()
    };
    assert!(width("70") <= 70, "{}", width("70"));
    assert!(width("160") > 80, "{}", width("160"));
}

/// The standard error of a command with a terminal.
fn shown(command: &mut Command) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let status = command.stdout(Stdio::null()).stderr(screen.try_clone().unwrap()).status().unwrap();
    assert!(status.success());
    // `screen` stays open until all is read: reading a terminal without an open slave side fails.
    let flags = fcntl_getfl(terminal.as_fd()).unwrap();
    fcntl_setfl(terminal.as_fd(), flags | OFlags::NONBLOCK).unwrap();
    let mut bytes = Vec::new();
    let error = File::from(terminal).read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "a read ends when all is read");
    drop(screen);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn progress_is_shown_on_a_terminal_and_erased() {
    let site = Site::initialized();
    let copy = |name: &str| site.path(name).display().to_string();
    let backup = |to: &str, flags: &[&str]| {
        let words = [&["operator", "backup", "--to", to][..], flags].concat();
        let mut command = site.command(&words);
        command.env("SIGNET_LOG", "error");
        command
    };
    let text = shown(&mut backup(&copy("a.db"), &[]));
    assert!(text.starts_with(&format!("{ERASE}copying: ")) && text.ends_with(ERASE), "{text:?}");
    let verify = shown(&mut site.command(&["operator", "verify-backup", &copy("a.db")]));
    assert!(verify.contains("checking: 0 certificates"), "{verify:?}");
    assert_eq!(shown(&mut backup(&copy("b.db"), &["--quiet"])), "");
    assert_eq!(shown(&mut backup(&copy("c.db"), &["--json"])), "");
    let output = backup(&copy("d.db"), &[]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that a command shows these progress lines on a terminal and erases them, and shows none with `--quiet`,
/// `--json` or without a terminal.
fn assert_progress(displays: &[&str], mut command: impl FnMut(&[&str]) -> Command) {
    let text = shown(&mut command(&[]));
    for display in displays {
        assert!(text.contains(&format!("{ERASE}{display}: ")), "{display}: {text:?}");
        assert!(text.rfind(ERASE) > text.rfind(&format!("{display}: ")), "{display}: {text:?}");
    }
    for flag in ["--quiet", "--json"] {
        let text = shown(&mut command(&[flag]));
        assert!(!text.contains(ERASE), "{flag}: {text:?}");
    }
    let output = command(&[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for bytes in [output.stdout, output.stderr] {
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
        assert!(!displays.iter().any(|display| text.contains(&format!("{display}: "))), "{text:?}");
    }
}

#[test]
fn progress_of_restore_is_shown_on_a_terminal_alone() {
    let site = Site::initialized();
    let copy = site.path("copy.db");
    crate::backup::backup(&site.path("data"), &copy).unwrap();
    let mut folders = 0;
    assert_progress(&["restoring"], |flags| {
        folders += 1;
        let data = site.path(&format!("restored-{folders}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(site.path("data/seal.key"), data.join("seal.key")).unwrap();
        let mut command = signet();
        command.args(["operator", "restore"]).arg(&copy).arg("--data-dir").arg(data).args(flags);
        command.env("SIGNET_LOG", "error");
        command
    });
}

#[test]
fn progress_of_copy_store_is_shown_on_a_terminal_alone() {
    let site = Site::initialized();
    let copy = site.path("copy.db");
    crate::backup::backup(&site.path("data"), &copy).unwrap();
    let from = copy.to_str().unwrap();
    assert_progress(&["copying", "checking"], |flags| {
        let url = cluster::shared().database().url();
        let mut command = site.command(&["operator", "copy-store", "--from", from, "--to", &url]);
        command.args(flags).env("SIGNET_LOG", "error");
        command
    });
}

#[test]
fn progress_of_import_is_shown_on_a_terminal_alone() {
    let dev = dev(&[]);
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::root("/CN=Imported");
    std::fs::write(folder.path().join("ca.pem"), &ca.pem).unwrap();
    std::fs::write(folder.path().join("key.pem"), &ca.key).unwrap();
    assert_progress(&["importing"], |flags| {
        let mut command = signet();
        command.arg("import").arg(folder.path()).arg("--into-existing").args(flags);
        command.env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token);
        command
    });
    dev.terminate();
}
