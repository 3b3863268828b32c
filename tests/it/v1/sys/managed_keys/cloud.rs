//! Keys at cloud services through the routes: ministack for `cloudakms`, simulations with real keys for the others.

#[cfg(feature = "keys-aws")]
mod akms;
mod bkeyvault;
mod ckms;

use serde_json::{Value, json};

use crate::support::{Answer, App};
use crate::v1::pki::mount::FAR;

/// Adds the members common to all types.
fn shown_of_all(name: &str, kind: &str, uuid: &Value, more: Value) -> Value {
    let shared = json!({
        "UUID": uuid, "name": name, "type": kind,
        "allow_generate_key": false, "allow_replace_key": false, "allow_store_key": false, "any_mount": false,
        "usages": ["sign", "verify"],
    });
    super::with(shared, more)
}

async fn write(app: &App, key: &str, body: Value) {
    let answer = app.client.post(&format!("sys/managed-keys/{key}"), body).await;
    assert!(matches!(answer.status, 200 | 204), "{key}: {} {}", answer.status, answer.text);
}

async fn refused(app: &App, key: &str, body: Value, text: &str) {
    let answer = app.client.post(&format!("sys/managed-keys/{key}"), body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{key} {body}: {}", answer.text);
}

async fn test(app: &App, key: &str, body: Value) -> Answer {
    app.client.post(&format!("sys/managed-keys/{key}/test/sign"), body).await
}

async fn tested(app: &App, key: &str, body: Value) {
    let answer = test(app, key, body.clone()).await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{key} {body}");
}

async fn test_refused(app: &App, key: &str, body: Value, text: &str) {
    let answer = test(app, key, body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{key} {body}: {}", answer.text);
}

async fn with_root(app: &App, body: Value) {
    let root = json!({ "common_name": "Root", "issuer_name": "root", "not_after": FAR });
    app.client.post("pki/root/generate/kms", super::with(root, body)).await.assert_status(200);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" });
    assert_eq!(app.client.post("pki/roles/r", role).await.status, 200);
}

async fn issue(app: &App) -> Answer {
    app.client.post("pki/issue/r", json!({ "common_name": "a.test" })).await
}
