//! openssl as OCSP client and verifier, and conversion of its times.

use std::process::Command;

use aws_lc_rs::digest;
use signet::clock::Time;

use crate::v1::pki::foreign::{Files, printed, run};

/// Returns the output of openssl, without blocking the server.
pub async fn openssl(arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|s| (*s).to_owned()).collect();
    let running = move || printed(&Command::new("openssl").args(arguments).output().unwrap());
    tokio::task::spawn_blocking(running).await.unwrap()
}

/// Returns openssl's output for a response.
pub fn read(der: &[u8]) -> String {
    let files = Files::new();
    let answer = files.save("answer.der", der);
    printed(&run("openssl", &["ocsp", "-noverify", "-resp_text", "-respin", &answer], b""))
}

/// Asserts that openssl accepts the signature of a response and finds this status of the certificate in it.
pub fn openssl_judges(issuer: &str, certificate: &str, der: &[u8], status: &str) {
    let files = Files::new();
    let ca = files.save("ca.pem", issuer);
    let leaf = files.save("leaf.pem", certificate);
    let answer = files.save("answer.der", der);
    // openssl compares CertIDs, so it needs the hash algorithm that was used.
    let text = read(der);
    let hash = text.lines().find_map(|line| line.trim().strip_prefix("Hash Algorithm: ")).unwrap();
    let hash = format!("-{hash}");
    let response = ["ocsp", "-no_nonce", "-respin", &answer, "-CAfile", &ca, "-VAfile", &ca, "-issuer", &ca];
    let said = printed(&run("openssl", &[&response[..], &[&hash, "-cert", &leaf]].concat(), b""));
    assert!(said.contains("Response verify OK") && said.contains(&format!("leaf.pem: {status}")), "{said}");
}

/// Returns epoch seconds of a time in openssl's format: `Nov 21 18:00:00 2026 GMT`.
pub fn seconds(text: &str) -> i64 {
    let output = Command::new("date").args(["-u", "+%s", "-d", text]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Formats a time for HTTP headers.
pub fn date(epoch: i64) -> String {
    let form = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    Time::from_unix_timestamp(epoch).unwrap().format(&form).unwrap()
}

pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn sha256(octets: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, octets).as_ref())
}
