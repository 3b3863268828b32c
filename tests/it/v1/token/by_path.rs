//! Leases of tokens: what was created at a path is listed, looked up and revoked by it.

use serde_json::json;

use crate::support::{App, Client};
use crate::v1::login::{log_in, role, secret_id, with_approle};

/// A token with what an `auth` block says of it.
fn holder(client: &Client, body: &serde_json::Value) -> Client {
    client.with_token(body["auth"]["client_token"].as_str().unwrap())
}

/// Whether a token lives.
async fn lives(holder: &Client) -> bool {
    holder.get("auth/token/lookup-self").await.status == 200
}

/// The keys of a list of leases.
async fn leases(client: &Client, path: &str) -> Vec<String> {
    let answer = client.list(&format!("sys/leases/lookup/{path}")).await;
    let keys = answer.body["data"]["keys"].as_array().cloned().unwrap_or_default();
    keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

async fn tokens_end_by_path(app: App) {
    let app = with_approle(app).await;
    let client = &app.client;
    role(&app, "machine", json!({ "token_policies": "root-like" })).await;
    app.policy("root-like", "path \"auth/token/create*\" { capabilities = [\"update\", \"sudo\"] }").await;
    let own = secret_id(&app, "machine", json!({})).await;
    let mut machines = Vec::new();
    for _ in 0..3 {
        machines.push(holder(client, &log_in(client, "machine", &own["secret_id"]).await.body));
    }
    let child = holder(client, &machines[0].post("auth/token/create", json!({})).await.body);
    let orphan = holder(client, &machines[0].post("auth/token/create-orphan", json!({})).await.body);
    let other = holder(client, &client.post("auth/token/create", json!({ "policies": ["default"] })).await.body);

    let listed = leases(client, "auth/approle/login").await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(leases(client, "auth").await.starts_with(&["approle/".to_owned()]));
    assert_eq!(leases(client, "auth/approle").await, ["login/"]);
    let first = client.list("sys/leases/lookup/auth/approle/login?limit=1").await;
    assert_eq!(first.body["data"]["keys"], json!([listed[0]]), "{}", first.text);
    let rest = client.list(&format!("sys/leases/lookup/auth/approle/login?after={}", listed[0])).await;
    assert_eq!(rest.body["data"]["keys"], json!(listed[1..]), "{}", rest.text);
    let id = format!("auth/approle/login/{}", listed[0]);
    let shown = client.post("sys/leases/lookup", json!({ "lease_id": id })).await;
    let data = &shown.body["data"];
    assert_eq!((&data["id"], &data["path"]), (&json!(id), &json!("auth/approle/login")), "{}", shown.text);
    assert!(data["ttl"].as_i64().unwrap() > 0 && data["expire_time"].is_string(), "{}", shown.text);
    let renewed = client.post("sys/leases/renew", json!({ "lease_id": id })).await;
    assert_eq!(renewed.status, 400);
    assert!(renewed.error().contains("auth/token/renew"), "{}", renewed.text);

    // One by its id.
    assert_eq!(client.post("sys/leases/revoke", json!({ "lease_id": id })).await.status, 204);
    let gone = client.post("sys/leases/lookup", json!({ "lease_id": id })).await;
    assert_eq!((gone.status, gone.error()), (400, "invalid lease"));
    assert_eq!(leases(client, "auth/approle/login").await, listed[1..]);

    // What no path of a token says ends none; a part of a segment is no path.
    for path in ["auth/approle/logi", "auth/other", "auth/appro", "auth/approle/login/x"] {
        assert_eq!(client.post(&format!("sys/leases/revoke-prefix/{path}"), json!({})).await.status, 204);
    }
    assert_eq!(leases(client, "auth/approle/login").await, listed[1..]);

    // All by the mount's path, with those that they made, but for orphans, which another path created.
    assert_eq!(client.post("sys/leases/revoke-prefix/auth/approle", json!({})).await.status, 204);
    for machine in &machines {
        assert!(!lives(machine).await);
    }
    assert!(!lives(&child).await && lives(&orphan).await && lives(&other).await && lives(client).await);
    assert!(leases(client, "auth/approle").await.is_empty());

    // Without waiting the end is as sure; the token of the caller has no end and stays.
    let answer = client.post("sys/leases/revoke-prefix/auth/token/create", json!({ "sync": false })).await;
    assert_eq!(answer.status, 202);
    assert!(!lives(&other).await && lives(&orphan).await);
    assert_eq!(client.post("sys/leases/revoke-force/auth", json!({})).await.status, 204);
    assert!(!lives(&orphan).await && lives(client).await);
    app.stop().await;
}

#[actix_web::test]
async fn tokens_end_by_the_path_that_created_them() {
    tokens_end_by_path(App::start().await).await;
}

#[actix_web::test]
async fn tokens_end_by_the_path_that_created_them_on_postgresql() {
    tokens_end_by_path(App::builder().postgres().start().await).await;
}

#[actix_web::test]
async fn tokens_of_a_moved_method_end_by_both_paths() {
    let app = with_approle(App::start().await).await;
    let client = &app.client;
    role(&app, "machine", json!({})).await;
    let own = secret_id(&app, "machine", json!({})).await;
    let before = holder(client, &log_in(client, "machine", &own["secret_id"]).await.body);
    let kept = holder(client, &log_in(client, "machine", &own["secret_id"]).await.body);
    let moved = client.post("sys/remount", json!({ "from": "auth/approle", "to": "auth/team/machines" })).await;
    assert_eq!(moved.status, 200, "{}", moved.text);
    let listed = leases(client, "auth/team/machines/login").await;
    assert_eq!(listed.len(), 2);
    assert_eq!(leases(client, "auth/team").await, ["machines/"]);
    let id = format!("auth/team/machines/login/{}", listed[0]);
    assert_eq!(client.post("sys/leases/lookup", json!({ "lease_id": id })).await.status, 200);
    // Another method at the old path has no part in them.
    assert_eq!(client.post("sys/auth/approle", json!({ "type": "approle" })).await.status, 204);
    assert_eq!(client.post("sys/leases/revoke-prefix/auth/approle", json!({})).await.status, 204);
    assert!(lives(&before).await && lives(&kept).await);
    assert_eq!(client.post("sys/leases/revoke-prefix/auth/team/machines", json!({})).await.status, 204);
    assert!(!lives(&before).await && !lives(&kept).await);
    app.stop().await;
}
