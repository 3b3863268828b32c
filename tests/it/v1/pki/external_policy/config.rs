//! `config/external-policy`.

use serde_json::{Value, json};

use super::engine::{Engine, Site};
use super::{Governed, csr, settings};
use crate::support::App;
use crate::v1::pki::mount::{Pki, with};

#[actix_web::test]
async fn settings_are_merged_and_the_key_is_never_read_back() {
    let pki = Pki::empty().await;
    let defaults = json!({
        "enabled": false, "external_service_url": "", "timeout": 15, "trusted_ca": "",
        "trusted_leaf_certificate_bundle": "", "service_client_cert_bundle": "", "entity_jmespath": "",
        "group_jmespath": "", "external_service_last_updated": "", "external_service_validated": false,
        "last_successful_request": "",
    });
    assert_eq!(pki.get("config/external-policy").await, defaults);
    let engine = Engine::start().await;
    let written = pki.post("config/external-policy", settings(&engine)).await.body["data"].clone();
    assert_eq!(written, pki.get("config/external-policy").await);
    assert_ne!(written["external_service_last_updated"], "");
    let mut expected = with(&defaults, settings(&engine));
    expected["external_service_last_updated"] = written["external_service_last_updated"].clone();
    expected["service_client_cert_bundle"] = Site::shared().pem("client").into();
    assert_eq!(written, expected);
    assert!(!written.to_string().contains("PRIVATE KEY"));
    let more = json!({ "timeout": "1m", "entity_jmespath": "@", "group_jmespath": "metadata.team" });
    let merged = pki.post("config/external-policy", more).await.body["data"].clone();
    assert_eq!((&merged["timeout"], &merged["enabled"]), (&json!(60), &json!(true)));
    assert_eq!(merged["external_service_url"], expected["external_service_url"]);
    for (body, rule) in [
        (json!({ "external_service_url": "http://127.0.0.1/" }), "external_service_url: must begin with https"),
        (json!({ "external_service_url": "" }), "external_service_url: must be set while enabled"),
        (json!({ "trusted_ca": "" }), "trusted_ca: it or trusted_leaf_certificate_bundle must be set"),
        (
            json!({ "trusted_ca": Site::shared().bundle("ca") }),
            "trusted_ca: must contain only PEM blocks of type CERTIFICATE",
        ),
        (json!({ "service_client_cert_bundle": Site::shared().pem("client") }), "exactly one private key"),
        (
            json!({ "service_client_cert_bundle": Site::shared().pem("client") + &Site::shared().pem("ca-key") }),
            "service_client_cert_bundle: the private key is not the first certificate's",
        ),
        (json!({ "timeout": 0 }), "timeout: must be 1s to 60s"),
        (json!({ "timeout": "2m" }), "timeout: must be 1s to 60s"),
        (json!({ "entity_jmespath": "length(@)" }), "entity_jmespath: not supported"),
    ] {
        pki.refused("config/external-policy", body, rule).await;
        assert_eq!(pki.get("config/external-policy").await, merged);
    }
    assert_eq!(engine.asked(), 0, "writing calls nobody");
    engine.stop().await;
    pki.stop().await;
}

#[actix_web::test]
async fn engine_at_a_forbidden_address_is_rejected() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    for host in ["169.254.169.254", "100.100.100.200", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "2852039166"]
    {
        let settings = json!({ "external_service_url": format!("https://{host}/decide") });
        pki.refused(
            "config/external-policy",
            settings,
            "external_service_url: the address of the host is not permitted",
        )
        .await;
    }
    governed.sign(json!({})).await;
    governed.stop().await;
}

#[actix_web::test]
async fn service_is_validated_by_a_call_until_its_address_changes() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let read = || async { pki.get("config/external-policy").await };
    assert_eq!(read().await["external_service_validated"], false);
    governed.sign(json!({})).await;
    let validated = read().await;
    assert_eq!(validated["external_service_validated"], true);
    assert_ne!(validated["last_successful_request"], "");
    pki.post("config/external-policy", json!({})).await;
    assert_eq!(read().await["external_service_validated"], true, "nothing changed");
    pki.post("config/external-policy", json!({ "external_service_url": "https://localhost:1/" })).await;
    let changed = read().await;
    assert_eq!(
        (&changed["external_service_validated"], &changed["last_successful_request"]),
        (&json!(false), &json!(""))
    );
    governed.stop().await;
}

#[actix_web::test]
async fn settings_outlive_a_restart_sealed() {
    let app = App::start().await;
    let pki = Pki::on(app).await;
    let engine = Engine::start().await;
    pki.post("config/external-policy", settings(&engine)).await;
    let before: Value = pki.get("config/external-policy").await;
    let pki = Pki { app: pki.app.restart().await };
    assert_eq!(pki.get("config/external-policy").await, before);
    pki.ask("external-policy/sign", json!({ "csr": csr() })).await;
    assert_eq!(engine.asked(), 1);
    engine.stop().await;
    pki.stop().await;
}
