//! Files that do not exist: the message names the flag, setting or argument, and the path.

use crate::process::{refused, signet};
use crate::serve::Site;
use crate::signers::hsm::SOFTHSM;

#[test]
fn missing_file_of_a_client_command_is_named_with_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    let approle = ["renew", "a.pem", "--login", "approle"];
    let jwt = ["renew", "a.pem", "--login", "jwt", "--login-role", "web"];
    std::fs::write(folder.path().join("role-id"), "x").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["issue", "--csr", "absent"], "--csr: file does not exist: absent"),
        (&["issue", "a.test", "--token-file", "absent"], "--token-file: file does not exist: absent"),
        (&["status", "--cacert", "absent"], "--cacert or SIGNET_CACERT: file does not exist: absent"),
        (&["renew", "absent.pem"], "FILE: file does not exist: absent.pem"),
        (&["who", "absent.pem"], "SERIAL: file does not exist: absent.pem"),
        (&["revoke", "absent.pem"], "SERIAL: file does not exist: absent.pem"),
        (&["import", "absent"], "FOLDER: folder does not exist: absent"),
        (&[&approle[..], &["--role-id-file", "absent"]].concat(), "--role-id-file: file does not exist: absent"),
        (
            &[&approle[..], &["--role-id-file", "role-id", "--secret-id-file", "absent"]].concat(),
            "--secret-id-file: file does not exist: absent",
        ),
        (&[&jwt[..], &["--jwt-file", "absent"]].concat(), "--jwt-file: file does not exist: absent"),
        (&["health", "--config", "absent"], "--config: file does not exist: absent"),
        (&["dev", "--pkcs11-library", "hsm=/absent.so"], "pkcs11 library \"hsm\": file does not exist: /absent.so"),
        (
            &["operator", "seal-status", "--config", "absent"],
            "--config: file does not exist: absent (signet setup creates one)",
        ),
        (&["operator", "verify-backup", "--data-dir", "absent", "copy.db"], "FILE: file does not exist: copy.db"),
        (&["operator", "backup", "--data-dir", "absent", "--to", "x"], "--data-dir: folder does not exist: absent"),
        (&["setup", "--yes", "--domain", "a.test", "--signed", "absent"], "--signed: file does not exist: absent"),
    ];
    for (words, message) in cases {
        let mut command = signet();
        command.args(*words).current_dir(folder.path()).env("SIGNET_ADDR", "http://127.0.0.1:9");
        if !words.contains(&"--token-file") && !words.contains(&"--login") {
            command.env("SIGNET_TOKEN", "t");
        }
        let text = refused(&mut command);
        assert!(text.contains(message), "{words:?}: {text}");
    }
}

#[test]
fn missing_file_of_a_setting_is_named_with_the_setting() {
    let site = Site::initialized();
    let key = format!("seal_key_file = \"{}\"\n", site.path("data/seal.key").display());
    let absent = site.path("absent");
    let absent = absent.display();
    let pin = format!(
        "[seal]\ntype = \"pkcs11\"\nlibrary = \"hsm\"\ntoken_label = \"t\"\nkey_label = \"k\"\npin_file = \"{absent}\"\n"
    );
    for (more, message) in [
        (format!("seal_key_file = \"{absent}\"\n"), format!("seal_key_file: file does not exist: {absent}")),
        (
            format!("{key}tls_certificate_file = \"{absent}\"\ntls_key_file = \"{absent}\"\n"),
            format!("tls_certificate_file: file does not exist: {absent}"),
        ),
        (
            format!("{key}[[audit]]\ntype = \"file\"\nfile_path = \"{absent}/audit.log\"\n"),
            format!("{absent}/audit.log, cannot be opened (its folder does not exist)"),
        ),
        (format!("{key}[cloudb]\nca_file = \"{absent}\"\n"), format!("cloudb.ca_file: file does not exist: {absent}")),
        (
            format!("pkcs11_libraries = {{ hsm = \"{SOFTHSM}\" }}\n{pin}"),
            format!("seal.pin_file: file does not exist: {absent}"),
        ),
    ] {
        site.configure(&more);
        let text = refused(&mut site.command(&["serve"]));
        assert!(text.contains(&message), "{more}: {text}");
    }
    site.configure(&key);
    let to = absent.to_string();
    let rotated = refused(&mut site.command(&["operator", "rotate-seal-key", "--to", &to]));
    assert!(rotated.contains(&format!("--to: file does not exist: {absent}")), "{rotated}");
    let restored = refused(&mut site.command(&["operator", "restore", &to]));
    assert!(restored.contains(&format!("FILE: file does not exist: {absent}")), "{restored}");
    let copied = ["operator", "copy-store", "--to", "postgres://localhost/none", "--from", &to];
    let copied = refused(&mut site.command(&copied));
    assert!(copied.contains(&format!("--from: file does not exist: {absent}")), "{copied}");
    let folder = format!("{absent}/copy.db");
    let backup = refused(&mut site.command(&["operator", "backup", "--to", &folder]));
    assert!(backup.contains("its folder does not exist"), "{backup}");
}
