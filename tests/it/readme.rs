//! What the README has to paste, pasted.

use std::net::TcpListener;
use std::path::Path;

use crate::process::shell;

const README: &str = include_str!("../../README.md");

/// The first block of a section, without its indent.
fn block(heading: &str) -> String {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    lines.map_while(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect()
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How many objects the tokens below a folder hold, in the form that SoftHSM keeps them.
fn objects(folder: &Path) -> usize {
    let below = |path: &Path| if path.is_dir() { objects(path) } else { usize::from(is_object(path)) };
    std::fs::read_dir(folder).unwrap().map(|entry| below(&entry.unwrap().path())).sum()
}

/// The token itself is in such a file, too.
fn is_object(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "object") && !file.ends_with("token.object")
}

#[test]
fn the_block_about_an_hsm_leads_from_an_empty_token_to_a_certificate_signed_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let pasted = block("Keys in an HSM");
    // The program that stands, a port that is free, and an end; everything else as it is.
    let script = pasted
        .replace("cargo run --release --", env!("CARGO_BIN_EXE_signet"))
        .replace("signet dev", &format!("signet dev --listen 127.0.0.1:{port}"))
        .replace("127.0.0.1:8200", &format!("127.0.0.1:{port}"));
    let script = format!("trap 'kill $!' EXIT\n{script}");
    let output = shell(&script).env("TMPDIR", folder.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.lines().any(|line| line.ends_with("/web.example.test.pem: OK")), "{out}\n{err}");
    assert_eq!(objects(folder.path()), 2, "a private and a public key");
}

#[test]
fn the_block_about_a_first_certificate_leads_to_one_that_verifies_and_is_renewed() {
    let (folder, dev) = (tempfile::tempdir().unwrap(), crate::process::dev(&[]));
    let script = block("A first certificate")
        .replace("cargo run --release --", env!("CARGO_BIN_EXE_signet"))
        .replace("http://127.0.0.1:8200", &dev.address)
        .replace("SIGNET_TOKEN=…", &format!("SIGNET_TOKEN={}", dev.token));
    // What the text below the block says of the files that it made.
    let (_, text) = README.split_once("Then `signet renew web.example.test.pem").unwrap();
    assert!(text.contains("`signet who web.example.test.pem`") && text.contains("`signet status`"));
    let more = "signet renew web.example.test.pem --force --exec 'echo reloaded'\nsignet who web.example.test.pem\n\
                signet status\nopenssl verify -x509_strict -CAfile ca.pem web.example.test.pem\n";
    let script = format!("{script}{}", more.replace("signet ", &format!("{} ", env!("CARGO_BIN_EXE_signet"))));
    let output = shell(&script).current_dir(folder.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert_eq!(out.lines().filter(|line| *line == "web.example.test.pem: OK").count(), 2, "{out}\n{err}");
    assert!(out.contains("reloaded") && out.contains("nothing is wrong"), "{out}");
    dev.terminate();
}
