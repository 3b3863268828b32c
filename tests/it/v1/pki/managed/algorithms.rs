//! A managed key that supports only some of the algorithms: they are the defaults of requests, and requests for other
//! algorithms are rejected.

use std::sync::Arc;

use serde_json::json;

use super::device::Device;
use crate::v1::pki::foreign::{CA, Ca, csr, openssl_verifies_chain, signature_algorithm};
use crate::v1::pki::mount::{FAR, Pki, text, with};
use crate::v1::pki::ocsp::about;

const PSS: &str = "rsassaPss";

async fn start() -> (Arc<Device>, Pki) {
    let (device, pki) = super::start().await;
    device.make("token", "rsa-pss");
    (device, pki)
}

/// Asserts that an issuer signs everything with PSS: a leaf, CRLs, OCSP responses.
async fn signs_with_pss(pki: &Pki, issuer: &str) {
    let shown = pki.get(&format!("issuer/{issuer}")).await;
    assert_eq!(shown["revocation_signature_algorithm"], "SHA256WithRSAPSS");
    let certificate = text(&shown, "certificate");
    let issue = format!("issuer/{issuer}/issue/r");
    let body = json!({ "common_name": "a.test", "ttl": "1h" });
    for role in [json!({}), json!({ "use_pss": true, "signature_bits": 384 }), json!({ "key_type": "ec" })] {
        pki.role(&with(&json!({ "allow_any_name": true }), role)).await;
        let leaf = pki.ask(&issue, body.clone()).await;
        assert!(signature_algorithm(&leaf.pem).starts_with(PSS), "{}", leaf.pem);
    }
    let leaf = pki.ask(&issue, body).await;
    let list = pki.crl(issuer).await;
    assert!(list.is_signed_by(certificate) && list.text.contains(PSS), "{}", list.text);
    let answer = pki.ocsp(&about(certificate, &leaf)).await;
    assert_eq!(answer.statuses(), ["good"]);
    assert!(answer.text().contains(PSS));
}

#[actix_web::test]
async fn root_and_its_crls_use_an_algorithm_of_the_key() {
    let (_device, pki) = start().await;
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": "token", "not_after": FAR });
    for (path, name) in [
        ("root/generate/kms", "root"),
        ("root/rotate/kms", "rotated"),
        ("issuers/generate/root/kms", "other"),
        ("root/generate/existing", "existing"),
    ] {
        let mut named = with(&root, json!({ "issuer_name": name }));
        if path.ends_with("existing") {
            named.as_object_mut().unwrap().remove("managed_key_name");
            named["key_ref"] = "default".into();
        }
        let made = pki.data(path, named).await;
        assert!(signature_algorithm(text(&made, "certificate")).starts_with(PSS), "{path}: {made}");
    }
    signs_with_pss(&pki, "root").await;
    pki.stop().await;
}

