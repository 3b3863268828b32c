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
    app.client.enable("sys/auth/approle", "approle").await;
    app
}

async fn with_clock() -> App {
    let app = App::builder().manual_clock(time::macros::datetime!(2030-01-01 00:00 UTC));
    with_approle(app.start().await).await
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

/// Writes a role, and creates a secret id of it.
pub async fn role_with_secret_id(app: &App, name: &str, fields: Value) -> Value {
    role(app, name, fields).await;
    secret_id(app, name, json!({})).await
}

pub async fn log_in(client: &Client, role: &str, secret_id: &Value) -> Answer {
    let body = json!({ "role_id": format!("{role}-id"), "secret_id": secret_id });
    client.with_token("").post("auth/approle/login", body).await
}
