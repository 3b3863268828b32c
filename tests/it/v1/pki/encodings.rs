//! A CA whose name exists in two encodings is one CA (RFC 5280 section 7.1): one CRL, one OCSP responder.

use serde_json::{Value, json};

use super::foreign::{self, CA, Ca, Files, new_key, openssl_text};
use super::mount::{Pki, parse};
use super::ocsp::client::openssl;

/// A self-signed CA with this key, whose subject is encoded with this `string_mask`.
fn root(key: &str, mask: &str, subject: &str, serial: &str) -> Ca {
    let files = Files::new();
    let section = format!("[req]\ndistinguished_name=dn\nstring_mask={mask}\n[dn]\n[ext]\n{CA}\n");
    let config = files.write("req.cnf", section.as_bytes());
    let key_file = files.write("key.pem", key.as_bytes());
    let config = config.to_str().unwrap();
    let key_file = key_file.to_str().unwrap();
    let request = ["req", "-x509", "-new", "-days", "3650", "-utf8", "-key", key_file, "-config", config];
    let all = [&request[..], &["-extensions", "ext", "-subj", subject, "-set_serial", serial]].concat();
    Ca { key: key.to_owned(), pem: openssl_text(&all, b"").trim().to_owned() }
}

/// Two CAs with one key, whose names match by RFC 5280 section 7.1 and differ in string type, case and blanks.
pub fn roots() -> (Ca, Ca) {
    let key = new_key("ec-256");
    let old = root(&key, "default", "/O=Example Org/CN=Root", "1");
    let new = root(&key, "utf8only", "/O=EXAMPLE  Org/CN=Root", "2");
    assert_ne!(parse(&old.pem).subject(), parse(&new.pem).subject());
    (old, new)
}

async fn import(pki: &Pki, text: &str) -> Vec<String> {
    let answer = pki.post("issuers/import/bundle", json!({ "pem_bundle": text })).await;
    serde_json::from_value(answer.body["data"]["imported_issuers"].clone()).unwrap()
}

/// Returns the status of `certificate` from an OCSP client that has this CA certificate and verifies the response.
async fn status(pki: &Pki, issuer: &str, certificate: &str) -> String {
    let files = Files::new();
    let path = |name: &str, text: &str| files.write(name, text.as_bytes()).to_str().unwrap().to_owned();
    let ca = path("ca.pem", issuer);
    let leaf = path("leaf.pem", certificate);
    let url = pki.app.client.url("pki/ocsp");
    let trusted = ["-issuer", &ca, "-CAfile", &ca, "-VAfile", &ca];
    let said = openssl(&[&["ocsp", "-no_nonce", "-url", &url][..], &trusted, &["-cert", &leaf]].concat()).await;
    assert!(said.contains("Response verify OK"), "{said}");
    let (_, rest) = said.split_once("leaf.pem: ").unwrap();
    rest.lines().next().unwrap().to_owned()
}

#[actix_web::test]
async fn encodings_of_one_name_share_a_crl() {
    let pki = Pki::empty().await;
    let (old, new) = roots();
    let [new_id] = <[String; 1]>::try_from(import(&pki, &new.bundle()).await).unwrap();
    let leaf = old.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    pki.post("revoke", json!({ "certificate": leaf })).await;
    let alone = pki.crl(&new_id).await;
    let [old_id] = <[String; 1]>::try_from(import(&pki, &old.pem).await).unwrap();
    for id in [&old_id, &new_id] {
        assert_eq!(pki.crl(id).await.serials(), ["4e"]);
    }
    let shared = pki.crl(&old_id).await;
    assert_eq!(shared.der, pki.crl(&new_id).await.der);
    assert!(shared.number() >= alone.number());
    // The CRL continues after a restart, and after the older of the two issuers is deleted.
    let pki = Pki { app: pki.app.restart().await };
    assert_eq!(pki.crl(&old_id).await.number(), shared.number());
    assert_eq!(pki.app.client.delete(&format!("pki/issuer/{new_id}")).await.status, 200, "with a warning: the default");
    pki.post("config/issuers", json!({ "default": old_id })).await;
    let issuer = pki.get(&format!("issuer/{old_id}")).await;
    assert_ne!(issuer["key_id"], Value::from(""), "the key is that of the deleted issuer");
    assert_eq!(pki.app.client.get("pki/crl/rotate").await.status, 200);
    let rotated = pki.crl(&old_id).await;
    assert!(rotated.number() > shared.number() && rotated.serials() == ["4e"], "{}", rotated.text);
    assert_eq!(status(&pki, &old.pem, &leaf).await, "revoked");
    pki.stop().await;
}

#[actix_web::test]
async fn encodings_of_one_name_are_one_ocsp_responder() {
    let pki = Pki::empty().await;
    let (old, new) = roots();
    // These certificates contain the issuer's name in the old encoding, which the mount does not have.
    let below = old.intermediate("/CN=Below", &[]);
    let leaf = old.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    import(&pki, &new.bundle()).await;
    pki.post("revoke", json!({ "certificate": leaf })).await;
    assert_eq!(status(&pki, &new.pem, &leaf).await, "unknown", "nobody here knows this encoding");
    import(&pki, &below.pem).await;
    assert_eq!(status(&pki, &new.pem, &below.pem).await, "good");
    assert_eq!(status(&pki, &new.pem, &leaf).await, "revoked");
    let own = new.signs(&foreign::csr("ec-256", "/CN=own", ""), "", &["-set_serial", "79"]);
    pki.post("revoke", json!({ "certificate": own })).await;
    import(&pki, &old.pem).await;
    for issuer in [&old.pem, &new.pem] {
        assert_eq!(status(&pki, issuer, &leaf).await, "revoked");
        assert_eq!(status(&pki, issuer, &own).await, "revoked");
    }
    // The name alone is not enough: a CA with another key is a different CA.
    let other = Ca::root("/O=Example Org/CN=Root");
    let leaf = other.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    import(&pki, &other.pem).await;
    let der = super::ocsp::request(
        &[super::ocsp::cert_id(signet::x509::ocsp::IdHash::Sha1, &parse(&other.pem), &parse(&leaf).serial())],
        None,
    );
    pki.ocsp(&der).await.assert_fails(401, 6);
    pki.stop().await;
}
