//! Further operations with a managed key: decisions of an external policy engine, tidying, changed grants.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use signet::error::Kind;
use time::macros::datetime;

use super::device::Mode;
use super::{root, start, start_with, with_root};
use crate::signers::hsm::{Hsm, PIN, alone};
use crate::support::App;
use crate::v1::pki::external_policy::engine::Engine;
use crate::v1::pki::external_policy::settings;
use crate::v1::pki::foreign::{csr, openssl_verifies_chain};
use crate::v1::pki::mount::{self, FAR, Pki, text};

#[actix_web::test]
async fn external_policy_certificates_are_signed_by_the_managed_key() {
    let (device, pki) = with_root("ec").await;
    let issuer = text(&pki.get("issuer/root").await, "certificate").to_owned();
    let engine = Engine::start().await;
    pki.post("config/external-policy", settings(&engine)).await;
    let asked = json!({ "csr": csr("ec-256", "/CN=b.test", "") });
    for (path, body) in [("sign", asked.clone()), ("issue", json!({ "key_type": "ec" }))] {
        let leaf = pki.ask(&format!("external-policy/{path}"), body).await;
        openssl_verifies_chain(&issuer, &[], &leaf.pem).unwrap();
    }
    for (mode, status) in [(Mode::Refuses(Kind::Busy), 503), (Mode::Dies, 503), (Mode::Lies, 502)] {
        let before = pki.stored().await;
        let questions = engine.asked();
        device.set(mode);
        let refused = pki.app.client.post("pki/external-policy/sign", asked.clone()).await;
        assert_eq!(refused.status, status, "{mode:?}: {}", refused.text);
        assert_eq!((pki.stored().await, engine.asked()), (before, questions + 1), "{mode:?}");
        device.set(Mode::Slow);
    }
    pki.ask("external-policy/sign", asked).await;
    engine.stop().await;
    pki.stop().await;
}

async fn tidied(pki: &Pki) -> Value {
    let body = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "safety_buffer": "1h",
        "revoked_safety_buffer": "1h" });
    let answer = pki.app.client.post("pki/tidy", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    mount::until("the end of the run", async || pki.get("tidy-status").await["state"] != "Running").await;
    pki.get("tidy-status").await
}

#[actix_web::test]
async fn tidy_rebuilds_the_crl_with_the_managed_key() {
    let (device, pki) = start_with(App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC))).await;
    device.make("token", "ec");
    pki.post("keys/generate/kms", json!({ "managed_key_name": "token", "key_name": "token" })).await;
    pki.post("root/generate/existing", root("root")).await;
    let issuer = text(&pki.get("issuer/root").await, "certificate").to_owned();
    pki.role(&json!({ "allow_any_name": true })).await;
    let leaf = pki.ask("issue/r", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    pki.revoke(&leaf).await;
    assert_eq!(pki.crl("root").await.serials(), [leaf.serial()]);
    pki.app.clock.advance(Duration::from_secs(3 * 3600));
    let signed = device.begun.load(Ordering::SeqCst);
    let status = tidied(&pki).await;
    assert_eq!((&status["state"], &status["error"]), (&json!("Finished"), &Value::Null));
    assert_eq!((&status["cert_store_deleted_count"], &status["revoked_cert_deleted_count"]), (&json!(1), &json!(1)));
    let list = pki.crl("root").await;
    assert!(list.serials().is_empty() && list.is_signed_by(&issuer));
    assert!(device.begun.load(Ordering::SeqCst) > signed);

    // An unavailable device does not block tidying: only the CRL is missing, which is reported and built later.
    let leaf = pki.ask("issue/r", json!({ "common_name": "b.test", "ttl": "1h" })).await;
    pki.revoke(&leaf).await;
    pki.app.clock.advance(Duration::from_secs(3 * 3600));
    device.set(Mode::Refuses(Kind::Unavailable));
    let status = tidied(&pki).await;
    assert_eq!((&status["state"], &status["error"]), (&json!("Error"), &json!("the device refuses")));
    assert_eq!(status["cert_store_deleted_count"], 1);
    device.set(Mode::Slow);
    assert_eq!(tidied(&pki).await["state"], "Finished");
    pki.get("crl/rotate").await;
    let list = pki.crl("root").await;
    assert!(list.serials().is_empty() && list.is_signed_by(&issuer));
    pki.stop().await;
}

