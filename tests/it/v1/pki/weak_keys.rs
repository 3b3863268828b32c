//! Keys whose private half can be computed are rejected wherever a subject key comes from outside.

use serde_json::json;
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::request_info;
use signet::x509::name::{self, Attribute};
use signet::x509::pieces::Extensions;
use signet::x509::writer::{self, SEQUENCE};
use signet::x509::{oid, pem, tbs};

use super::foreign::{CA, Ca, Files, openssl_text};
use super::mount::Pki;

/// A key with two primes of the form that CVE-2017-15361 describes, generated for this test.
const ROCA: &str = include_str!("../../fixtures/roca-2048.key.pem");
const ROCA_RULE: &str = "the RSA key's primes can be worked out from its modulus (CVE-2017-15361)";
const ED25519_RULE: &str = "the Ed25519 key is a point of small order";

fn roca_csr() -> String {
    let files = Files::new();
    let key = files.write("key.pem", ROCA.as_bytes());
    let config = files.write("req.cnf", b"[req]\ndistinguished_name = dn\n[dn]\n");
    let key = key.to_str().unwrap();
    let config = config.to_str().unwrap();
    openssl_text(&["req", "-new", "-key", key, "-config", config, "-subj", "/CN=a.test"], b"")
}

/// Returns a CSR for an RSA key of these numbers with an invalid signature: the key is checked before it.
pub fn rsa_csr(modulus: &[u8], exponent: &[u8]) -> String {
    let subject = name::name(&[&name::rdn(Attribute::CommonName, &["a.test".to_owned()])]);
    let key = writer::build(SEQUENCE, 0, |w| {
        w.unsigned(modulus);
        w.unsigned(exponent);
    });
    let spki = writer::build(SEQUENCE, 0, |w| {
        w.nest(SEQUENCE, |w| {
            w.oid(oid::RSA_ENCRYPTION);
            w.tlv(writer::NULL, &[]);
        });
        w.bit_string(&key);
    });
    let info = request_info(&subject, &spki, &Extensions::default());
    pem::encode(
        "CERTIFICATE REQUEST",
        &tbs::encode_signed(&info, SignatureAlgorithm::RsaPkcs1(Hash::Sha256), &[1; 256]),
    )
}

/// Returns a CSR for the identity point: a signature that is valid for every message needs no private key.
fn identity_csr() -> String {
    let subject = name::name(&[&name::rdn(Attribute::CommonName, &["a.test".to_owned()])]);
    let mut identity = [0; 32];
    identity[0] = 1;
    // SubjectPublicKeyInfo of RFC 8410 section 4.
    let spki = [&[0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0][..], &identity].concat();
    let signature = [&identity[..], &[0; 32]].concat();
    let signed = tbs::encode_signed(
        &request_info(&subject, &spki, &Extensions::default()),
        SignatureAlgorithm::Ed25519,
        &signature,
    );
    pem::encode("CERTIFICATE REQUEST", &signed)
}

#[actix_web::test]
async fn small_order_ed25519_and_roca_rsa_keys_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "key_type": "any" })).await;
    for (csr, rule) in [(roca_csr(), ROCA_RULE), (identity_csr(), ED25519_RULE)] {
        for path in ["sign/r", "issuer/root/sign/r", "sign-verbatim", "sign-verbatim/r", "root/sign-intermediate"] {
            let body = json!({ "csr": csr, "common_name": "a.test" });
            pki.refused(path, body, &format!("csr: {rule}")).await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn factorable_rsa_keys_and_large_exponents_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "key_type": "any" })).await;
    // 2^2048 − 1, divisible by 3; the square of the prime 2^1279 − 1; and 2^2558 − 45², the product of 2^1279 ± 45.
    let divided = [0xff; 256];
    let square = [&[0x3f][..], &[0xff; 159], &[0; 159], &[1]].concat();
    let close = [&[0x3f][..], &[0xff; 317], &[0xf8, 0x17]].concat();
    for (modulus, exponent, rule) in [
        (&divided[..], &[1, 0, 1][..], "the RSA modulus has a factor below 752"),
        (&square, &[1, 0, 1], "the RSA modulus is the power of a number"),
        (&close, &[1, 0, 1], "the RSA modulus has two factors so close"),
        (&close, &[0x80, 0, 0, 1], "the RSA public exponent is above 2^31 - 1"),
    ] {
        for path in ["sign/r", "sign-verbatim", "root/sign-intermediate"] {
            let body = json!({ "csr": rsa_csr(modulus, exponent), "common_name": "a.test" });
            pki.refused(path, body, &format!("csr: {rule}")).await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn weak_keys_and_their_certificates_are_not_imported() {
    let pki = Pki::start().await;
    let ca = Ca::root_with(ROCA.to_owned(), "/CN=Weak", CA, &[]);
    for path in ["issuers/import/bundle", "config/ca"] {
        pki.refused(path, json!({ "pem_bundle": ca.bundle() }), ROCA_RULE).await;
    }
    pki.refused("keys/import", json!({ "pem_bundle": ROCA }), &format!("private key: {ROCA_RULE}")).await;
    pki.refused("issuers/import/cert", json!({ "pem_bundle": ca.pem }), &format!("certificate: {ROCA_RULE}")).await;
    pki.refused("intermediate/set-signed", json!({ "certificate": ca.pem }), ROCA_RULE).await;
    pki.refused("root/sign-self-issued", json!({ "certificate": ca.pem }), &format!("certificate: {ROCA_RULE}")).await;
    pki.stop().await;
}
