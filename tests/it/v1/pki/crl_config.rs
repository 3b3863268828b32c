//! `config/crl`: defaults, merging, and rejected values.

use serde_json::{Value, json};

use super::mount::{Pki, with};

fn defaults() -> Value {
    json!({
        "expiry": "72h",
        "disable": false,
        "ocsp_disable": false,
        "ocsp_expiry": "12h",
        "ocsp_unknown_serial": "unknown",
        "auto_rebuild": false,
        "auto_rebuild_grace_period": "12h",
        "enable_delta": false,
        "delta_rebuild_interval": "15m",
        "allow_expired_cert_revocation": false,
        "cross_cluster_revocation": false,
        "unified_crl": false,
        "unified_crl_on_existing_paths": false,
        "max_crl_entries": -1,
    })
}

#[actix_web::test]
async fn defaults_merging_and_a_restart() {
    let pki = Pki::start().await;
    assert_eq!(pki.get("config/crl").await, defaults());
    let mut expected = defaults();
    // Members that are read back as they are sent need no second column.
    for (change, read) in [
        (json!({ "max_crl_entries": 7, "ocsp_expiry": "0" }), None),
        (json!({ "expiry": 86400 }), Some(json!({ "expiry": "86400" }))),
        (json!({ "auto_rebuild": true, "auto_rebuild_grace_period": "90m" }), None),
        (json!({ "enable_delta": true, "delta_rebuild_interval": "1h" }), None),
        (json!({ "ocsp_disable": "true" }), Some(json!({ "ocsp_disable": true }))),
        (json!({ "unified_crl": true, "cross_cluster_revocation": true }), None),
        (json!({ "unified_crl_on_existing_paths": true, "allow_expired_cert_revocation": true }), None),
        (json!({ "max_crl_entries": 0 }), Some(json!({}))),
        (json!({ "expiry": null, "bogus": 1 }), Some(json!({}))),
        (json!({ "disable": true }), None),
    ] {
        expected = with(&expected, read.unwrap_or_else(|| change.clone()));
        assert_eq!(pki.data("config/crl", change.clone()).await, expected, "{change}");
        assert_eq!(pki.get("config/crl").await, expected);
    }
    let pki = pki.restart().await;
    assert_eq!(pki.get("config/crl").await, expected);
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_crl_configuration_is_rejected() {
    let pki = Pki::start().await;
    for (body, field) in [
        (json!({ "auto_rebuild": true, "auto_rebuild_grace_period": "72h" }), "auto_rebuild_grace_period: "),
        (json!({ "auto_rebuild": true, "expiry": "12h" }), "auto_rebuild_grace_period: "),
        (json!({ "enable_delta": true }), "enable_delta: "),
        (
            json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "72h" }),
            "delta_rebuild_interval: ",
        ),
        (json!({ "cross_cluster_revocation": true }), "cross_cluster_revocation: "),
        (json!({ "unified_crl": true }), "unified_crl: "),
        (json!({ "auto_rebuild": true, "unified_crl_on_existing_paths": true }), "unified_crl_on_existing_paths: "),
    ] {
        pki.refused("config/crl", body, field).await;
        assert_eq!(pki.get("config/crl").await, defaults());
    }
    // A setting cannot be changed while another one depends on it.
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.refused("config/crl", json!({ "auto_rebuild": false }), "enable_delta: ").await;
    pki.refused("config/crl", json!({ "expiry": "10m" }), "auto_rebuild_grace_period: ").await;
    pki.revoke(&pki.leaf().await).await;
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    pki.stop().await;
}
