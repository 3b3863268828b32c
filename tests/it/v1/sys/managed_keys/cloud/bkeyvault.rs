//! `cloudbkeyvault` with its simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::keys::{AzureSettings, CloudSettings};

use super::super::{issue, refused, shown, test, test_refused, tested, with, write};
use super::{shown_of_all, with_root};
use crate::signers::cloud::server::{Told, serve};
use crate::signers::cloud::vault::{CLIENT, SECRET, TENANT, Vault};
use crate::support::{App, until};

const KEY: &str = "cloudbkeyvault/web";

fn key() -> Value {
    json!({ "tenant_id": TENANT, "client_id": CLIENT, "client_secret": SECRET, "vault_name": "store",
        "key_name": "key", "key_type": "rsa-hsm", "key_bits": "2048" })
}

async fn server(azure: AzureSettings) -> App {
    App::builder().cloud(CloudSettings { azure, ..CloudSettings::default() }).start().await
}

#[actix_web::test]
async fn key_is_generated_once_and_foreign_authority_is_rejected() {
    let foreign = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&foreign);
    let elsewhere = serve(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Told::new(200, json!({ "access_token": "t", "expires_in": 3599 }))
    });
    let vault = Vault::start();
    vault.lock().authority = elsewhere;
    let app = server(vault.settings()).await;
    write(&app, KEY, with(key(), json!({ "allow_generate_key": "true", "any_mount": "true" }))).await;
    write(&app, "cloudbkeyvault/too", with(key(), json!({ "allow_generate_key": "true", "any_mount": "true" }))).await;
    // A second version would be another key, so only the first request creates it.
    let both = join_all([KEY, "cloudbkeyvault/too", KEY].map(|key| test(&app, key, json!({})))).await;
    both.iter().for_each(|answer| assert_eq!(answer.status, 204, "{}", answer.text));
    assert_eq!(vault.lock().keys["key"].len(), 1);
    tested(&app, KEY, json!({ "use_pss": false, "hash_algorithm": "sha2-256" })).await;
    tested(&app, KEY, json!({ "use_pss": true, "hash_algorithm": "sha2-384" })).await;
    let text = "configuration: hash algorithm not supported by cloudbkeyvault";
    test_refused(&app, KEY, json!({ "hash_algorithm": "sha3-256" }), text).await;
    with_root(&app).await;
    assert_eq!(issue(&app).await.status, 200);

    vault.lock().closed = true;
    let text = "cloudbkeyvault: the key store rejected the credential of this server";
    test_refused(&app, KEY, json!({}), &format!("configuration: {text}")).await;
    let closed = issue(&app).await;
    assert_eq!((closed.status, closed.error()), (502, text));
    assert_eq!(foreign.load(Ordering::SeqCst), 0, "a credential was sent to whom an answer named");
    vault.lock().closed = false;
    assert_eq!(issue(&app).await.status, 200);
    vault.lock().keys.get_mut("key").unwrap()[0].enabled = false;
    test_refused(&app, KEY, json!({}), "configuration: cloudbkeyvault: the key is disabled").await;
    app.stop().await;
}

