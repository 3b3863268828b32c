//! Which mount may use which key, and that a granted key cannot be deleted.

use serde_json::{Value, json};
use signet::error::Kind;
use signet::keys::signing::{ManagedKeyRef, Signers as _};

use super::{key, with, with_key, write};
use crate::support::{Answer, App};

async fn tune(app: &App, mount: &str, keys: Value) {
    let answer = app.client.post(&format!("sys/mounts/{mount}/tune"), json!({ "allowed_managed_keys": keys })).await;
    answer.assert_status(204);
}

async fn delete(app: &App, name: &str) -> Answer {
    app.client.delete(&format!("sys/managed-keys/pkcs11/{name}")).await
}

fn assert_in_use(answer: &Answer, text: &str) {
    assert_eq!((answer.status, answer.error()), (400, text), "{}", answer.text);
}

/// The error of a mount that uses a key. The module is not called before the mount may use the key.
async fn use_of(app: &App, mount: &str, key: ManagedKeyRef) -> (Kind, String) {
    let shared = app.shared();
    let mount = shared.auth.mounts().get(mount).unwrap().id;
    let error = match shared.managed_keys.take(mount, key) {
        Ok(taking) => taking.await.err().unwrap(),
        Err(refused) => refused,
    };
    (error.kind(), error.text().to_owned())
}

fn named(name: &str) -> ManagedKeyRef {
    ManagedKeyRef::Name(name.to_owned())
}

#[actix_web::test]
async fn names_that_a_mount_lists_are_in_lower_case_and_read_back() {
    let app = App::start().await;
    let config = json!({ "allowed_managed_keys": "One,two" });
    assert_eq!(app.client.post("sys/mounts/team", json!({ "type": "pki", "config": config })).await.status, 204);
    let mount = app.client.get("sys/mounts/team").await.body["data"].clone();
    assert_eq!(mount["config"]["allowed_managed_keys"], json!(["one", "two"]));
    let tuned = async || app.client.get("sys/mounts/team/tune").await.body["data"]["allowed_managed_keys"].clone();
    assert_eq!(tuned().await, json!(["one", "two"]));
    for (keys, read) in [
        (json!(["WEB"]), json!(["web"])),
        (json!(""), Value::Null),
        (json!("a"), json!(["a"])),
        (json!(["b", "a", "B", "a"]), json!(["b", "a"])),
        (json!([]), Value::Null),
    ] {
        tune(&app, "team", keys).await;
        assert_eq!(tuned().await, read);
    }
    app.stop().await;
}

#[actix_web::test]
async fn granted_key_cannot_be_deleted() {
    let app = with_key().await;
    write(&app.client, "web", json!({ "any_mount": true })).await;
    app.client.post("sys/mounts/team", json!({ "type": "pki", "config": { "allowed_managed_keys": ["Web"] } })).await;
    tune(&app, "pki", json!("other,web")).await;
    assert_in_use(&delete(&app, "web").await, "managed key \"web\" is in use by mount \"pki/\", \"team/\"");
    tune(&app, "pki", json!("other")).await;
    assert_in_use(&delete(&app, "WEB").await, "managed key \"web\" is in use by mount \"team/\"");
    app.client.post("sys/auth/token/tune", json!({ "allowed_managed_keys": ["web"] })).await.assert_status(204);
    assert_in_use(&delete(&app, "web").await, "managed key \"web\" is in use by mount \"auth/token/\", \"team/\"");
    app.client.post("sys/auth/token/tune", json!({ "allowed_managed_keys": "" })).await;
    assert_eq!(app.client.delete("sys/mounts/team").await.status, 204);
    assert_eq!(delete(&app, "web").await.status, 204);
    assert_eq!(app.client.get("sys/managed-keys/pkcs11/web").await.status, 404);
    app.stop().await;
}

#[actix_web::test]
async fn key_without_grant_looks_like_a_missing_key() {
    let app = with_key().await;
    let uuid = super::shown(&app.client, "web").await["UUID"].as_str().unwrap().to_owned();
    let refusal = |name: &str| (Kind::Invalid, format!("managed key {name:?} is not allowed for mount \"pki/\""));
    let id = || ManagedKeyRef::Uuid(uuid.clone());
    for key in [named("web"), named("WEB")] {
        assert_eq!(use_of(&app, "pki", key).await, refusal("web"));
    }
    assert_eq!(use_of(&app, "pki", named("absent")).await, refusal("absent"));
    assert_eq!(use_of(&app, "pki", id()).await, refusal(&uuid));
    assert_eq!(use_of(&app, "pki", ManagedKeyRef::Uuid("absent".to_owned())).await, refusal("absent"));
    // A name is not a UUID, nor the reverse.
    tune(&app, "pki", json!([uuid])).await;
    assert_eq!(use_of(&app, "pki", id()).await, refusal(&uuid));
    assert_eq!(use_of(&app, "pki", ManagedKeyRef::Uuid("web".to_owned())).await, refusal("web"));
    // From here on the module would be called, but it does not exist.
    let reached = |heard: (Kind, String)| assert_eq!(heard.0, Kind::Unavailable, "{}", heard.1);
    tune(&app, "pki", json!(["web"])).await;
    reached(use_of(&app, "pki", named("Web")).await);
    reached(use_of(&app, "pki", id()).await);
    tune(&app, "pki", json!([])).await;
    assert_eq!(use_of(&app, "pki", named("web")).await, refusal("web"));
    write(&app.client, "web", json!({ "any_mount": "true" })).await;
    reached(use_of(&app, "pki", named("web")).await);
    write(&app.client, "web", json!({ "usages": "verify" })).await;
    let usage = (Kind::Invalid, "managed key \"web\" does not allow usage sign".to_owned());
    assert_eq!(use_of(&app, "pki", named("web")).await, usage);
    app.stop().await;
}

#[actix_web::test]
async fn a_test_signature_needs_both_usages() {
    let app = with_key().await;
    for (usages, lacks) in [("verify", "sign"), ("sign", "verify"), ("mac", "sign")] {
        write(&app.client, "web", json!({ "usages": usages })).await;
        let answer = app.client.post("sys/managed-keys/pkcs11/web/test/sign", json!({})).await;
        let text = format!("managed key \"web\" does not allow usage {lacks}");
        assert_eq!((answer.status, answer.error()), (400, text.as_str()));
    }
    write(&app.client, "web", with(key(), json!({ "usages": "" }))).await;
    let answer = app.client.post("sys/managed-keys/pkcs11/web/test/sign", json!({})).await.assert_status(503);
    assert!(answer.error().starts_with("backend: "), "{}", answer.text);
    app.stop().await;
}
