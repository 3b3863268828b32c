//! Accepted and rejected parameters of `tidy` and `config/auto-tidy`.

use serde_json::{Value, json};

use super::{start, status};
use crate::v1::pki::mount::{Pki, with};

/// Asserts that both endpoints reject the body.
async fn refused(pki: &Pki, body: Value, rule: &str) {
    pki.refused("tidy", with(&json!({ "tidy_cert_store": true }), body.clone()), rule).await;
    pki.refused("config/auto-tidy", body, rule).await;
}

#[actix_web::test]
async fn invalid_tidy_parameters_are_rejected() {
    let pki = start().await;
    for size in [json!(1), json!(3), json!("4")] {
        refused(&pki, json!({ "page_size": size }), "page_size: must be at least 5").await;
    }
    for buffer in [
        "safety_buffer",
        "revoked_safety_buffer",
        "issuer_safety_buffer",
        "revocation_queue_safety_buffer",
        "acme_account_safety_buffer",
    ] {
        for value in [json!(0), json!("0s"), json!(""), json!("999ms")] {
            refused(&pki, json!({ (buffer): value }), &format!("{buffer}: must be at least one second")).await;
        }
        for value in [json!("-1s"), json!(-3600), json!("soon"), json!({})] {
            refused(&pki, json!({ (buffer): value }), buffer).await;
        }
    }
    for value in [json!("soon"), json!("-1s"), json!(-1), json!([])] {
        refused(&pki, json!({ "pause_duration": value }), "pause_duration").await;
    }
    refused(&pki, json!({ "tidy_cert_store": "perhaps" }), "tidy_cert_store").await;
    refused(&pki, json!({ "page_size": "many" }), "page_size").await;
    assert_eq!(status(&pki).await["state"], "Inactive", "nothing was started");
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_auto_tidy_configuration_is_rejected() {
    let pki = start().await;
    let before = pki.get("config/auto-tidy").await;
    for (body, rule) in [
        (json!({ "enabled": true }), "enabled: needs something to do; set one of tidy_cert_store"),
        (json!({ "publish_stored_certificate_count_metrics": true }), "needs maintain_stored_certificate_counts"),
        (json!({ "interval_duration": 0 }), "interval_duration: must be at least one second"),
        (json!({ "interval_duration": "500ms" }), "interval_duration: must be at least one second"),
        (json!({ "interval_duration": "-1h" }), "interval_duration"),
        (json!({ "min_startup_backoff_duration": 0 }), "min_startup_backoff_duration: must be at least one second"),
        (json!({ "max_startup_backoff_duration": "1s" }), "max_startup_backoff_duration: must not be below"),
    ] {
        pki.refused("config/auto-tidy", body, rule).await;
    }
    assert_eq!(pki.get("config/auto-tidy").await, before);
    pki.post("config/auto-tidy", json!({ "enabled": true, "tidy_acme": true })).await;
    pki.refused("config/auto-tidy", json!({ "tidy_acme": false }), "enabled: needs something to do").await;
    pki.post("config/auto-tidy", json!({ "tidy_acme": false, "enabled": false })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn auto_tidy_has_its_defaults_and_merges() {
    let pki = start().await;
    let defaults = json!({
        "enabled": false, "interval_duration": 43_200, "min_startup_backoff_duration": 300,
        "max_startup_backoff_duration": 900, "maintain_stored_certificate_counts": false,
        "publish_stored_certificate_count_metrics": false, "tidy_cert_store": false, "tidy_revoked_certs": false,
        "tidy_revoked_cert_issuer_associations": false, "tidy_expired_issuers": false,
        "tidy_move_legacy_ca_bundle": false, "tidy_revocation_queue": false,
        "tidy_cross_cluster_revoked_certs": false, "tidy_acme": false, "tidy_cert_metadata": false,
        "tidy_invalid_certs": false, "safety_buffer": 259_200, "revoked_safety_buffer": 259_200,
        "issuer_safety_buffer": 31_536_000, "revocation_queue_safety_buffer": 172_800,
        "acme_account_safety_buffer": 2_592_000, "pause_duration": "0s", "page_size": 1000,
    });
    assert_eq!(pki.get("config/auto-tidy").await, defaults);
    let first = json!({ "tidy_cert_store": "true", "safety_buffer": "1h", "pause_duration": "25ms", "page_size": -1 });
    let answer = pki.post("config/auto-tidy", with(&first, json!({ "bogus": 1 }))).await;
    assert_eq!(answer.warnings(), "Endpoint ignored these unrecognized parameters: [bogus]");
    let changed = with(
        &defaults,
        json!({ "tidy_cert_store": true, "safety_buffer": 3600,
        "revoked_safety_buffer": 3600, "pause_duration": "25ms", "page_size": -1 }),
    );
    assert_eq!(answer.body["data"], changed);
    let more = json!({ "enabled": true, "interval_duration": "1d", "maintain_stored_certificate_counts": true,
        "publish_stored_certificate_count_metrics": true, "revoked_safety_buffer": "2h", "safety_buffer": null });
    pki.post("config/auto-tidy", more).await;
    let changed = with(
        &changed,
        json!({ "enabled": true, "interval_duration": 86_400,
        "maintain_stored_certificate_counts": true, "publish_stored_certificate_count_metrics": true,
        "revoked_safety_buffer": 7200 }),
    );
    assert_eq!(pki.get("config/auto-tidy").await, changed);
    let pki = Pki { app: pki.app.restart().await };
    assert_eq!(pki.get("config/auto-tidy").await, changed, "a restart keeps it");
    // A manual run starts from the defaults, not from these settings.
    let answer = pki.app.client.post("pki/tidy", json!({ "tidy_acme": true, "bogus": 1 })).await;
    assert_eq!(answer.status, 202);
    assert!(answer.warnings().contains("[bogus]"), "{}", answer.text);
    assert_eq!(super::until(&pki, "Finished").await["safety_buffer"], 259_200);
    pki.stop().await;
}

#[actix_web::test]
async fn each_endpoint_needs_its_policy() {
    let pki = start().await;
    pki.app.policy("reader", "path \"pki/tidy-status\" { capabilities = [\"read\"] }").await;
    let reader = pki.app.with_policies(&["reader"]).await;
    assert_eq!(reader.get("pki/tidy-status").await.status, 200);
    for client in [reader, pki.app.client.with_token("")] {
        for path in ["pki/tidy", "pki/tidy-cancel", "pki/config/auto-tidy"] {
            client.post(path, json!({ "tidy_cert_store": true })).await.assert_denied();
        }
        client.get("pki/config/auto-tidy").await.assert_denied();
    }
    assert_eq!(status(&pki).await["state"], "Inactive");
    pki.stop().await;
}
