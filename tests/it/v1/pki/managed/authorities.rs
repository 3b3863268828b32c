//! CAs with real managed keys, registered by the API: an RSA and a P-256 key, each for the root and for the
//! intermediate, in a SoftHSM token and at ministack. openssl verifies what they sign.

use serde_json::{Value, json};

use super::{chain, delta};
use crate::signers::hsm::{Hsm, PIN, alone};
use crate::support::App;
use crate::v1::pki::foreign::{csr, openssl_verifies_chain};
use crate::v1::pki::mount::{Leaf, Pki, with};
use crate::v1::pki::ocsp::about;

/// Registers a key of this type, which is generated at its first use and available to every mount.
async fn register(app: &App, path: &str, body: Value) {
    let shared = json!({ "allow_generate_key": "true", "any_mount": "true" });
    let answer = app.client.post(&format!("sys/managed-keys/{path}"), with(&shared, body)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
}

/// Starts a server with the keys `rsa` and `ec` in a token of the module.
async fn in_a_token(hsm: &Hsm) -> Pki {
    hsm.token("one");
    let app = App::builder().libraries(hsm.libraries()).start().await;
    let key = |label: &str| json!({ "library": "hsm", "token_label": "one", "key_label": label, "pin": PIN, "max_parallel": 4 });
    register(&app, "pkcs11/rsa", with(&key("rsa"), json!({ "mechanism": "0x0001", "key_bits": "2048" }))).await;
    register(&app, "pkcs11/ec", with(&key("ec"), json!({ "mechanism": "0x1041", "curve": "P256" }))).await;
    Pki { app }
}

/// Starts a server with the keys `rsa` and `ec` at the key service.
#[cfg(feature = "keys-aws")]
async fn at_a_service(stack: &crate::signers::cloud::ministack::Ministack) -> Pki {
    let app = App::start().await;
    let key = |alias: &str| {
        json!({ "access_key": "test", "secret_key": "test", "kms_key": alias, "endpoint": stack.url,
            "region": "us-east-1" })
    };
    let rsa = with(&key("alias/rsa"), json!({ "key_type": "RSA", "key_bits": "2048" }));
    register(&app, "cloudakms/rsa", rsa).await;
    register(&app, "cloudakms/ec", with(&key("alias/ec"), json!({ "key_type": "ECDSA", "curve": "P256" }))).await;
    Pki { app }
}

/// Revokes a leaf, and checks its OCSP status and the CRLs before and after it.
async fn is_revoked_for_everybody(pki: &Pki, issuer: &str, certificate: &str, leaf: &Leaf) {
    let about = about(certificate, leaf);
    assert_eq!(pki.ocsp(&about).await.statuses(), ["good"]);
    pki.revoke(leaf).await;
    assert_eq!(pki.ocsp(&about).await.statuses(), ["revoked"]);
    pki.get("crl/rotate-delta").await;
    let added = delta(pki).await;
    assert_eq!((added.serials(), added.is_signed_by(certificate)), (vec![leaf.serial()], true));
    pki.get("crl/rotate").await;
    let complete = pki.crl(issuer).await;
    assert_eq!((complete.serials(), complete.is_signed_by(certificate)), (vec![leaf.serial()], true));
}

/// Issues a certificate whose signed part exceeds the message limit of a key service.
async fn long_one(pki: &Pki) -> Leaf {
    let names: Vec<String> = (0..200).map(|n| format!("a-name-of-some-length-{n:03}.example.test")).collect();
    let body = json!({ "common_name": "long.test", "alt_names": names.join(","), "ttl": "1h" });
    let long = pki.ask("issue/r", body).await;
    assert!(long.pem.len() * 3 / 4 > 4096 + 512, "{}", long.pem.len());
    long
}

/// Tests a root with one of the keys, an intermediate with the other, and all that they sign.
async fn a_chain(pki: Pki, root_key: &str, below_key: &str) {
    let (root, below, id) = chain(&pki, root_key, below_key).await;
    let shown = pki.get("key/below").await;
    assert_eq!((&shown["key_type"], &shown["managed_key_name"]), (&json!(below_key), &json!(below_key)));
    pki.post("config/issuers", json!({ "default": id })).await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.role(&json!({ "allow_any_name": true })).await;

    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    let signed = pki.ask("sign/r", json!({ "csr": csr("ec-256", "/CN=b.test", ""), "ttl": "1h" })).await;
    let verbatim = pki.ask("sign-verbatim", json!({ "csr": csr("ec-256", "/CN=c.test", ""), "ttl": "1h" })).await;
    let long = long_one(&pki).await;
    for certificate in [&leaf, &signed, &verbatim, &long] {
        openssl_verifies_chain(&root, &[&below], &certificate.pem).unwrap();
    }
    is_revoked_for_everybody(&pki, &id, &below, &leaf).await;
    let of_root = pki.ask("issuer/root/issue/r", json!({ "common_name": "d.test", "ttl": "1h" })).await;
    openssl_verifies_chain(&root, &[], &of_root.pem).unwrap();
    assert!(pki.crl("root").await.is_signed_by(&root));
    pki.stop().await;
}

#[test]
fn hsm_rsa_root_and_p256_intermediate_issue_and_revoke() {
    alone(module_path!(), "hsm_rsa_root_and_p256_intermediate_issue_and_revoke", |hsm: Hsm| async move {
        a_chain(in_a_token(&hsm).await, "rsa", "ec").await
    });
}

#[test]
fn hsm_p256_root_and_rsa_intermediate_issue_and_revoke() {
    alone(module_path!(), "hsm_p256_root_and_rsa_intermediate_issue_and_revoke", |hsm: Hsm| async move {
        a_chain(in_a_token(&hsm).await, "ec", "rsa").await
    });
}

#[cfg(feature = "keys-aws")]
#[actix_web::test]
async fn cloud_root_and_intermediate_of_each_type_issue_and_revoke() {
    for (root_key, below_key) in [("rsa", "ec"), ("ec", "rsa")] {
        let stack = crate::signers::cloud::ministack::Ministack::start();
        a_chain(at_a_service(&stack).await, root_key, below_key).await;
    }
}
