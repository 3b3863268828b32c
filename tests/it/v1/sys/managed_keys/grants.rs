//! Which mount may use which key, and that a granted key cannot be deleted.

use serde_json::{Value, json};
use signet::error::Kind;
use signet::keys::signing::{ManagedKeyRef, Signers as _};

use super::{key, test, test_refused, with, with_key, write};
use crate::support::{App, tests_on};

tests_on!(keyed: with_key() =>
    granted_key_cannot_be_deleted,
    key_without_grant_looks_like_a_missing_key,
    a_test_signature_needs_both_usages,
);

async fn tune(app: &App, mount: &str, keys: Value) {
    let answer = app.client.post(&format!("sys/mounts/{mount}/tune"), json!({ "allowed_managed_keys": keys })).await;
    answer.assert_status(204);
}

async fn in_use(app: &App, name: &str, mounts: &str) {
    let text = format!("managed key \"web\" is in use by mount {mounts}");
    app.client.delete(&super::path(name)).await.assert_error(400, &text);
}

/// The error of a mount that uses a key. The module is not called before the mount may use the key.
async fn use_of(app: &App, mount: &str, key: ManagedKeyRef) -> (Kind, String) {
    let shared = app.shared();
    let mount = shared.auth.mounts().get(mount).unwrap().id;
    let error = match shared.managed_keys.start_use(mount, key) {
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

async fn granted_key_cannot_be_deleted(app: &App) {
    write(app, "web", json!({ "any_mount": true })).await;
    app.client.post("sys/mounts/team", json!({ "type": "pki", "config": { "allowed_managed_keys": ["Web"] } })).await;
    tune(app, "pki", json!("other,web")).await;
    in_use(app, "web", r#""pki/", "team/""#).await;
    tune(app, "pki", json!("other")).await;
    in_use(app, "WEB", r#""team/""#).await;
    app.client.post("sys/auth/token/tune", json!({ "allowed_managed_keys": ["web"] })).await.assert_status(204);
    in_use(app, "web", r#""auth/token/", "team/""#).await;
    app.client.post("sys/auth/token/tune", json!({ "allowed_managed_keys": "" })).await;
    assert_eq!(app.client.delete("sys/mounts/team").await.status, 204);
    super::delete(app, "web").await;
    assert_eq!(app.client.get("sys/managed-keys/pkcs11/web").await.status, 404);
}

async fn key_without_grant_looks_like_a_missing_key(app: &App) {
    let uuid = super::shown(&app.client, "web").await["UUID"].as_str().unwrap().to_owned();
    let refusal = |name: &str| (Kind::Invalid, format!("managed key {name:?} is not allowed for mount \"pki/\""));
    let id = || ManagedKeyRef::Uuid(uuid.clone());
    for key in [named("web"), named("WEB")] {
        assert_eq!(use_of(app, "pki", key).await, refusal("web"));
    }
    assert_eq!(use_of(app, "pki", named("absent")).await, refusal("absent"));
    assert_eq!(use_of(app, "pki", id()).await, refusal(&uuid));
    assert_eq!(use_of(app, "pki", ManagedKeyRef::Uuid("absent".to_owned())).await, refusal("absent"));
    // A name is not a UUID, nor the reverse.
    tune(app, "pki", json!([uuid])).await;
    assert_eq!(use_of(app, "pki", id()).await, refusal(&uuid));
    assert_eq!(use_of(app, "pki", ManagedKeyRef::Uuid("web".to_owned())).await, refusal("web"));
    // From here on the module would be called, but it does not exist.
    let reached = |heard: (Kind, String)| assert_eq!(heard.0, Kind::Unavailable, "{}", heard.1);
    tune(app, "pki", json!(["web"])).await;
    reached(use_of(app, "pki", named("Web")).await);
    reached(use_of(app, "pki", id()).await);
    tune(app, "pki", json!([])).await;
    assert_eq!(use_of(app, "pki", named("web")).await, refusal("web"));
    write(app, "web", json!({ "any_mount": "true" })).await;
    reached(use_of(app, "pki", named("web")).await);
    write(app, "web", json!({ "usages": "verify" })).await;
    let usage = (Kind::Invalid, "managed key \"web\" does not allow usage sign".to_owned());
    assert_eq!(use_of(app, "pki", named("web")).await, usage);
}

async fn a_test_signature_needs_both_usages(app: &App) {
    for (usages, lacks) in [("verify", "sign"), ("sign", "verify"), ("mac", "sign")] {
        write(app, "web", json!({ "usages": usages })).await;
        test_refused(app, "web", json!({}), &format!("managed key \"web\" does not allow usage {lacks}")).await;
    }
    write(app, "web", with(key(), json!({ "usages": "" }))).await;
    test(app, "web", json!({})).await.assert_error_begins(503, "backend: ");
}
