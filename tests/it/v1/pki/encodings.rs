//! A CA whose name exists in two encodings is one CA (RFC 5280 section 7.1): one CRL, one OCSP responder.

use serde_json::{Value, json};
use signet::x509::crl::encode_entry;
use signet::x509::ocsp::CertIdHash;
use signet::x509::serial::Serial;

use super::foreign::{self, CA, Ca, Files, new_key, openssl_text};
use super::imported_crl;
use super::mount::{Pki, parse};
use super::ocsp::client::openssl;
use super::ocsp::{cert_id, request};

/// A self-signed CA with this key, whose subject is encoded with this `string_mask`.
fn root(key: &str, mask: &str, subject: &str, serial: &str) -> Ca {
    let files = Files::new();
    let section = format!("[req]\ndistinguished_name=dn\nstring_mask={mask}\n[dn]\n[ext]\n{CA}\n");
    let config = files.save("req.cnf", section);
    let key_file = files.save("key.pem", key);
    let arguments = ["req", "-x509", "-new", "-days", "3650", "-utf8", "-key", &key_file, "-config", &config];
    let all = [&arguments[..], &["-extensions", "ext", "-subj", subject, "-set_serial", serial]].concat();
    Ca { key: key.to_owned(), pem: openssl_text(&all, b"").trim().to_owned() }
}

/// Two CAs with one key, whose names match by RFC 5280 section 7.1 and differ in string type, case and blanks.
fn roots() -> (Ca, Ca) {
    let key = new_key("ec-256");
    let old = root(&key, "default", "/O=Example Org/CN=Root", "1");
    let new = root(&key, "utf8only", "/O=EXAMPLE  Org/CN=Root", "2");
    assert_ne!(parse(&old.pem).subject(), parse(&new.pem).subject());
    (old, new)
}

/// Returns the status of `certificate` from an OCSP client that has this CA certificate and verifies the response.
async fn status(pki: &Pki, issuer: &str, certificate: &str) -> String {
    let files = Files::new();
    let ca = files.save("ca.pem", issuer);
    let leaf = files.save("leaf.pem", certificate);
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
    let new_id = pki.import_one(&new.bundle()).await;
    let leaf = old.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    pki.post("revoke", json!({ "certificate": leaf })).await;
    let alone = pki.crl(&new_id).await;
    let old_id = pki.import_one(&old.pem).await;
    for id in [&old_id, &new_id] {
        assert_eq!(pki.crl(id).await.serials(), ["4e"]);
    }
    let shared = pki.crl(&old_id).await;
    assert_eq!(shared.der, pki.crl(&new_id).await.der);
    assert!(shared.number() >= alone.number());
    // The CRL continues after a restart, and after the older of the two issuers is deleted.
    let pki = pki.restart().await;
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
async fn encodings_of_one_name_are_one_issuer_and_responder() {
    let pki = Pki::empty().await;
    let (old, new) = roots();
    // These certificates contain the issuer's name in the old encoding, which the mount does not have.
    let below = old.intermediate("/CN=Below", &[]);
    let leaf = old.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    let id = pki.import_one(&new.bundle()).await;
    pki.post("revoke", json!({ "certificate": leaf })).await;
    assert_eq!(status(&pki, &new.pem, &leaf).await, "unknown", "nobody here knows this encoding");
    let below_id = pki.import_one(&below.pem).await;
    let chain = pki.get(&format!("issuer/{below_id}")).await["ca_chain"].clone();
    assert_eq!(chain.as_array().unwrap().len(), 2, "{chain}");
    let at = pki.now();
    let entries = [encode_entry(&Serial::from_octets(&[80]).unwrap(), at, None, None)];
    let answer = imported_crl::sent(&pki.app.client, imported_crl::list(&old, 9, &entries, at, &[])).await;
    assert_eq!(answer.body["data"]["issuers"], json!([id]), "{}", answer.text);
    // Issuer name and serial number identify one certificate.
    let collides = Ca::root_with(new_key("ec-256"), "/O=example org/CN=root", CA, &["-set_serial", "2"]);
    pki.refused("issuers/import/cert", json!({ "pem_bundle": collides.pem }), "collides").await;
    assert_eq!(status(&pki, &new.pem, &below.pem).await, "good");
    assert_eq!(status(&pki, &new.pem, &leaf).await, "revoked");
    let own = new.signs(&foreign::csr("ec-256", "/CN=own", ""), "", &["-set_serial", "79"]);
    pki.post("revoke", json!({ "certificate": own })).await;
    pki.import(&old.pem).await;
    for (issuer, certificate) in [(&old, &leaf), (&old, &own), (&new, &leaf), (&new, &own)] {
        assert_eq!(status(&pki, &issuer.pem, certificate).await, "revoked");
    }
    // The name alone is not enough: a CA with another key is a different CA.
    let other = Ca::root("/O=Example Org/CN=Root");
    let leaf = other.signs(&foreign::csr("ec-256", "/CN=leaf", ""), "", &["-set_serial", "78"]);
    pki.import(&other.pem).await;
    let id = cert_id(CertIdHash::Sha1, &parse(&other.pem), &parse(&leaf).serial());
    pki.ocsp(&request(&[id], None)).await.assert_fails(401, 6);
    pki.stop().await;
}
