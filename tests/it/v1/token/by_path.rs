//! Leases of tokens: listed, looked up and revoked by the path that created the token.

use futures_util::FutureExt as _;
use serde_json::json;
use signet::projects::SessionAccess;
use signet::projects::store::SERVER_CALLER;

use crate::support::{App, Client, tests_on_both_stores};
use crate::v1::login::{log_in, role, role_with_secret_id, secret_id, with_approle};

tests_on_both_stores!(tokens_end_by_the_path_that_created_them, damaged_token_does_not_block_revocation);

async fn lives(holder: &Client) -> bool {
    holder.get("auth/token/lookup-self").await.status == 200
}

async fn leases(client: &Client, path: &str) -> Vec<String> {
    let answer = client.list(&format!("sys/leases/lookup/{path}")).await;
    let keys = answer.body["data"]["keys"].as_array().cloned().unwrap_or_default();
    keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

async fn revoke(client: &Client, path: &str) {
    client.post(&format!("sys/leases/{path}"), json!({})).await.assert_status(204);
}

async fn tokens_end_by_the_path_that_created_them(app: &App) {
    app.client.enable("sys/auth/approle", "approle").await;
    let client = &app.client;
    role(app, "machine", json!({ "token_policies": "root-like" })).await;
    app.policy("root-like", "path \"auth/token/create*\" { capabilities = [\"update\", \"sudo\"] }").await;
    let own = secret_id(app, "machine", json!({})).await;
    let mut machines = Vec::new();
    for _ in 0..3 {
        machines.push(client.holder(&log_in(client, "machine", &own["secret_id"]).await));
    }
    let child = client.holder(&machines[0].post("auth/token/create", json!({})).await);
    let orphan = client.holder(&machines[0].post("auth/token/create-orphan", json!({})).await);
    let other = client.holder(&client.post("auth/token/create", json!({ "policies": ["default"] })).await);

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
    client.post("sys/leases/renew", json!({ "lease_id": id })).await.assert_error_has(400, "auth/token/renew");

    assert_eq!(client.post("sys/leases/revoke", json!({ "lease_id": id })).await.status, 204);
    client.post("sys/leases/lookup", json!({ "lease_id": id })).await.assert_error(400, "invalid lease");
    assert_eq!(leases(client, "auth/approle/login").await, listed[1..]);

    // Other paths revoke nothing, and neither does a part of a segment.
    for path in ["auth/approle/logi", "auth/other", "auth/appro", "auth/approle/login/x"] {
        revoke(client, &format!("revoke-prefix/{path}")).await;
    }
    assert_eq!(leases(client, "auth/approle/login").await, listed[1..]);

    // The method's path revokes its tokens and their children, except orphans, which another path created.
    revoke(client, "revoke-prefix/auth/approle").await;
    for machine in &machines {
        assert!(!lives(machine).await);
    }
    assert!(!lives(&child).await && lives(&orphan).await && lives(&other).await && lives(client).await);
    assert!(leases(client, "auth/approle").await.is_empty());

    // The same without waiting. The caller's own token has no expiry and stays.
    client.post("sys/leases/revoke-prefix/auth/token/create", json!({ "sync": false })).await.assert_status(202);
    assert!(!lives(&other).await && lives(&orphan).await);
    revoke(client, "revoke-force/auth").await;
    assert!(!lives(&orphan).await && lives(client).await);
}

#[actix_web::test]
async fn tokens_of_a_moved_method_end_by_both_paths() {
    let app = with_approle(App::start().await).await;
    let client = &app.client;
    let own = role_with_secret_id(&app, "machine", json!({})).await;
    let before = client.holder(&log_in(client, "machine", &own["secret_id"]).await);
    let kept = client.holder(&log_in(client, "machine", &own["secret_id"]).await);
    client.post("sys/remount", json!({ "from": "auth/approle", "to": "auth/team/machines" })).await.assert_status(200);
    let listed = leases(client, "auth/team/machines/login").await;
    assert_eq!(listed.len(), 2);
    assert_eq!(leases(client, "auth/team").await, ["machines/"]);
    let id = format!("auth/team/machines/login/{}", listed[0]);
    assert_eq!(client.post("sys/leases/lookup", json!({ "lease_id": id })).await.status, 200);
    // Another method at the old path does not affect them.
    client.enable("sys/auth/approle", "approle").await;
    revoke(client, "revoke-prefix/auth/approle").await;
    assert!(lives(&before).await && lives(&kept).await);
    revoke(client, "revoke-prefix/auth/team/machines").await;
    assert!(!lives(&before).await && !lives(&kept).await);
    app.stop().await;
}

/// Changes the row of a login token so that it cannot be decrypted.
async fn damage_one(app: &App) {
    let damaged = app.shared().projects.run("test", SessionAccess::Write(SERVER_CALLER), |mut tx| {
        let sql = "UPDATE token SET expires_at_micros = expires_at_micros + 1 WHERE hash =
            (SELECT hash FROM token WHERE mount IS NOT NULL AND parent IS NULL ORDER BY hash LIMIT 1)";
        async move { tx.execute(sql, &[]).await }.boxed_local()
    });
    assert_eq!(damaged.await.unwrap(), 1);
}

async fn damaged_token_does_not_block_revocation(app: &App) {
    app.client.enable("sys/auth/approle", "approle").await;
    let client = &app.client;
    role(app, "machine", json!({ "token_policies": "maker" })).await;
    app.policy("maker", "path \"auth/token/create\" { capabilities = [\"update\"] }").await;
    let own = secret_id(app, "machine", json!({})).await;
    let mut machines = Vec::new();
    let mut children = Vec::new();
    for _ in 0..3 {
        let machine = client.holder(&log_in(client, "machine", &own["secret_id"]).await);
        children.push(client.holder(&machine.post("auth/token/create", json!({})).await));
        machines.push(machine);
    }
    let other = client.holder(&client.post("auth/token/create", json!({ "policies": ["default"] })).await);
    damage_one(app).await;

    assert_eq!(leases(client, "auth/approle/login").await.len(), 2);
    let listed = client.list("sys/leases/lookup/auth/approle/login").await;
    let left_out = "1 tokens that may have been created below this path are not listed";
    assert!(listed.text.contains(left_out), "{}", listed.text);
    let revoked = client.post("sys/leases/revoke-prefix/auth/approle", json!({})).await.assert_status(200);
    let warning = revoked.body["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("1 tokens were not revoked: their records cannot be read"), "{warning}");
    let living = async || {
        let mut living = 0;
        for child in &children {
            living += usize::from(lives(child).await);
        }
        living
    };
    assert_eq!(living().await, 1, "that of the token that cannot be read");
    assert_eq!(client.list("auth/token/accessors").await.status, 200);
    let none = client.list("sys/leases/lookup/auth/approle/login").await;
    assert_eq!((none.status, &none.body["data"]["keys"]), (200, &json!([])), "{}", none.text);

    // The prefix of another method leaves it alone.
    client.enable("sys/auth/other", "approle").await;
    revoke(client, "revoke-force/auth/other").await;
    assert_eq!(living().await, 1);
    let forced = client.post("sys/leases/revoke-force/auth/approle", json!({})).await;
    assert!(forced.text.contains("1 tokens were revoked whose records cannot be read"), "{}", forced.text);
    assert_eq!(living().await, 0);
    assert!(lives(&other).await);
    revoke(client, "revoke-force/auth/approle").await;
}

#[actix_web::test]
async fn the_root_of_leases_shows_those_of_tokens() {
    let app = App::start().await;
    let client = &app.client;
    assert_eq!(client.list("sys/leases/lookup").await.status, 404, "a root token has no end, and no lease");
    client.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let root = client.list("sys/leases/lookup").await;
    assert_eq!(root.body["data"]["keys"], json!(["auth/"]), "{}", root.text);
    client.list("sys/leases/lookup?after=auth/").await.assert_status(404);
    client.authority("pki", json!({ "generate_lease": true })).await;
    assert_eq!(client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.status, 200);
    for (query, keys) in
        [("", json!(["auth/", "pki/"])), ("?limit=1", json!(["auth/"])), ("?after=auth/", json!(["pki/"]))]
    {
        let listed = client.list(&format!("sys/leases/lookup{query}")).await;
        assert_eq!(listed.body["data"]["keys"], keys, "{}", listed.text);
    }
    app.stop().await;
}