#[actix_web::test]
async fn generated_key_that_is_not_yet_visible_is_generated_once() {
    let vault = Vault::start();
    let app = server(vault.settings()).await;
    let generated = json!({ "allow_generate_key": "true", "any_mount": "true" });
    write(&app, KEY, with(key(), generated.clone())).await;
    vault.lock().lag = Duration::from_millis(700);
    tested(&app, KEY, json!({})).await;
    assert_eq!(vault.lock().keys["key"].len(), 1);
    with_root(&app).await;

    write(&app, "cloudbkeyvault/late", with(with(key(), generated), json!({ "key_name": "late" }))).await;
    vault.lock().lag = Duration::from_secs(600);
    let text = "backend: cloudbkeyvault: the generated key is not visible yet; retry shortly";
    for _ in 0..3 {
        let late = test(&app, "cloudbkeyvault/late", json!({})).await;
        assert_eq!((late.status, late.error(), late.header("retry-after")), (503, text, "1"));
    }
    let root = json!({ "common_name": "Late", "managed_key_name": "late" });
    let late = app.client.post("pki/root/generate/kms", root).await;
    assert_eq!((late.status, late.header("retry-after")), (503, "1"), "{}", late.text);
    assert_eq!(vault.lock().keys["late"].len(), 1);
    // Neither a changed configuration nor a restart generates another one.
    write(&app, "cloudbkeyvault/late", json!({ "any_mount": "true" })).await;
    let late = test(&app, "cloudbkeyvault/late", json!({})).await;
    assert_eq!((late.status, late.error()), (503, text));
    let app = app.restart().await;
    test(&app, "cloudbkeyvault/late", json!({})).await.assert_error(503, text);
    assert_eq!(vault.lock().keys["late"].len(), 1);
    vault.lock().hidden_until = None;
    tested(&app, "cloudbkeyvault/late", json!({})).await;
    assert_eq!(vault.lock().keys["late"].len(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn retry_after_of_the_store_is_respected_and_passed_on() {
    let vault = Vault::start();
    let app = server(vault.settings()).await;
    write(&app, KEY, with(key(), json!({ "allow_generate_key": "true", "any_mount": "true" }))).await;
    with_root(&app).await;
    vault.lock().instead.push_back(Told(429, json!({}), Some(("Retry-After", "3".to_owned()))));
    let begun = Instant::now();
    let asked = || vault.lock().asked.len();
    let before = asked();
    let busy = issue(&app).await;
    assert_eq!((busy.status, busy.header("retry-after")), (503, "3"), "{}", busy.text);
    assert_eq!(asked(), before + 1, "it was not held");
    for answer in [issue(&app).await, test(&app, KEY, json!({})).await] {
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!((1..=3).contains(&answer.header("retry-after").parse::<u64>().unwrap()), "{}", answer.text);
        assert!(answer.error().contains("the service requested a pause"), "{}", answer.text);
    }
    assert_eq!(asked(), before + 1, "nobody asked within the pause");
    until("the pause ends", async || issue(&app).await.status == 200).await;
    assert!(begun.elapsed() >= Duration::from_secs(3));
    app.stop().await;
}

#[actix_web::test]
async fn test_signature_uses_the_key_version_of_the_issuer_too() {
    let vault = Vault::start();
    let app = server(vault.settings()).await;
    write(&app, KEY, with(key(), json!({ "allow_generate_key": "true", "any_mount": "true" }))).await;
    with_root(&app).await;
    vault.lock().make("key", "RSA-HSM", 2048);
    tested(&app, KEY, json!({})).await;
    vault.lock().keys.get_mut("key").unwrap()[0].enabled = false;
    let text = "configuration: the key that mounts still use (its configuration now names another key): \
        cloudbkeyvault: the key is disabled";
    test_refused(&app, KEY, json!({}), text).await;
    assert_eq!(issue(&app).await.status, 502);
    vault.lock().keys.get_mut("key").unwrap()[0].enabled = true;
    tested(&app, KEY, json!({})).await;
    app.stop().await;
}

#[actix_web::test]
async fn tenant_with_path_characters_is_rejected() {
    let app = server(Vault::start().settings()).await;
    for tenant in ["..", ".", "a/b", "a..b"] {
        let text = "tenant_id: must be a GUID or the name of a domain";
        refused(&app, KEY, with(key(), json!({ "tenant_id": tenant })), text).await;
    }
    app.stop().await;
}

#[actix_web::test]
async fn resource_must_be_a_known_dns_suffix() {
    let vault = Vault::start();
    let extra_suffixes = vec!["stack.example".to_owned()];
    let app = server(AzureSettings { extra_suffixes, ..vault.settings() }).await;
    let rule = "resource: must be a DNS suffix of Azure Key Vault or in azure_extra_suffixes";
    for resource in ["evil.example", "evilvault.azure.net", "vault.azure.net.evil.example", "evilstack.example"] {
        refused(&app, KEY, with(key(), json!({ "resource": resource })), rule).await;
    }
    let rule = "resource: must be 1 to 253 letters, digits or any of . -";
    for resource in
        ["evil.example/vault.azure.net", "evil.example#.vault.azure.net", "vault.azure.net:1", "a@vault.azure.net"]
    {
        refused(&app, KEY, with(key(), json!({ "resource": resource })), rule).await;
    }
    assert_eq!(app.client.get("sys/managed-keys/cloudbkeyvault/web").await.status, 404);
    for resource in ["managedhsm.azure.net", "eu.vault.azure.net", "Stack.example", "a.stack.example", ""] {
        write(&app, KEY, with(key(), json!({ "resource": resource }))).await;
    }
    let shown = shown(&app.client, KEY).await;
    let own = json!({ "tenant_id": TENANT, "client_id": CLIENT, "client_secret": "redacted", "vault_name": "store",
        "key_name": "key", "key_type": "RSA-HSM", "key_bits": "2048", "environment": "AZUREPUBLICCLOUD",
        "resource": "vault.azure.net" });
    assert_eq!(shown, shown_of_all("web", "cloudbkeyvault", &shown["UUID"], own));
    write(&app, KEY, with(shown, json!({ "allow_generate_key": "true" }))).await;
    tested(&app, KEY, json!({})).await;
    app.stop().await;
}
