//! Authentication methods: `sys/auth/`, and the mounts below `auth/`.

mod approle;
pub mod cloudb;
mod mounts;
mod rights;
mod secret_ids;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client};

/// A server with `approle` enabled.
async fn approle() -> App {
    with_approle(App::start().await).await
}

pub async fn with_approle(app: App) -> App {
    assert_eq!(app.client.post("sys/auth/approle", json!({ "type": "approle" })).await.status, 204);
    app
}

/// Writes a role of `approle`, whose role id is `<name>-id`.
pub async fn role(app: &App, name: &str, mut fields: Value) {
    fields["role_id"] = format!("{name}-id").into();
    let answer = app.client.post(&format!("auth/approle/role/{name}"), fields).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
}

/// Makes a secret id of a role; the data of the answer.
pub async fn secret_id(app: &App, role: &str, fields: Value) -> Value {
    let answer = app.client.post(&format!("auth/approle/role/{role}/secret-id"), fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["data"].clone()
}

/// Logs in, as whoever has no token.
pub async fn log_in(client: &Client, role: &str, secret_id: &Value) -> Answer {
    let body = json!({ "role_id": format!("{role}-id"), "secret_id": secret_id });
    client.with_token("").post("auth/approle/login", body).await
}

/// That it is a refusal with this text.
fn refused(answer: &Answer, text: &str) {
    assert_eq!((answer.status, answer.error()), (400, text), "{}", answer.text);
}