#[actix_web::test]
async fn intermediate_crls_use_an_algorithm_of_the_key() {
    let (_device, pki) = start().await;
    let wanted = json!({ "common_name": "Below", "managed_key_name": "token", "key_name": "token" });
    let request = pki.data("intermediate/generate/kms", wanted).await;
    let ca = Ca::root("/CN=Above");
    let below = ca.signs(text(&request, "csr"), CA, &[]);
    let set = pki.post("intermediate/set-signed", json!({ "certificate": below })).await;
    assert!(!set.warnings().contains("CRL rebuild"), "{}", set.text);
    let id = set.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    signs_with_pss(&pki, &id).await;
    let leaf = pki.ask(&format!("issuer/{id}/issue/r"), json!({ "common_name": "b.test", "ttl": "1h" })).await;
    openssl_verifies_chain(&ca.pem, &[&below], &leaf.pem).unwrap();

    // The setting is validated against the key when it is written.
    let path = format!("issuer/{id}");
    for (algorithm, rule) in [
        ("SHA256WithRSA", "revocation_signature_algorithm: the key does not sign with SHA256WithRSA"),
        ("ECDSAWithSHA256", "revocation_signature_algorithm: incompatible with"),
    ] {
        pki.refused(&path, json!({ "revocation_signature_algorithm": algorithm }), rule).await;
    }
    for (written, shown) in [("SHA512WithRSAPSS", "SHA512WithRSAPSS"), ("", "SHA256WithRSAPSS")] {
        pki.post(&path, json!({ "revocation_signature_algorithm": written })).await;
        assert_eq!(pki.get(&path).await["revocation_signature_algorithm"], shown);
        assert!(pki.crl(&id).await.is_signed_by(&below));
    }
    // The certificate is imported before the key.
    assert_eq!(pki.app.client.delete(&format!("pki/{path}")).await.status, 200);
    assert_eq!(pki.app.client.delete("pki/key/token").await.status, 200);
    let set = pki.data("intermediate/set-signed", json!({ "certificate": below })).await;
    pki.post("keys/generate/kms", json!({ "managed_key_name": "token" })).await;
    signs_with_pss(&pki, set["imported_issuers"][0].as_str().unwrap()).await;
    pki.stop().await;
}

#[actix_web::test]
async fn unsupported_algorithm_error_names_the_supported_ones() {
    let (device, pki) = start().await;
    device.make("old", "rsa-512");
    let root =
        |key: &str| json!({ "common_name": "Root", "issuer_name": key, "managed_key_name": key, "not_after": FAR });
    let text = "the key does not sign with SHA256WithRSAPSS; the key supports SHA512WithRSA";
    pki.refused("root/generate/kms", with(&root("old"), json!({ "use_pss": true })), text).await;
    let bits = json!({ "signature_bits": 384 });
    let text = "the key does not sign with SHA384WithRSA; the key supports SHA512WithRSA";
    pki.refused("root/generate/kms", with(&root("old"), bits.clone()), text).await;
    pki.refused("intermediate/generate/kms", with(&root("old"), bits.clone()), text).await;
    pki.post("root/generate/kms", root("old")).await;
    let asked = json!({ "csr": csr("ec-256", "/CN=b.test", ""), "common_name": "b.test" });
    for path in ["sign-verbatim", "root/sign-intermediate"] {
        pki.refused(path, with(&asked, bits.clone()), text).await;
        pki.certify(path, with(&asked, json!({ "signature_bits": 512 }))).await;
    }
    for (role, fits) in [
        (json!({ "signature_bits": 384 }), false),
        (json!({ "use_pss": true }), false),
        (json!({ "key_type": "ec", "signature_bits": 256 }), false),
        (json!({ "signature_bits": 256 }), true),
        (json!({ "signature_bits": 0 }), true),
        (json!({ "signature_bits": 512 }), true),
    ] {
        pki.role(&with(&json!({ "allow_any_name": true, "key_type": "rsa" }), role.clone())).await;
        let issue = json!({ "common_name": "a.test", "ttl": "1h" });
        if fits {
            let leaf = pki.ask("issue/r", issue).await;
            assert_eq!(signature_algorithm(&leaf.pem), "sha512WithRSAEncryption", "{role}");
        } else {
            pki.refused("issue/r", issue, "; the key supports SHA512WithRSA").await;
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn crl_algorithm_follows_a_replaced_managed_key() {
    let (device, pki) = start().await;
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": "token", "not_after": FAR });
    pki.post("root/generate/kms", root).await;
    device.alias("token", "other", &["SHA512WithRSA"]);
    pki.post("keys/generate/kms", json!({ "managed_key_name": "other" })).await;
    let shown = pki.get("issuer/root").await;
    assert_eq!(shown["revocation_signature_algorithm"], "SHA512WithRSA");
    pki.get("crl/rotate").await;
    assert!(pki.crl("root").await.is_signed_by(text(&shown, "certificate")));
    pki.stop().await;
}
