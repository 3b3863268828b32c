//! `config/crl`: defaults, merging, and rejected values.

use serde_json::{Value, json};

use super::mount::Pki;

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
    let mut pki = Pki::start().await;
    assert_eq!(pki.get("config/crl").await, defaults());
    let mut expected = defaults();
    for change in [
        json!({ "expiry": 86400, "ocsp_expiry": "0", "max_crl_entries": 7 }),
        json!({ "auto_rebuild": true, "auto_rebuild_grace_period": "90m" }),
        json!({ "enable_delta": true, "delta_rebuild_interval": "1h", "ocsp_disable": "true" }),
        json!({ "unified_crl": true, "cross_cluster_revocation": true }),
        json!({ "unified_crl_on_existing_paths": true, "allow_expired_cert_revocation": true }),
        json!({ "max_crl_entries": 0 }),
        json!({ "expiry": null, "bogus": 1 }),
        json!({ "disable": true }),
    ] {
        let answer = pki.post("config/crl", change.clone()).await;
        for (name, value) in change.as_object().unwrap() {
            match (name.as_str(), value) {
                ("bogus", _) | (_, Value::Null) => {}
                ("max_crl_entries", zero) if zero == 0 => {}
                ("expiry", _) => expected["expiry"] = "86400".into(),
                ("ocsp_disable", _) => expected["ocsp_disable"] = true.into(),
                _ => expected[name] = value.clone(),
            }
        }
        assert_eq!(answer.body["data"], expected, "{change}");
        assert_eq!(pki.get("config/crl").await, expected);
    }
    pki = Pki { app: pki.app.restart().await };
    assert_eq!(pki.get("config/crl").await, expected);
    pki.app.client.with_token("").get("pki/config/crl").await.assert_denied();
    pki.app.client.with_token("").post("pki/config/crl", json!({})).await.assert_denied();
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_crl_configuration_is_rejected() {
    let pki = Pki::start().await;
    for (body, field) in [
        (json!({ "expiry": "abc" }), "expiry: "),
        (json!({ "expiry": 0 }), "expiry: "),
        (json!({ "expiry": "-5h" }), "expiry: "),
        (json!({ "expiry": ["72h"] }), "expiry"),
        (json!({ "ocsp_expiry": -1 }), "ocsp_expiry: "),
        (json!({ "auto_rebuild": true, "auto_rebuild_grace_period": "72h" }), "auto_rebuild_grace_period: "),
        (json!({ "auto_rebuild": true, "expiry": "12h" }), "auto_rebuild_grace_period: "),
        (json!({ "enable_delta": true }), "enable_delta: "),
        (
            json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "72h" }),
            "delta_rebuild_interval: ",
        ),
        (json!({ "delta_rebuild_interval": "soon" }), "delta_rebuild_interval: "),
        (json!({ "cross_cluster_revocation": true }), "cross_cluster_revocation: "),
        (json!({ "unified_crl": true }), "unified_crl: "),
        (json!({ "auto_rebuild": true, "unified_crl_on_existing_paths": true }), "unified_crl_on_existing_paths: "),
        (json!({ "max_crl_entries": 1.5 }), "max_crl_entries"),
        (json!({ "disable": "perhaps" }), "disable"),
        (json!({ "allow_expired_cert_revocation": 7 }), "allow_expired_cert_revocation"),
    ] {
        pki.refused("config/crl", body, field).await;
        assert_eq!(pki.get("config/crl").await, defaults());
    }
    // A setting cannot be changed while another one depends on it.
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.refused("config/crl", json!({ "auto_rebuild": false }), "enable_delta: ").await;
    pki.refused("config/crl", json!({ "expiry": "10m" }), "auto_rebuild_grace_period: ").await;
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost" })).await;
    pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    pki.stop().await;
}
