//! `config/external-policy`.

use serde_json::json;

use super::engine::{Engine, Site};
use super::{csr, settings};
use crate::v1::pki::mount::{Pki, with};

#[actix_web::test]
async fn settings_are_merged_stored_and_never_read_back_with_the_key() {
    let pki = Pki::start().await;
    let defaults = json!({
        "enabled": false, "external_service_url": "", "timeout": 15, "trusted_ca": "",
        "trusted_leaf_certificate_bundle": "", "service_client_cert_bundle": "", "entity_jmespath": "",
        "group_jmespath": "", "external_service_last_updated": "", "external_service_validated": false,
        "last_successful_request": "",
    });
    assert_eq!(pki.get("config/external-policy").await, defaults);
    let engine = Engine::start().await;
    let site = Site::shared();
    let written = pki.data("config/external-policy", settings(&engine)).await;
    assert_eq!(written, pki.get("config/external-policy").await);
    assert_ne!(written["external_service_last_updated"], "");
    let mut expected = with(&defaults, settings(&engine));
    expected["external_service_last_updated"] = written["external_service_last_updated"].clone();
    expected["service_client_cert_bundle"] = site.pem("client").into();
    assert_eq!(written, expected);
    assert!(!written.to_string().contains("PRIVATE KEY"));
    let more = json!({ "timeout": "1m", "entity_jmespath": "@", "group_jmespath": "metadata.team" });
    let merged = pki.data("config/external-policy", more).await;
    assert_eq!((&merged["timeout"], &merged["enabled"]), (&json!(60), &json!(true)));
    assert_eq!(merged["external_service_url"], expected["external_service_url"]);
    for (body, rule) in [
        (json!({ "external_service_url": "http://127.0.0.1/" }), "external_service_url: must begin with https"),
        (json!({ "external_service_url": "" }), "external_service_url: must be set while enabled"),
        (json!({ "trusted_ca": "" }), "trusted_ca: it or trusted_leaf_certificate_bundle must be set"),
        (json!({ "trusted_ca": site.bundle("ca") }), "trusted_ca: must contain only PEM blocks of type CERTIFICATE"),
        (json!({ "service_client_cert_bundle": site.pem("client") }), "exactly one private key"),
        (
            json!({ "service_client_cert_bundle": site.pem("client") + &site.pem("ca-key") }),
            "service_client_cert_bundle: the private key is not the first certificate's",
        ),
        (json!({ "timeout": 0 }), "timeout: must be 1s to 60s"),
        (json!({ "timeout": "2m" }), "timeout: must be 1s to 60s"),
        (json!({ "entity_jmespath": "length(@)" }), "entity_jmespath: only @"),
    ] {
        pki.refused("config/external-policy", body, rule).await;
        assert_eq!(pki.get("config/external-policy").await, merged);
    }
    for host in ["169.254.169.254", "100.100.100.200", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "2852039166"]
    {
        let body = json!({ "external_service_url": format!("https://{host}/decide") });
        let rule = "external_service_url: the host's address is not permitted (loopback, link-local, multicast or metadata service)";
        pki.refused("config/external-policy", body, rule).await;
    }
    assert_eq!(engine.asked(), 0, "writing calls nobody");
    let pki = pki.restart().await;
    assert_eq!(pki.get("config/external-policy").await, merged);
    // A call validates the service until its address changes.
    let validation = async || {
        let read = pki.get("config/external-policy").await;
        (read["external_service_validated"] == true, read["last_successful_request"] != "")
    };
    assert_eq!(validation().await, (false, false));
    pki.ask("external-policy/sign", json!({ "csr": csr() })).await;
    assert_eq!((validation().await, engine.asked()), ((true, true), 1));
    pki.post("config/external-policy", json!({})).await;
    assert_eq!(validation().await, (true, true), "nothing changed");
    pki.post("config/external-policy", json!({ "external_service_url": "https://localhost:1/" })).await;
    assert_eq!(validation().await, (false, false));
    engine.stop().await;
    pki.stop().await;
}
