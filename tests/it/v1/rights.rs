//! The effect of a single right through the routes.

use serde_json::{Value, json};

use crate::support::{App, Client, send, tests_on};
use crate::v1::bodies::Pending;

tests_on!(server: App::start() =>
    update_on_create_orphan_grants_no_other_policy,
    sudo_on_create_orphan_allows_other_policies_but_not_root,
    update_on_create_makes_children_with_own_policies_only,
    sudo_on_create_lifts_restrictions_except_root,
    rejected_requests_count_as_token_uses,
    create_right_cannot_update_and_update_right_cannot_create,
    create_right_cannot_update_a_concurrently_created_object,
);

/// A client whose token has only the policy `text`.
pub async fn only(app: &App, name: &str, text: &str) -> Client {
    only_by(&app.client, name, text).await
}

/// Like [`only`], with the client that creates policy and token.
pub async fn only_by(giver: &Client, name: &str, text: &str) -> Client {
    giver.post(&format!("sys/policies/acl/{name}"), json!({ "policy": text })).await.assert_status(204);
    let made = giver.post("auth/token/create", json!({ "policies": [name], "no_default_policy": true })).await;
    assert_eq!(made.body["auth"]["policies"], json!([name]), "{}", made.text);
    giver.holder(&made)
}

pub fn rule(path: &str, rest: &str) -> String {
    format!("path \"{path}\" {{ {rest} }}\n")
}

pub fn granted(path: &str, capabilities: &[&str]) -> String {
    rule(path, &format!("capabilities = {}", json!(capabilities)))
}

