//! Runs the commands of the README.

use crate::pages::stage::Stage;

const README: &str = include_str!("../../README.md");

/// The first code block of a section, without indentation, with the installed program.
fn block(heading: &str) -> String {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.map_while(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n"));
    lines.collect::<String>().replace("cargo run --release --", "signet")
}

#[test]
fn readme_first_certificate_verifies_and_is_renewed() {
    let dev = crate::process::dev(&[]);
    let script = block("A first certificate")
        .replace("http://127.0.0.1:8200", "$ADDRESS")
        .replace("SIGNET_TOKEN=…", &format!("SIGNET_TOKEN={}", dev.token));
    let (_, text) = README.split_once("\n    signet renew web.example.test.pem --exec ").unwrap();
    assert!(text.contains("`signet who web.example.test.pem`") && text.contains("`signet status`"));
    let more = "signet renew web.example.test.pem --force --exec 'echo reloaded'\nsignet who web.example.test.pem\n\
                signet status\nopenssl verify -x509_strict -CAfile ca.pem web.example.test.pem\n";
    // Host and port are separated, so that the port is not replaced.
    let (host, port) = dev.address.rsplit_once(':').unwrap();
    let out = Stage::new().run(&format!("ADDRESS={host}':'{port}\n{script}{more}"));
    assert_eq!(out.lines().filter(|line| *line == "web.example.test.pem: OK").count(), 2, "{out}");
    assert!(out.contains("reloaded") && out.contains("nothing is wrong"), "{out}");
    dev.terminate();
}
