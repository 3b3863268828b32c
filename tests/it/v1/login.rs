//! Login methods: `sys/auth/`, and the mounts below `auth/`.

mod approle;
pub mod cloudb;
mod mounts;
mod rights;
mod secret_ids;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client};

async fn approle() -> App {
    with_approle(App::start().await).await
}

pub async fn with_approle(app: App) -> App {
    assert_eq!(app.client.post("sys/auth/approle", json!({ "type": "approle" })).await.status, 204);
    app
}

/// Writes a role of `approle` with the role id `<name>-id`.
pub async fn role(app: &App, name: &str, mut fields: Value) {
    fields["role_id"] = format!("{name}-id").into();
    app.client.post(&format!("auth/approle/role/{name}"), fields).await.assert_status(204);
}

pub async fn secret_id(app: &App, role: &str, fields: Value) -> Value {
    let answer = app.client.post(&format!("auth/approle/role/{role}/secret-id"), fields).await.assert_status(200);
    answer.body["data"].clone()
}

pub async fn log_in(client: &Client, role: &str, secret_id: &Value) -> Answer {
    let body = json!({ "role_id": format!("{role}-id"), "secret_id": secret_id });
    client.with_token("").post("auth/approle/login", body).await
}

fn refused(answer: &Answer, text: &str) {
    assert_eq!((answer.status, answer.error()), (400, text), "{}", answer.text);
}