/// Token attributes that need `sudo`, and the error of each without it.
const BEYOND: [(&str, &str); 5] = [
    (r#"{"policies": ["everything"]}"#, "child policies must be subset of parent"),
    (r#"{"policies": ["default"]}"#, "child policies must be subset of parent"),
    (r#"{"period": "1h"}"#, "root or sudo privileges required to create periodic token"),
    (r#"{"id": "chosen"}"#, "id: tokens cannot be chosen, they are always random"),
    (r#"{"policies": ["root"]}"#, "child policies must be subset of parent"),
];

async fn assert_bounded(client: &Client, path: &str) {
    for (body, refusal) in BEYOND {
        let body: Value = serde_json::from_str(body).unwrap();
        client.post(path, body).await.assert_error(400, refusal);
    }
}

async fn update_on_create_orphan_grants_no_other_policy(app: &App) {
    app.policy("everything", &granted("*", &["create", "read", "update", "delete", "list", "sudo"])).await;
    let client = only(app, "orphans", &granted("auth/token/create-orphan", &["update"])).await;
    assert_bounded(&client, "auth/token/create-orphan").await;
    let orphan = client.post("auth/token/create-orphan", json!({ "no_parent": false })).await;
    let auth = &orphan.body["auth"];
    assert_eq!((&auth["orphan"], &auth["policies"]), (&json!(true), &json!(["orphans"])), "{}", orphan.text);
    let child = app.client.holder(&orphan);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": client.token })).await.status, 204);
    assert_eq!(child.post("auth/token/create-orphan", json!({})).await.status, 200, "it outlives its maker");
    client.post("auth/token/create-orphan", json!({})).await.assert_denied();
}

async fn sudo_on_create_orphan_allows_other_policies_but_not_root(app: &App) {
    let client = only(app, "orphans", &granted("auth/token/create-orphan", &["update", "sudo"])).await;
    let made = client.post("auth/token/create-orphan", json!({ "policies": ["default"], "period": "1h" })).await;
    assert_eq!(made.body["auth"]["policies"], json!(["default"]), "{}", made.text);
    let root = client.post("auth/token/create-orphan", json!({ "policies": ["root"] })).await;
    root.assert_error(400, "root tokens may not be created without parent token being root");
}

async fn update_on_create_makes_children_with_own_policies_only(app: &App) {
    app.policy("everything", &granted("*", &["create", "read", "update", "delete", "list", "sudo"])).await;
    let client = only(app, "creator", &granted("auth/token/create", &["update"])).await;
    assert_bounded(&client, "auth/token/create").await;
    let orphan = client.post("auth/token/create", json!({ "no_parent": true })).await;
    orphan.assert_error(400, "root or sudo privileges required to create orphan token");
    client.post("auth/token/create-orphan", json!({})).await.assert_denied();
    let made = client.post("auth/token/create", json!({})).await;
    let auth = &made.body["auth"];
    assert_eq!((&auth["orphan"], &auth["policies"]), (&json!(false), &json!(["creator"])), "{}", made.text);
    let child = app.client.holder(&made);
    let grandchild = child.post("auth/token/create", json!({ "no_default_policy": true })).await;
    assert_eq!(grandchild.body["auth"]["policies"], json!(["creator"]), "{}", grandchild.text);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": client.token })).await.status, 204);
    child.post("auth/token/create", json!({})).await.assert_denied();
}

async fn sudo_on_create_lifts_restrictions_except_root(app: &App) {
    let client = only(app, "creator", &granted("auth/token/create", &["update", "sudo"])).await;
    let body = json!({ "policies": ["other"], "no_parent": true, "period": "1h", "no_default_policy": true });
    let made = client.post("auth/token/create", body).await;
    let auth = &made.body["auth"];
    assert_eq!((&auth["orphan"], &auth["policies"]), (&json!(true), &json!(["other"])), "{}", made.text);
    let root = client.post("auth/token/create", json!({ "policies": ["ROOT"] })).await;
    root.assert_error(400, "root tokens may not be created without parent token being root");
}

async fn rejected_requests_count_as_token_uses(app: &App) {
    app.policy("ask", &granted("sys/capabilities-self", &["update"])).await;
    let body = json!({ "policies": ["ask"], "no_default_policy": true, "num_uses": 3 });
    let client = app.client.with_new_token(body).await;
    // Malformed requests are rejected before they use up the token.
    send(client.request("POST", "sys/capabilities-self").body("{\"a\":")).await.assert_status(400);
    let large = client.request("POST", "sys/capabilities-self").body(vec![b' '; (4 << 20) + 1]);
    assert_eq!(send(large).await.status, 413);
    assert_eq!(client.post("sys/capabilities-self", json!({ "path": "x" })).await.status, 200);
    client.post("sys/mounts/other", json!({ "type": "pki" })).await.assert_denied();
    assert_eq!(client.post("sys/capabilities-self", json!({})).await.status, 400);
    client.post("sys/capabilities-self", json!({ "path": "x" })).await.assert_denied();
}

async fn create_right_cannot_update_and_update_right_cannot_create(app: &App) {
    for (path, kind) in [("roles", "approle"), ("tokens", "jwt"), ("cloud", "cloudb")] {
        app.client.enable(&format!("sys/auth/{path}"), kind).await;
    }
    let jwt = json!({ "role_type": "jwt", "bound_subject": "s", "user_claim": "sub" });
    let cloudb = json!({ "bound_subscription_ids": ["11111111-2222-3333-4444-555555555555"] });
    let config = json!({ "tenant_id": "11111111-2222-3333-4444-555555555555", "resource": "https://a.test" });
    let key = json!({ "kms_key": "alias/x", "key_type": "RSA", "key_bits": "2048", "region": "eu-central-1" });
    for (n, (path, body)) in [
        ("auth/roles/role/web", json!({ "token_ttl": "1h" })),
        ("auth/tokens/role/web", jwt),
        ("auth/cloud/config", config),
        ("auth/cloud/role/web", cloudb),
        ("auth/token/roles/web", json!({ "orphan": true })),
        ("sys/managed-keys/cloudakms/web", key),
    ]
    .into_iter()
    .enumerate()
    {
        let creator = only(app, &format!("create-{n}"), &granted(path, &["create"])).await;
        let updater = only(app, &format!("update-{n}"), &granted(path, &["update"])).await;
        updater.post(path, body.clone()).await.assert_denied();
        let made = creator.post(path, body.clone()).await;
        assert!(matches!(made.status, 200 | 204), "{path}: {}", made.text);
        creator.post(path, body.clone()).await.assert_denied();
        let changed = updater.post(path, body.clone()).await;
        assert!(matches!(changed.status, 200 | 204), "{path}: {}", changed.text);
    }
    for (granted_only, first, second) in [("create", 204, 403), ("update", 403, 403)] {
        let client = only(app, &format!("own-{granted_only}"), &granted("cubbyhole/a", &[granted_only])).await;
        let status = async || client.post("cubbyhole/a", json!({ "b": "c" })).await.status;
        assert_eq!((status().await, status().await), (first, second), "{granted_only}");
    }
}

async fn create_right_cannot_update_a_concurrently_created_object(app: &App) {
    app.client.enable("sys/auth/roles", "approle").await;
    let creator = only(app, "creator", &granted("auth/roles/role/web", &["create"])).await;
    let headers = format!("X-Service-Token: {}\r\nExpect: 100-continue\r\n", creator.token);
    let body = json!({ "token_ttl": "2h" }).to_string().into_bytes();
    let pending = Pending::begin(app, "POST /v1/auth/roles/role/web", &headers, body).await.wanted().await;
    assert_eq!(app.client.post("auth/roles/role/web", json!({ "token_ttl": "1h" })).await.status, 204);
    let answer = pending.end().await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(app.client.get("auth/roles/role/web").await.body["data"]["token_ttl"], 3600);
}
