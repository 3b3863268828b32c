//! PKCS #12 files: other programs read what `issue` creates, and the server imports what they create.

mod bounds;
mod rights;

use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::foreign::{CA, Ca, Files, csr, new_key, openssl, openssl_text, printed, run};
use super::imported_crl::run_import;
use super::mount::{Pki, text, with};
use crate::judges;

const PASSWORD: &str = "correct horse 9!";

/// Returns the response to an `issue` request for a PKCS #12 file, and the file.
async fn issued(pki: &Pki, request: Value) -> (Value, Vec<u8>) {
    let form = json!({ "format": "p12", "password": PASSWORD });
    let data = pki.data("issue/r", with(&form, request)).await;
    let file = STANDARD.decode(text(&data, "p12")).unwrap();
    (data, file)
}

/// Runs `openssl pkcs12` on a file.
fn openssl_reads(file: &[u8], password: &str, arguments: &[&str]) -> Output {
    let files = Files::new();
    let path = files.save("leaf.p12", file);
    let pass = format!("pass:{password}");
    run("openssl", &[&["pkcs12", "-in", &path, "-passin", &pass][..], arguments].concat(), b"")
}

/// Returns a PKCS #12 file with a CA and its key, created by openssl.
fn exported(ca: &Ca, arguments: &[&str]) -> Vec<u8> {
    let files = Files::new();
    let key = files.save("key.pem", &ca.key);
    let certificate = files.save("ca.pem", &ca.pem);
    let pass = format!("pass:{PASSWORD}");
    let exporting = ["pkcs12", "-export", "-inkey", &key, "-in", &certificate, "-passout", &pass];
    openssl(&[&exporting[..], arguments].concat(), b"")
}

fn import_body(file: &[u8]) -> Value {
    json!({ "p12": STANDARD.encode(file), "password": PASSWORD })
}

