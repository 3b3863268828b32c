//! Keys whose private half can be computed are rejected wherever a subject key comes from outside.

use serde_json::json;
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::encode_request_info;
use signet::x509::name::{self, Attribute};
use signet::x509::pieces::Extensions;
use signet::x509::writer::{self, SEQUENCE};
use signet::x509::{oid, pem, tbs};

use super::foreign::{CA, Ca, csr_of_key};
use super::mount::Pki;

/// A key with two primes of the form that CVE-2017-15361 describes, generated for this test.
const ROCA: &str = include_str!("../../fixtures/roca-2048.key.pem");
const ROCA_RULE: &str = "the RSA key's primes can be computed from its modulus (CVE-2017-15361)";

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
    let info = encode_request_info(&subject, &spki, &Extensions::default());
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
        &encode_request_info(&subject, &spki, &Extensions::default()),
        SignatureAlgorithm::Ed25519,
        &signature,
    );
    pem::encode("CERTIFICATE REQUEST", &signed)
}

/// The rules are unit tests in `src/x509/weak_key.rs`.
#[actix_web::test]
async fn weak_keys_are_rejected_in_csrs() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true, "key_type": "any" })).await;
    // 2^2048 − 1, divisible by 3; and 2^2558 − 45², the product of 2^1279 ± 45.
    let divided = [0xff; 256];
    let close = [&[0x3f][..], &[0xff; 317], &[0xf8, 0x17]].concat();
    for (csr, rule) in [
        (csr_of_key(ROCA, "/CN=a.test", "", &[]), ROCA_RULE),
        (identity_csr(), "the Ed25519 key is a point of small order"),
        (rsa_csr(&divided, &[1, 0, 1]), "the RSA modulus has a factor below 752"),
        (rsa_csr(&close, &[0x80, 0, 0, 1]), "the RSA public exponent is above 2^31 - 1"),
    ] {
        for path in ["sign/r", "issuer/root/sign/r", "sign-verbatim", "sign-verbatim/r", "root/sign-intermediate"] {
            let body = json!({ "csr": csr, "common_name": "a.test" });
            pki.refused(path, body, &format!("csr: {rule}")).await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn weak_keys_and_their_certificates_are_not_imported() {
    let pki = Pki::start().await;
    let ca = Ca::root_with(ROCA.to_owned(), "/CN=Weak", CA, &[]);
    for (path, body, field) in [
        ("issuers/import/bundle", json!({ "pem_bundle": ca.bundle() }), ""),
        ("config/ca", json!({ "pem_bundle": ca.bundle() }), ""),
        ("keys/import", json!({ "pem_bundle": ROCA }), "private key: "),
        ("issuers/import/cert", json!({ "pem_bundle": ca.pem }), "certificate: "),
        ("intermediate/set-signed", json!({ "certificate": ca.pem }), ""),
        ("root/sign-self-issued", json!({ "certificate": ca.pem }), "certificate: "),
    ] {
        pki.refused(path, body, &format!("{field}{ROCA_RULE}")).await;
    }
    pki.stop().await;
}
