//! Tokens from logins: networks, revocation, batch tokens.

use std::time::Duration;

use serde_json::json;

use super::World;
use crate::support::{Builder, assert_has};

#[actix_web::test]
async fn logins_and_tokens_are_bound_to_the_role_networks() {
    let world = World::built(Builder::behind_proxy).await;
    world.role(json!({"bound_service_principal_ids": "o1", "token_bound_cidrs": "192.0.2.0/24"})).await;
    let body = json!({"role": "r", "jwt": world.provider.mint(json!({}))});
    let from =
        async |address: &str| world.app.client.with_token("").at(address).post("auth/cloudb/login", body.clone()).await;
    from("198.51.100.7").await.assert_denied();
    assert!(world.provider.lock().asked.is_empty());
    let own = world.app.client.holder(&from("192.0.2.7").await);
    assert_eq!(own.at("192.0.2.8").get("auth/token/lookup-self").await.status, 200);
    assert_eq!(own.at("198.51.100.7").get("auth/token/lookup-self").await.status, 403);
}

#[actix_web::test]
async fn tokens_are_revoked_with_their_mount_and_mounts_are_separate() {
    let world = World::start().await;
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    world.enable("team-b/cloudb").await;
    let role = json!({"bound_service_principal_ids": "o1"});
    assert_eq!(world.app.client.post("auth/team-b/cloudb/role/other", role).await.status, 204);
    let here = world.app.client.holder(&world.with(json!({})).await);
    let jwt = world.provider.mint(json!({}));
    let open = world.app.client.with_token("");
    let there = open.post("auth/team-b/cloudb/login", json!({"role": "other", "jwt": jwt})).await;
    let there = world.app.client.holder(&there);
    let unknown = open.post("auth/team-b/cloudb/login", json!({"role": "r", "jwt": jwt})).await;
    unknown.assert_error(400, "invalid role name \"r\"");
    assert_eq!(world.app.client.delete("sys/auth/cloudb").await.status, 204);
    here.get("auth/token/lookup-self").await.assert_denied();
    assert_eq!(there.get("auth/token/lookup-self").await.status, 200);
    assert_eq!(world.login(json!({"role": "r", "jwt": jwt})).await.status, 403);
}

#[actix_web::test]
async fn roles_configuration_and_tokens_work_on_another_node() {
    let world = World::built(|builder| builder.postgres()).await;
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    let other = world.app.another().await;
    let body = json!({"role": "r", "jwt": world.provider.mint(json!({}))});
    let there = other.client.with_token("").post("auth/cloudb/login", body.clone()).await;
    assert_eq!(world.app.client.holder(&there).get("auth/token/lookup-self").await.status, 200);
    world.role(json!({"bound_service_principal_ids": "o2"})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(other.client.with_token("").post("auth/cloudb/login", body).await.status, 403);
}

#[actix_web::test]
async fn role_with_batch_type_returns_batch_tokens() {
    let world = World::start().await;
    world.role(json!({"bound_service_principal_ids": "o1", "token_type": "batch", "token_ttl": "1h"})).await;
    let answer = world.with(json!({})).await;
    let auth = &answer.body["auth"];
    assert_has(auth, json!({"token_type": "batch", "accessor": "", "renewable": false}));
    let own = world.app.client.holder(&answer);
    assert_eq!(own.get("auth/token/lookup-self").await.body["data"]["path"], "auth/cloudb/login");
    assert_eq!(world.app.client.delete("sys/auth/cloudb").await.status, 204);
    own.get("auth/token/lookup-self").await.assert_denied();
}
