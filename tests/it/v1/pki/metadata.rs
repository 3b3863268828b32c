//! Metadata that callers attach to certificates (`cert_metadata`).

use serde_json::{Value, json};
use signet::clock::{Time, format_rfc3339};

use super::foreign::csr;
use super::mount::{Pki, with};
use crate::support::App;

const TEXT: &str = "eyJ0ZWFtIjogImJsdWUifQ==";

fn ask(metadata: &str) -> Value {
    json!({ "common_name": "localhost", "cert_metadata": metadata })
}

async fn listed(pki: &Pki) -> Vec<String> {
    pki.list("cert-metadata").await
}

#[actix_web::test]
async fn sign_verbatim_accepts_metadata_only_with_a_role() {
    let pki = Pki::start().await;
    let body = json!({ "csr": csr("ec-256", "/CN=localhost", ""), "cert_metadata": TEXT });
    pki.refused("sign-verbatim", body.clone(), "cert_metadata: needs a role").await;
    let without = pki.ask("sign-verbatim", with(&body, json!({ "cert_metadata": "" }))).await;
    pki.role(&json!({})).await;
    let leaf = pki.ask("sign-verbatim/r", body).await;
    assert_eq!(listed(&pki).await, [leaf.serial()]);
    assert_eq!(pki.get(&format!("cert-metadata/{}", leaf.serial())).await["role"], "r");
    assert_eq!(pki.app.client.get(&format!("pki/cert-metadata/{}", without.serial())).await.status, 404);
    pki.stop().await;
}

#[actix_web::test]
async fn metadata_is_attached_as_the_role_allows_on_both_stores() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki::on(app).await;
        let csr = csr("ec-256", "/CN=localhost", "");
        let forbids = json!({ "no_store_metadata": true });
        pki.deny(&forbids, ask(TEXT), "cert_metadata: the role forbids it").await;
        pki.deny_sign(&forbids, json!({ "csr": csr, "cert_metadata": TEXT }), "forbids").await;
        pki.issue(&forbids, ask("")).await;
        assert!(listed(&pki).await.is_empty(), "an empty text is none");
        let leaf = pki.issue(&json!({}), ask(TEXT)).await;
        let serial = leaf.serial();
        let expiration = Time::from_unix_timestamp(leaf.certificate.not_after()).unwrap();
        let expected = json!({ "issuer_id": pki.get("issuer/default").await["issuer_id"], "role": "r",
            "expiration": format_rfc3339(expiration), "cert_metadata": TEXT, "serial_number": serial });
        for form in [serial.clone(), serial.replace(':', "-"), serial.to_uppercase(), serial.replace(':', "")] {
            assert_eq!(pki.get(&format!("cert-metadata/{form}")).await, expected);
        }
        let signed = pki.sign(&json!({}), json!({ "csr": csr, "cert_metadata": "AAAA" })).await;
        assert_eq!(pki.get(&format!("cert-metadata/{}", signed.serial())).await["cert_metadata"], "AAAA");
        let mut serials = vec![serial.clone(), signed.serial()];
        serials.sort();
        assert_eq!(listed(&pki).await, serials);
        for (query, expected) in [("limit=1".to_owned(), &serials[0]), (format!("after={}", serials[0]), &serials[1])] {
            let page = pki.app.client.list(&format!("pki/cert-metadata?{query}")).await;
            assert_eq!(page.body["data"]["keys"], json!([expected]), "{query}");
        }
        let pki = pki.restart().await;
        assert_eq!(pki.get(&format!("cert-metadata/{serial}")).await, expected, "a restart keeps it");
        // It is removed with its mount.
        assert_eq!(pki.app.client.delete("sys/mounts/pki").await.status, 204);
        assert_eq!(pki.app.client.post("sys/mounts/pki", json!({ "type": "pki" })).await.status, 204);
        assert!(listed(&pki).await.is_empty());
        assert_eq!(pki.app.client.get(&format!("pki/cert-metadata/{serial}")).await.text, "{\"errors\":[]}");
        pki.stop().await;
    }
}

#[actix_web::test]
async fn metadata_is_stored_with_no_store() {
    let pki = Pki::start().await;
    let leaf = pki.issue(&json!({ "no_store": true }), ask(TEXT)).await;
    assert_eq!(pki.app.client.get(&format!("pki/cert/{}", leaf.serial())).await.status, 404);
    assert_eq!(pki.get(&format!("cert-metadata/{}", leaf.serial())).await["cert_metadata"], TEXT);
    pki.stop().await;
}

#[actix_web::test]
async fn metadata_must_be_base64_within_the_limit() {
    let pki = Pki::start().await;
    for text in ["aGk", "a-_k", "not base64", "\u{e4}aaa"] {
        pki.deny(&json!({}), ask(text), "cert_metadata: must be standard base64").await;
    }
    pki.deny(&json!({}), ask(&"A".repeat(65_540)), "cert_metadata: longer than 65536").await;
    pki.deny(&json!({}), json!({ "common_name": "localhost", "cert_metadata": ["AAAA"] }), "cert_metadata").await;
    pki.issue(&json!({}), ask(&"A".repeat(65_536))).await;
    pki.stop().await;
}

#[actix_web::test]
async fn right_to_certificates_does_not_include_their_metadata() {
    let pki = Pki::start().await;
    let leaf = pki.issue(&json!({}), ask(TEXT)).await;
    pki.app.policy("certs", "path \"pki/cert/*\" { capabilities = [\"read\"] }").await;
    let reader = pki.app.with_policies(&["certs"]).await;
    reader.get(&format!("pki/cert-metadata/{}", leaf.serial())).await.assert_denied();
    for unknown in ["00:11", "ab", "zz"] {
        assert_eq!(pki.app.client.get(&format!("pki/cert-metadata/{unknown}")).await.status, 404, "{unknown}");
    }
    // Public responses do not contain it.
    let open = pki.app.client.with_token("").get(&format!("pki/cert/{}", leaf.serial())).await;
    assert!(open.status == 200 && !open.text.contains(TEXT));
    pki.stop().await;
}
