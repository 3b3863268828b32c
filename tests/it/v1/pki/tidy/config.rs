//! Accepted and rejected parameters of `tidy` and `config/auto-tidy`.

use serde_json::json;

use super::{start, status};
use crate::v1::pki::mount::with;

/// The rules of each field are unit tests in `src/http/secrets/pki/tidy/members.rs`.
#[actix_web::test]
async fn invalid_tidy_parameters_are_rejected_by_both_endpoints() {
    let pki = start().await;
    let before = pki.get("config/auto-tidy").await;
    for (body, rule) in [
        (json!({ "page_size": 3 }), "page_size: must be at least 5"),
        (json!({ "safety_buffer": "999ms" }), "safety_buffer: must be at least one second"),
        (json!({ "pause_duration": "-1s" }), "pause_duration"),
    ] {
        pki.refused("tidy", with(&json!({ "tidy_cert_store": true }), body.clone()), rule).await;
        pki.refused("config/auto-tidy", body, rule).await;
    }
    assert_eq!(status(&pki).await["state"], "Inactive", "nothing was started");
    let idle = "enabled: no task is selected; set one of tidy_cert_store";
    pki.refused("config/auto-tidy", json!({ "enabled": true }), idle).await;
    assert_eq!(pki.get("config/auto-tidy").await, before);
    pki.post("config/auto-tidy", json!({ "enabled": true, "tidy_acme": true })).await;
    pki.refused("config/auto-tidy", json!({ "tidy_acme": false }), idle).await;
    pki.post("config/auto-tidy", json!({ "tidy_acme": false, "enabled": false })).await;
    pki.stop().await;
}

/// The defaults are in `recorded/pki-revocation.txt`.
#[actix_web::test]
async fn auto_tidy_settings_are_merged_and_kept() {
    let pki = start().await;
    let defaults = pki.get("config/auto-tidy").await;
    let first = json!({ "tidy_cert_store": "true", "safety_buffer": "1h", "pause_duration": "25ms", "page_size": -1 });
    let answer = pki.post("config/auto-tidy", with(&first, json!({ "bogus": 1 }))).await;
    assert_eq!(answer.warnings(), "Endpoint ignored these unrecognized parameters: [bogus]");
    let changed = json!({ "tidy_cert_store": true, "safety_buffer": 3600, "revoked_safety_buffer": 3600,
        "pause_duration": "25ms", "page_size": -1 });
    let changed = with(&defaults, changed);
    assert_eq!(answer.body["data"], changed);
    let more = json!({ "enabled": true, "interval_duration": "1d", "maintain_stored_certificate_counts": true,
        "publish_stored_certificate_count_metrics": true, "revoked_safety_buffer": "2h", "safety_buffer": null });
    pki.post("config/auto-tidy", more.clone()).await;
    let shown = json!({ "interval_duration": 86_400, "revoked_safety_buffer": 7200, "safety_buffer": 3600 });
    let changed = with(&changed, with(&more, shown));
    assert_eq!(pki.get("config/auto-tidy").await, changed);
    let pki = pki.restart().await;
    assert_eq!(pki.get("config/auto-tidy").await, changed, "a restart keeps it");
    // A manual run starts from the defaults, not from these settings.
    let answer = pki.app.client.post("pki/tidy", json!({ "tidy_acme": true, "bogus": 1 })).await;
    assert_eq!(answer.status, 202);
    assert!(answer.warnings().contains("[bogus]"), "{}", answer.text);
    assert_eq!(super::until(&pki, "Finished").await["safety_buffer"], 259_200);
    pki.stop().await;
}
