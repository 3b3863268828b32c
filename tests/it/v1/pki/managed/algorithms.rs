//! A managed key that signs with some algorithms only: an issuer of it says early what it cannot do, and is made so
//! that its lists and answers are signed by what it can.

use std::sync::Arc;

use serde_json::json;
use signet::x509::ocsp::IdHash;

use super::device::Device;
use super::text;
use crate::support::App;
use crate::v1::pki::foreign::{CA, Ca, openssl_verifies_chain, signature_algorithm};
use crate::v1::pki::mount::{FAR, Pki, parse, with};
use crate::v1::pki::ocsp::{cert_id, request};

const RULE: &str = "the key signs with RSASSA-PSS alone";
const PSS: &str = "rsassaPss";

async fn start() -> (Arc<Device>, Pki) {
    let device = Device::new();
    device.make("token", "rsa-pss");
    let app = App::builder().signers(device.clone()).start().await;
    (device, Pki { app })
}

/// That an issuer with a leaf signs what an authority signs, all of it with PSS.
async fn signs_with_pss(pki: &Pki, issuer: &str) {
    let shown = pki.get(&format!("issuer/{issuer}")).await;
    assert_eq!(shown["revocation_signature_algorithm"], "SHA256WithRSAPSS");
    let certificate = text(&shown, "certificate");
    let (issue, body) = (format!("issuer/{issuer}/issue/r"), json!({ "common_name": "a.test", "ttl": "1h" }));
    pki.role(&json!({ "allow_any_name": true })).await;
    pki.refused(&issue, body.clone(), RULE).await;
    pki.role(&json!({ "allow_any_name": true, "use_pss": true, "signature_bits": 384 })).await;
    let leaf = pki.ask(&issue, body).await;
    assert!(signature_algorithm(&leaf.pem).starts_with(PSS), "{}", leaf.pem);
    let list = pki.crl(issuer).await;
    assert!(list.is_signed_by(certificate) && list.text.contains(PSS), "{}", list.text);
    let about = request(&[cert_id(IdHash::Sha1, &parse(certificate), &leaf.certificate.serial())], None);
    let answer = pki.ocsp(&about).await;
    assert_eq!(answer.statuses(), ["good"]);
    assert!(answer.text().contains(PSS));
}

#[actix_web::test]
async fn a_root_is_made_with_what_its_key_signs_and_so_are_its_lists() {
    let (_device, pki) = start().await;
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": "token", "not_after": FAR });
    for path in ["root/generate/kms", "root/rotate/kms", "issuers/generate/root/kms"] {
        pki.refused(path, root.clone(), RULE).await;
    }
    let pss = with(&root, json!({ "use_pss": true }));
    let certificate = pki.post("root/generate/kms", pss).await.body["data"]["certificate"].clone();
    assert!(signature_algorithm(certificate.as_str().unwrap()).starts_with(PSS), "{certificate}");
    pki.refused("root/generate/existing", json!({ "common_name": "Other" }), RULE).await;
    signs_with_pss(&pki, "root").await;
    pki.stop().await;
}

#[actix_web::test]
async fn an_intermediate_that_is_set_signed_signs_its_lists_with_what_its_key_signs() {
    let (_device, pki) = start().await;
    let wanted = json!({ "common_name": "Below", "managed_key_name": "token", "key_name": "token" });
    pki.refused("intermediate/generate/kms", wanted.clone(), RULE).await;
    let pss = with(&wanted, json!({ "use_pss": true }));
    let csr = pki.post("intermediate/generate/kms", pss).await.body["data"]["csr"].clone();
    let ca = Ca::root("/CN=Above");
    let below = ca.signs(csr.as_str().unwrap(), CA, &[]);
    let set = pki.post("intermediate/set-signed", json!({ "certificate": below })).await;
    assert!(!set.warnings().contains("CRL rebuild"), "{}", set.text);
    let id = set.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    signs_with_pss(&pki, &id).await;
    let leaf = pki.ask(&format!("issuer/{id}/issue/r"), json!({ "common_name": "b.test", "ttl": "1h" })).await;
    openssl_verifies_chain(&ca.pem, &[&below], &leaf.pem).unwrap();

    // Its setting is held against the key when it is written.
    let path = format!("issuer/{id}");
    for (algorithm, rule) in [
        ("SHA256WithRSA", format!("revocation_signature_algorithm: {RULE}")),
        ("ECDSAWithSHA256", "revocation_signature_algorithm: does not suit".to_owned()),
    ] {
        pki.refused(&path, json!({ "revocation_signature_algorithm": algorithm }), &rule).await;
    }
    for (written, shown) in [("SHA512WithRSAPSS", "SHA512WithRSAPSS"), ("", "SHA256WithRSAPSS")] {
        pki.post(&path, json!({ "revocation_signature_algorithm": written })).await;
        assert_eq!(pki.get(&path).await["revocation_signature_algorithm"], shown);
        assert!(pki.crl(&id).await.is_signed_by(&below));
    }
    // The key comes later than the certificate.
    assert_eq!(pki.app.client.delete(&format!("pki/{path}")).await.status, 200);
    assert_eq!(pki.app.client.delete("pki/key/token").await.status, 200);
    let set = pki.post("intermediate/set-signed", json!({ "certificate": below })).await;
    let id = set.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    pki.post("keys/generate/kms", json!({ "managed_key_name": "token" })).await;
    signs_with_pss(&pki, &id).await;
    pki.stop().await;
}
