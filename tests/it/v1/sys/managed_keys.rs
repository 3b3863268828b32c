//! `sys/managed-keys`: how keys are configured (`config`), who may ask for what (`rights`), which mount may use which
//! key (`grants`), and, with SoftHSM behind them, test signatures and everything that signs (`device`).

mod config;
mod device;
mod grants;
mod rights;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client, NO_MODULE};

/// The body of a key that can be configured and never signs.
fn key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

/// The body with other members.
fn with(body: Value, members: Value) -> Value {
    let mut body = body;
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

/// A write that must be taken.
async fn write(client: &Client, name: &str, body: Value) -> Answer {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert!(matches!(answer.status, 200 | 204), "{name} {body}: {} {}", answer.status, answer.text);
    answer
}

/// A key as it is shown.
async fn shown(client: &Client, name: &str) -> Value {
    let answer = client.get(&format!("sys/managed-keys/pkcs11/{name}")).await;
    assert_eq!(answer.status, 200, "{name}: {}", answer.text);
    answer.body["data"].clone()
}

/// That a write is refused, and with which text.
async fn refused(client: &Client, name: &str, body: Value, text: &str) {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{name} {body}: {}", answer.text);
}

/// A server with the key `web`.
async fn with_key() -> App {
    let app = App::start().await;
    write(&app.client, "web", key()).await;
    app
}
