//! Metadata that callers attach to certificates (`cert_metadata`).

use serde_json::{Value, json};

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

async fn attaches(pki: &Pki) {
    let forbids = json!({ "no_store_metadata": true });
    pki.deny(&forbids, ask(TEXT), "cert_metadata: the role forbids it").await;
    pki.deny_sign(&forbids, json!({ "csr": csr("ec-256", "/CN=localhost", ""), "cert_metadata": TEXT }), "forbids")
        .await;
    pki.issue(&forbids, ask("")).await;
    assert!(listed(pki).await.is_empty(), "an empty text is none");
    let leaf = pki.issue(&json!({}), ask(TEXT)).await;
    let issuer = pki.get("issuer/default").await["issuer_id"].clone();
    let expiration = signet::clock::Time::from_unix_timestamp(leaf.certificate.not_after()).unwrap();
    let expected = json!({ "issuer_id": issuer, "expiration": signet::clock::format_rfc3339(expiration),
        "cert_metadata": TEXT, "role": "r", "serial_number": leaf.serial() });
    for serial in
        [leaf.serial(), leaf.serial().replace(':', "-"), leaf.serial().to_uppercase(), leaf.serial().replace(':', "")]
    {
        assert_eq!(pki.get(&format!("cert-metadata/{serial}")).await, expected);
    }
    let body = json!({ "csr": csr("ec-256", "/CN=localhost", ""), "cert_metadata": "AAAA" });
    let signed = pki.sign(&json!({}), body).await;
    assert_eq!(pki.get(&format!("cert-metadata/{}", signed.serial())).await["cert_metadata"], "AAAA");
    let mut serials = vec![leaf.serial(), signed.serial()];
    serials.sort();
    assert_eq!(listed(pki).await, serials);
    let page = pki.app.client.list("pki/cert-metadata?limit=1").await;
    assert_eq!(page.body["data"]["keys"], json!([serials[0]]));
    let page = pki.app.client.list(&format!("pki/cert-metadata?after={}", serials[0])).await;
    assert_eq!(page.body["data"]["keys"], json!([serials[1]]));
}

#[actix_web::test]
async fn metadata_is_attached_as_the_role_allows() {
    let pki = Pki::start().await;
    attaches(&pki).await;
    let serials = listed(&pki).await;
    let before = pki.get(&format!("cert-metadata/{}", serials[0])).await;
    let pki = Pki { app: pki.app.restart().await };
    assert_eq!(pki.get(&format!("cert-metadata/{}", serials[0])).await, before, "a restart keeps it");
    // It is removed with its mount.
    assert_eq!(pki.app.client.delete("sys/mounts/pki").await.status, 204);
    assert_eq!(pki.app.client.post("sys/mounts/pki", json!({ "type": "pki" })).await.status, 204);
    assert!(listed(&pki).await.is_empty());
    assert_eq!(pki.app.client.get(&format!("pki/cert-metadata/{}", serials[0])).await.text, "{\"errors\":[]}");
    pki.stop().await;
}

#[actix_web::test]
async fn metadata_is_attached_on_postgresql() {
    let pki = Pki::on(App::builder().postgres().start().await).await;
    attaches(&pki).await;
    pki.stop().await;
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
async fn reading_it_needs_a_token_and_its_policy() {
    let pki = Pki::start().await;
    let leaf = pki.issue(&json!({}), ask(TEXT)).await;
    let path = format!("pki/cert-metadata/{}", leaf.serial());
    pki.app.policy("certs", "path \"pki/cert/*\" { capabilities = [\"read\"] }").await;
    for client in [pki.app.client.with_token(""), pki.app.with_policies(&["certs"]).await] {
        client.get(&path).await.assert_denied();
        client.list("pki/cert-metadata").await.assert_denied();
    }
    pki.app.policy("metadata", "path \"pki/cert-metadata/+\" { capabilities = [\"read\"] }").await;
    let reader = pki.app.with_policies(&["metadata"]).await;
    assert_eq!(reader.get(&path).await.status, 200);
    for unknown in ["00:11", "ab", "zz"] {
        assert_eq!(pki.app.client.get(&format!("pki/cert-metadata/{unknown}")).await.status, 404, "{unknown}");
    }
    // Public responses do not contain it.
    let open = pki.app.client.with_token("").get(&format!("pki/cert/{}", leaf.serial())).await;
    assert!(open.status == 200 && !open.text.contains(TEXT));
    pki.stop().await;
}
