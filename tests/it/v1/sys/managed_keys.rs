//! `sys/managed-keys`: configuration (`config`), rights (`rights`), grants to mounts (`grants`), SoftHSM and signing
//! (`device`), cloud services (`cloud`).

mod cloud;
mod config;
mod device;
mod grants;
mod rights;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client, NO_MODULE, with};

/// The body of a valid key that never signs.
fn key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

/// The path of a key, such as `cloudakms/web`. A name without a type is of a `pkcs11` key.
fn path(key: &str) -> String {
    if key.contains('/') { format!("sys/managed-keys/{key}") } else { format!("sys/managed-keys/pkcs11/{key}") }
}

async fn write(app: &App, key: &str, body: Value) -> Answer {
    let answer = app.client.post(&path(key), body.clone()).await;
    assert!(matches!(answer.status, 200 | 204), "{key} {body}: {} {}", answer.status, answer.text);
    answer
}

async fn shown(client: &Client, key: &str) -> Value {
    client.get(&path(key)).await.assert_status(200).body["data"].clone()
}

async fn refused(app: &App, key: &str, body: Value, text: &str) {
    let answer = app.client.post(&path(key), body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{key} {body}: {}", answer.text);
}

async fn delete(app: &App, key: &str) {
    app.client.delete(&path(key)).await.assert_status(204);
}

async fn test(app: &App, key: &str, body: Value) -> Answer {
    app.client.post(&format!("{}/test/sign", path(key)), body).await
}

async fn tested(app: &App, key: &str, body: Value) {
    test(app, key, body).await.assert_status(204);
}

async fn test_refused(app: &App, key: &str, body: Value, text: &str) {
    test(app, key, body).await.assert_error(400, text);
}

/// Writes the role `r` of the mount `pki`, with these further fields.
async fn role(app: &App, more: Value) {
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" });
    app.client.post("pki/roles/r", with(role, more)).await.assert_status(200);
}

/// Issues with the role `r`.
async fn issue(app: &App) -> Answer {
    app.client.post("pki/issue/r", json!({ "common_name": "a.test" })).await
}

async fn with_key() -> App {
    let app = App::start().await;
    write(&app, "web", key()).await;
    app
}