/// Returns the number of RSA keys generated in this process.
async fn keys_made(pki: &Pki) -> f64 {
    let page = pki.app.client.page("/metrics").await.text;
    let lines = page.lines().filter(|line| line.starts_with("signet_key_generation_work_seconds_count"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Runs in its own process, because it counts generated keys.
#[test]
fn role_the_issuer_key_cannot_sign_is_rejected_before_keygen() {
    let name = "role_the_issuer_key_cannot_sign_is_rejected_before_keygen";
    alone(module_path!(), name, |_| async move {
        let (device, pki) = start().await;
        device.make("token", "rsa-pss-512");
        let root = json!({ "common_name": "Root", "managed_key_name": "token", "not_after": FAR });
        pki.post("root/generate/kms", root).await;
        pki.role(&json!({ "allow_any_name": true, "key_type": "rsa", "signature_bits": 384 })).await;
        let made = keys_made(&pki).await;
        let signed = device.begun.load(Ordering::SeqCst);
        let body = json!({ "common_name": "a.test", "ttl": "1h" });
        pki.refused("issue/r", body.clone(), "the key does not sign with SHA384WithRSA").await;
        assert_eq!((keys_made(&pki).await, device.begun.load(Ordering::SeqCst)), (made, signed));
        pki.role(&json!({ "allow_any_name": true, "key_type": "rsa" })).await;
        pki.ask("issue/r", body).await;
        assert_eq!(keys_made(&pki).await, made + 1.0);
        pki.stop().await;
    });
}

#[test]
fn removed_key_grant_warns_about_issuers_that_cannot_sign() {
    let name = "removed_key_grant_warns_about_issuers_that_cannot_sign";
    alone(module_path!(), name, |hsm: Hsm| async move {
        hsm.token("one");
        let pki = Pki { app: App::builder().libraries(hsm.libraries()).start().await };
        let client = &pki.app.client;
        for label in ["web", "mail"] {
            let key = json!({ "library": "hsm", "token_label": "one", "key_label": label, "mechanism": "0x1041",
                "pin": PIN, "curve": "P256", "allow_generate_key": "true" });
            assert_eq!(client.post(&format!("sys/managed-keys/pkcs11/{label}"), key).await.status, 200);
        }
        let tune = async |keys: &str| {
            let answer = client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": keys })).await;
            assert!(matches!(answer.status, 200 | 204), "{}", answer.text);
            answer.body["warnings"].clone()
        };
        assert_eq!(tune("web,mail").await, json!(null));
        for (name, key) in [("one", "web"), ("two", "mail"), ("three", "web")] {
            let root = json!({ "common_name": name, "issuer_name": name, "managed_key_name": key, "not_after": FAR });
            pki.post("root/generate/kms", root).await;
        }
        let lost = "allowed_managed_keys: these issuers can no longer sign, because the mount may not use their keys";
        assert_eq!(tune("mail,web").await, json!(null));
        assert_eq!(tune("mail").await, json!([format!("{lost}: one, three")]));
        assert_eq!(tune("mail,other").await, json!(null), "that was told before");
        assert_eq!(tune("").await, json!([format!("{lost}: two")]));
        assert_eq!(tune("web,mail").await, json!(null));
        let open = client.post("sys/managed-keys/pkcs11/web", json!({ "any_mount": "true" })).await;
        assert_eq!(open.status, 200, "{}", open.text);
        assert_eq!(tune("").await, json!([format!("{lost}: two")]), "the other is open to every mount");
        pki.stop().await;
    });
}
