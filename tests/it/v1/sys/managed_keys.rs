//! `sys/managed-keys`: configuration (`config`), rights (`rights`), grants to mounts (`grants`), SoftHSM and signing
//! (`device`), cloud services (`cloud`).

mod cloud;
mod config;
mod device;
mod grants;
mod rights;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client, NO_MODULE};

/// The body of a valid key that never signs.
fn key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

fn with(body: Value, members: Value) -> Value {
    let mut body = body;
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

async fn write(client: &Client, name: &str, body: Value) -> Answer {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert!(matches!(answer.status, 200 | 204), "{name} {body}: {} {}", answer.status, answer.text);
    answer
}

async fn shown(client: &Client, name: &str) -> Value {
    let answer = client.get(&format!("sys/managed-keys/pkcs11/{name}")).await;
    assert_eq!(answer.status, 200, "{name}: {}", answer.text);
    answer.body["data"].clone()
}

async fn refused(client: &Client, name: &str, body: Value, text: &str) {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{name} {body}: {}", answer.text);
}

async fn with_key() -> App {
    let app = App::start().await;
    write(&app.client, "web", key()).await;
    app
}
