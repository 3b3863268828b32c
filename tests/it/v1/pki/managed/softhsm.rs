//! Authorities with their keys in a token, SoftHSM's: an RSA and a P-256 key, each as the root's and as the
//! intermediate's. What they sign is judged by openssl.

use serde_json::json;
use signet::x509::algorithm::{Curve, KeyKind};
use signet::x509::ocsp::IdHash;

use super::capped::Actors;
use super::{delta, text};
use crate::signers::hsm::{ECDSA, Hsm, RSA, alone, config, wide};
use crate::support::App;
use crate::v1::pki::foreign::{csr, openssl_verifies_chain};
use crate::v1::pki::mount::{FAR, Leaf, Pki, parse};
use crate::v1::pki::ocsp::{cert_id, request};

/// A server whose managed keys are in a token of the module; they are made when they are taken.
async fn start(hsm: &Hsm) -> Pki {
    hsm.token("one");
    let libraries = hsm.libraries();
    let keys = [("rsa", RSA, KeyKind::Rsa { bits: 2048 }), ("ec", ECDSA, KeyKind::Ec(Curve::P256))];
    let actors = keys.map(|(name, mechanism, kind)| wide(&libraries, config(mechanism, name, Some(kind)), 4));
    Pki { app: App::builder().signers(Actors::new(actors)).start().await }
}

/// What a relying party asks about a leaf, before and after it is revoked.
async fn is_revoked_for_everybody(pki: &Pki, issuer: &str, certificate: &str, leaf: &Leaf) {
    let about = request(&[cert_id(IdHash::Sha1, &parse(certificate), &leaf.certificate.serial())], None);
    assert_eq!(pki.ocsp(&about).await.statuses(), ["good"]);
    pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
    assert_eq!(pki.ocsp(&about).await.statuses(), ["revoked"]);
    pki.get("crl/rotate-delta").await;
    let added = delta(pki).await;
    assert_eq!((added.serials(), added.is_signed_by(certificate)), (vec![leaf.serial()], true));
    pki.get("crl/rotate").await;
    let complete = pki.crl(issuer).await;
    assert_eq!((complete.serials(), complete.is_signed_by(certificate)), (vec![leaf.serial()], true));
}

async fn a_chain(hsm: Hsm, root_key: &str, below_key: &str) {
    let pki = start(&hsm).await;
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": root_key, "not_after": FAR });
    let root = text(&pki.post("root/generate/kms", root).await.body["data"], "certificate").to_owned();
    let wanted = json!({ "common_name": "Below", "managed_key_name": below_key, "key_name": "below" });
    let wanted = pki.post("intermediate/generate/kms", wanted).await.body["data"]["csr"].clone();
    let signing = json!({ "csr": wanted, "common_name": "Below", "ttl": "4h" });
    let below = pki.certify("root/sign-intermediate", signing).await.pem;
    let set = pki.post("intermediate/set-signed", json!({ "certificate": below })).await.body["data"].clone();
    let id = set["imported_issuers"][0].as_str().unwrap().to_owned();
    let shown = pki.get("key/below").await;
    assert_eq!((&shown["key_type"], &shown["managed_key_name"]), (&json!(below_key), &json!(below_key)));
    pki.post("config/issuers", json!({ "default": id })).await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.role(&json!({ "allow_any_name": true })).await;

    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    let signed = pki.ask("sign/r", json!({ "csr": csr("ec-256", "/CN=b.test", ""), "ttl": "1h" })).await;
    let verbatim = pki.ask("sign-verbatim", json!({ "csr": csr("ec-256", "/CN=c.test", ""), "ttl": "1h" })).await;
    for certificate in [&leaf, &signed, &verbatim] {
        openssl_verifies_chain(&root, &[&below], &certificate.pem).unwrap();
    }
    is_revoked_for_everybody(&pki, &id, &below, &leaf).await;
    let of_root = pki.ask("issuer/root/issue/r", json!({ "common_name": "d.test", "ttl": "1h" })).await;
    openssl_verifies_chain(&root, &[], &of_root.pem).unwrap();
    assert!(pki.crl("root").await.is_signed_by(&root));
    pki.stop().await;
}

#[test]
fn a_root_of_rsa_and_an_intermediate_of_p256_in_a_token_issue_revoke_and_answer() {
    alone(
        module_path!(),
        "a_root_of_rsa_and_an_intermediate_of_p256_in_a_token_issue_revoke_and_answer",
        |hsm: Hsm| a_chain(hsm, "rsa", "ec"),
    );
}

#[test]
fn a_root_of_p256_and_an_intermediate_of_rsa_in_a_token_issue_revoke_and_answer() {
    alone(
        module_path!(),
        "a_root_of_p256_and_an_intermediate_of_rsa_in_a_token_issue_revoke_and_answer",
        |hsm: Hsm| a_chain(hsm, "ec", "rsa"),
    );
}
