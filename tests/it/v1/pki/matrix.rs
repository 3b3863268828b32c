//! Every type of subject key under every type of issuer key, by role and by issuer path, verified by openssl and
//! GnuTLS.

use serde_json::json;

use super::foreign::{Files, csr, gnutls_verifies, openssl_verifies};
use super::mount::{Pki, text};

/// Too slow to generate in a test: created by openssl, without the private key.
const RSA_8192: &str = include_str!("../../fixtures/rsa-8192.csr.pem");

const ISSUERS: [(&str, &str, u32); 5] =
    [("rsa", "rsa", 2048), ("p256", "ec", 256), ("p384", "ec", 384), ("p521", "ec", 521), ("ed", "ed25519", 0)];
const KEYS: [&str; 8] = ["rsa-2048", "rsa-3072", "rsa-4096", "ec-224", "ec-256", "ec-384", "ec-521", "ed25519"];

#[actix_web::test]
async fn every_key_type_under_every_issuer() {
    let pki = Pki::empty().await;
    let files = Files::new();
    let mut requests = vec![("rsa-8192", RSA_8192.to_owned())];
    requests.extend(KEYS.map(|kind| (kind, csr(kind, &format!("/CN={kind}.test"), ""))));
    for (name, key_type, bits) in ISSUERS {
        let root = json!({ "issuer_name": name, "common_name": name, "key_type": key_type, "key_bits": bits });
        let root = files.write(name, text(&pki.root(root).await, "certificate").as_bytes());
        let role = json!({ "issuer_ref": name, "key_type": "any", "allow_any_name": true });
        pki.post(&format!("roles/{name}"), role).await;
        for (kind, csr) in &requests {
            // The second path has a role of another issuer: the issuer of the path takes precedence.
            for path in [format!("sign/{name}"), format!("issuer/{name}/sign/rsa")] {
                let leaf = pki.ask(&path, json!({ "csr": csr })).await;
                let file = files.write("leaf", leaf.pem.as_bytes());
                openssl_verifies(&root, &file).unwrap_or_else(|e| panic!("openssl: {kind} by {path}: {e}"));
                gnutls_verifies(&root, &file).unwrap_or_else(|e| panic!("GnuTLS: {kind} by {path}: {e}"));
            }
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn verifiers_reject_a_leaf_of_another_root() {
    let pki = Pki::start().await;
    let files = Files::new();
    let other = pki.root(json!({ "common_name": "Other" })).await;
    let other = files.write("other", text(&other, "certificate").as_bytes());
    let leaf = pki.issue(&json!({ "allow_any_name": true }), json!({ "common_name": "a.foo" })).await;
    let leaf = files.write("leaf", leaf.pem.as_bytes());
    assert!(openssl_verifies(&other, &leaf).is_err());
    assert!(gnutls_verifies(&other, &leaf).is_err());
    pki.stop().await;
}