#[actix_web::test]
async fn pkcs12_issue_file_is_read_by_other_programs() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "key_type": "any", "require_cn": false })).await;
    for (key_type, bits) in [("ec", 256), ("ec", 384), ("ec", 521), ("rsa", 2048), ("ed25519", 0)] {
        let request = json!({ "common_name": "müller.example", "key_type": key_type, "key_bits": bits,
            "exclude_cn_from_sans": true });
        let (data, file) = issued(&pki, request).await;
        assert!(data.get("private_key").is_none(), "the key leaves in the file alone");
        assert_eq!(data["private_key_type"], json!(key_type));
        // openssl: the same certificate, its chain, and its key. It prints the name in another encoding.
        let read = printed(&openssl_reads(&file, PASSWORD, &["-nodes"]));
        assert!(read.contains(text(&data, "certificate")) && read.contains(text(&data, "issuing_ca")), "{read}");
        let key = openssl_text(&["pkey", "-pubout"], read.as_bytes());
        let public = openssl_text(&["x509", "-pubkey", "-noout"], text(&data, "certificate").as_bytes());
        assert_eq!(key, public);
        let info = printed(&openssl_reads(&file, PASSWORD, &["-info", "-noout"]));
        assert!(info.contains("MAC: sha256, Iteration 10000"), "{info}");
        let encryption = "PBES2, PBKDF2, AES-256-CBC, Iteration 10000, PRF hmacWithSHA256";
        assert_eq!(info.matches(encryption).count(), 2, "{info}");
        assert!(!openssl_reads(&file, "other", &["-noout"]).status.success());
        // GnuTLS.
        let files = Files::new();
        let path = files.save("leaf.p12", &file);
        let shown = run("certtool", &["--p12-info", "--inder", "--password", PASSWORD, "--infile", &path], b"");
        let shown = printed(&shown);
        assert!(shown.contains("MAC: SHA256"), "{shown}");
        assert_eq!(shown.matches("BEGIN CERTIFICATE").count(), 2, "{shown}");
        // The library of Python programs also links the key to its certificate by the name.
        let (_, said) = judges::run("pkcs12_read.py", &[&path, PASSWORD]);
        assert_eq!(said, "True müller.example 1\n");
    }
    // Without a common name the file has no friendly name.
    let (_, file) = issued(&pki, json!({ "alt_names": "a.example", "key_type": "ec" })).await;
    let read = printed(&openssl_reads(&file, PASSWORD, &["-nodes"]));
    assert!(read.contains("localKeyID: 01") && !read.contains("friendlyName"), "{read}");
    // Without roots the chain is empty here.
    let request = json!({ "common_name": "a.example", "key_type": "ec", "remove_roots_from_chain": true });
    let (data, file) = issued(&pki, request).await;
    let read = printed(&openssl_reads(&file, PASSWORD, &["-nokeys"]));
    assert_eq!(read.matches("BEGIN CERTIFICATE").count(), 1, "{read}");
    assert_eq!(data["ca_chain"], json!([]));
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_issue_rejects_bad_passwords_and_other_paths() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let printable = "password: must have 1 to 128 printable ASCII characters";
    for (password, rule) in [
        (json!(null), "password: must be given with format p12"),
        (json!(""), printable),
        (json!("pässword"), printable),
        (json!("a\nb"), printable),
        (json!("x".repeat(129)), printable),
    ] {
        let body = json!({ "common_name": "a.example", "format": "p12", "password": password });
        pki.refused("issue/r", body, rule).await;
    }
    let csr = csr("ec-256", "/CN=a.example", "");
    for (path, body, rule) in [
        ("issue/r", json!({ "password": PASSWORD }), "password: is allowed only with format p12"),
        ("sign/r", json!({ "csr": csr, "format": "p12" }), "format: p12 is supported by issue only"),
        ("root/generate/exported", json!({ "format": "p12" }), "format: p12 is supported by issue only"),
    ] {
        pki.refused(path, with(&json!({ "common_name": "a.example" }), body), rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_files_of_other_programs_are_imported() {
    let pki = Pki::empty().await;
    let triple_des = ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES", "-macalg", "sha1"];
    let forms: [&[&str]; 6] = [
        &[],
        // The default export format of Windows for a key.
        &triple_des,
        &["-keypbe", "AES-128-CBC", "-certpbe", "AES-192-CBC", "-macalg", "sha512"],
        &["-certpbe", "NONE"],
        &["-keypbe", "NONE", "-certpbe", "NONE", "-macalg", "sha384"],
        &["-iter", "200000"],
    ];
    for (at, form) in forms.into_iter().enumerate() {
        let key = new_key(if at == 0 { "rsa-2048" } else { "ec-256" });
        let ca = Ca::root_with(key, &format!("/CN=CA {at}"), CA, &[]);
        let file = exported(&ca, form);
        let data = pki.data("issuers/import/bundle", import_body(&file)).await;
        assert_eq!(data["imported_issuers"].as_array().unwrap().len(), 1, "{form:?}: {data}");
        assert_eq!(data["imported_keys"].as_array().unwrap().len(), 1, "{form:?}: {data}");
        let issuer = data["imported_issuers"][0].as_str().unwrap().to_owned();
        assert_eq!(data["mapping"][&issuer], data["imported_keys"][0]);
        // The same file in BER, as other programs write it, has the same contents.
        let again = pki.data("config/ca", import_body(&indefinite(&file))).await;
        assert_eq!(again["existing_issuers"], data["imported_issuers"], "{form:?}");
        assert_eq!(again["existing_keys"], data["imported_keys"], "{form:?}");
    }
    let ca = Ca::root("/CN=GnuTLS");
    let files = Files::new();
    let key = files.save("key.pem", &ca.key);
    let certificate = files.save("ca.pem", &ca.pem);
    let content = ["--to-p12", "--load-privkey", &key, "--load-certificate", &certificate, "--p12-name", "ca"];
    let form = ["--password", PASSWORD, "--outder", "--hash", "SHA256"];
    let made = run("certtool", &[&content[..], &form].concat(), b"");
    let data = pki.data("issuers/import/bundle", import_body(&made.stdout)).await;
    assert_eq!(data["imported_issuers"].as_array().unwrap().len(), 1, "{data}");
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_key_import_takes_the_key_alone() {
    let pki = Pki::empty().await;
    let file = exported(&Ca::root("/CN=Key"), &[]);
    let data = pki.data("keys/import", with(&import_body(&file), json!({ "key_name": "k" }))).await;
    assert_eq!((&data["key_name"], &data["key_type"]), (&json!("k"), &json!("ec")));
    assert_eq!(pki.list("issuers").await, Vec::<String>::new());
    let file = exported(&Ca::root("/CN=No key"), &["-nokeys"]);
    pki.refused("keys/import", import_body(&file), "p12: ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_import_rejects_unsupported_or_malformed_files() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=CA");
    let good = exported(&ca, &[]);
    let encoded = STANDARD.encode(&good);
    let rc2 = exported(&ca, &["-legacy", "-certpbe", "PBE-SHA1-RC2-40", "-keypbe", "PBE-SHA1-3DES"]);
    let unauthenticated = exported(&ca, &["-nomac"]);
    for (file, rule) in [
        (rc2.as_slice(), "p12: the file is encrypted with RC2, RC4 or two-key Triple DES: convert the file with"),
        (&unauthenticated, "p12: the file has no MAC"),
        (&good[..good.len() - 1], "p12: not a PKCS #12 file: truncated"),
        (&[&good[..], b"x"].concat(), "p12: not a PKCS #12 file: trailing data"),
        (ca.pem.as_bytes(), "p12: not a PKCS #12 file"),
        (&[0x30, 0x80].repeat(40), "p12: not a PKCS #12 file: values are nested deeper than 16"),
        (&vec![0x30; 400 * 1024], "p12: longer than 384 KiB"),
    ] {
        pki.refused("issuers/import/bundle", import_body(file), rule).await;
    }
    let body = json!({ "p12": encoded, "password": "other" });
    pki.refused("issuers/import/bundle", body, "password: wrong, or the file is damaged").await;
    for (body, rule) in [
        (json!({ "p12": encoded }), "password: must be given with p12"),
        (json!({ "p12": "no base64!", "password": "x" }), "p12: must be base64"),
        (
            json!({ "p12": encoded, "password": PASSWORD, "pem_bundle": ca.pem }),
            "p12: must not be given with pem_bundle",
        ),
        (json!({ "pem_bundle": ca.pem, "password": PASSWORD }), "password: is allowed only with p12"),
        (json!({ "p12": encoded, "password": "x".repeat(1025) }), "password: must be a text of at most 1024 bytes"),
    ] {
        pki.refused("issuers/import/bundle", body, rule).await;
    }
    // A key on a path without keys, and a certificate that is not a CA.
    pki.refused("issuers/import/cert", import_body(&good), "p12: private keys are not accepted here").await;
    let leaf = Ca::root_with(new_key("ec-256"), "/CN=leaf", "basicConstraints=CA:FALSE", &[]);
    let rule = "refusing to import non-CA certificate";
    pki.refused("issuers/import/bundle", import_body(&exported(&leaf, &[])), rule).await;
    // A change at any position causes at most a rejection.
    for at in (0..good.len()).step_by(7) {
        let mut changed = good.clone();
        changed[at] ^= 0x21;
        let answer = pki.app.client.post("pki/issuers/import/bundle", import_body(&changed)).await;
        assert!(matches!(answer.status, 200 | 400), "octet {at}: {}", answer.text);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn pkcs12_files_in_a_folder_are_imported_by_the_command() {
    let pki = Pki::empty().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("authority.PFX"), exported(&Ca::root("/CN=In a folder"), &[])).unwrap();
    let command = async |arguments: &[&str]| run_import(&pki, folder.path(), arguments).await;
    let (done, _, err) = command(&[]).await;
    assert!(!done && err.contains("--p12-password-file names the file with its password"), "{err}");
    let elsewhere = tempfile::tempdir().unwrap();
    let password = elsewhere.path().join("password");
    std::fs::write(&password, "other\n").unwrap();
    let option = ["--p12-password-file", password.to_str().unwrap()];
    let (done, _, err) = command(&option).await;
    assert!(!done && err.contains("authority.PFX: password: wrong"), "{err}");
    std::fs::write(&password, format!("{PASSWORD}\r\n")).unwrap();
    let (done, out, err) = command(&option).await;
    assert!(done && out.contains(": new, with its key\n"), "{out}{err}");
    pki.stop().await;
}

/// Encodes the outer structure of a file with indefinite lengths and strings in pieces, as programs may write it.
fn indefinite(der: &[u8]) -> Vec<u8> {
    let (tag, content, rest) = split(der);
    assert!(rest.is_empty());
    let mut out = vec![tag, 0x80];
    let mut inner = content;
    while !inner.is_empty() {
        let (tag, content, rest) = split(inner);
        let whole = &inner[..inner.len() - rest.len()];
        match tag {
            0x30 | 0xa0 => out.extend(indefinite(whole)),
            0x04 if content.len() > 64 => {
                out.extend([0x24, 0x80]);
                for piece in content.chunks(50) {
                    out.extend([0x04, piece.len() as u8]);
                    out.extend(piece);
                }
                out.extend([0, 0]);
            }
            _ => out.extend(whole),
        }
        inner = rest;
    }
    out.extend([0, 0]);
    out
}

/// Returns tag, content and rest of a DER value.
fn split(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (length, header) = match der[1] {
        short @ 0..0x80 => (usize::from(short), 2),
        long => {
            let count = usize::from(long & 0x7f);
            (der[2..2 + count].iter().fold(0, |n, &octet| n << 8 | usize::from(octet)), 2 + count)
        }
    };
    (der[0], &der[header..header + length], &der[header + length..])
}
