//! Login methods on several nodes: roles follow, and secret ids are used only once.

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use super::{Pair, ok, until};
use crate::directory::Issuer;
use crate::support::{Answer, App, tests_on};

tests_on!(
    with_approle: with_approle() =>
        login_roles_and_disabled_methods_reach_every_node,
        single_use_secret_id_works_once_across_nodes,
        role_id_is_unique_and_concurrent_role_changes_are_merged,
        secret_id_of_a_role_deleted_on_another_node_is_invalid;
    pair: Pair::start() =>
        jwt_configuration_of_one_node_applies_on_the_other;
);

async fn role(node: &App, name: &str, fields: Value) {
    ok(node.client.post(&format!("auth/approle/role/{name}"), fields).await);
}

async fn secret_id(node: &App, role: &str, fields: Value) -> Value {
    ok(node.client.post(&format!("auth/approle/role/{role}/secret-id"), fields).await)["data"].clone()
}

async fn log_in(node: &App, role_id: &str, secret_id: &Value) -> Answer {
    let body = json!({ "role_id": role_id, "secret_id": secret_id });
    node.client.with_token("").post("auth/approle/login", body).await
}

async fn with_approle() -> Pair {
    let pair = Pair::start().await;
    pair.a.client.enable("sys/auth/approle", "approle").await;
    role(&pair.a, "web", json!({ "role_id": "web-id" })).await;
    until("the role", async || pair.b.client.get("auth/approle/role/web").await.status == 200).await;
    pair
}

async fn login_roles_and_disabled_methods_reach_every_node(Pair { a, b }: &Pair) {
    role(b, "web", json!({ "token_policies": "b" })).await;
    let policies = async || a.client.get("auth/approle/role/web").await.body["data"]["token_policies"].clone();
    until("the changed role", async || policies().await == json!(["b"])).await;
    ok(b.client.post("auth/approle/role/web/role-id", json!({ "role_id": "another" })).await);
    let made = secret_id(a, "web", json!({})).await;
    until("the other role id", async || log_in(a, "another", &made["secret_id"]).await.status == 200).await;
    assert_eq!(log_in(a, "web-id", &made["secret_id"]).await.status, 400);
    ok(a.client.delete("auth/approle/role/web").await);
    until("a deleted role", async || log_in(b, "another", &made["secret_id"]).await.status == 400).await;
    role(a, "web", json!({ "role_id": "web-id" })).await;
    let made = secret_id(a, "web", json!({})).await;
    let entered = ok(log_in(a, "web-id", &made["secret_id"]).await);
    let there = b.client.with_token(entered["auth"]["client_token"].as_str().unwrap());
    assert_eq!(there.get("auth/token/lookup-self").await.status, 200);
    ok(b.client.delete("sys/auth/approle").await);
    there.get("auth/token/lookup-self").await.assert_denied();
    until("a disabled method", async || log_in(a, "web-id", &made["secret_id"]).await.status == 403).await;
}

async fn jwt_configuration_of_one_node_applies_on_the_other(Pair { a, b }: &Pair) {
    let issuer = Issuer::start();
    ok(a.client.post("sys/auth/jwt", json!({ "type": "jwt" })).await);
    ok(a.client.post("auth/jwt/config", json!({ "oidc_discovery_url": issuer.url })).await);
    let written = async |node: &App, policy: &str| {
        let role = json!({ "role_type": "jwt", "user_claim": "sub", "bound_audiences": "signet",
            "token_policies": policy });
        ok(node.client.post("auth/jwt/role/ci", role).await);
    };
    let entered = async |node: &App| {
        let body = json!({ "role": "ci", "jwt": issuer.token(json!({ "aud": "signet" })) });
        node.client.with_token("").post("auth/jwt/login", body).await
    };
    written(a, "first").await;
    until("the role", async || entered(b).await.body["auth"]["token_policies"] == json!(["default", "first"])).await;
    written(b, "second").await;
    until("the other role", async || entered(a).await.body["auth"]["token_policies"] == json!(["default", "second"]))
        .await;
    // A token of one node is valid on the other immediately, and both logins are the same entity.
    let here = ok(entered(a).await)["auth"].clone();
    let there = ok(entered(b).await)["auth"].clone();
    assert_eq!(here["entity_id"], there["entity_id"]);
    let of_a = b.client.with_token(here["client_token"].as_str().unwrap());
    assert_eq!(of_a.get("auth/token/lookup-self").await.status, 200);
    // After the change, only the other issuer's keys are valid, on both nodes.
    let other = Issuer::start();
    ok(b.client.post("auth/jwt/config", json!({ "oidc_discovery_url": other.url })).await);
    until("another configuration", async || entered(a).await.status == 403).await;
    ok(a.client.delete("auth/jwt/role/ci").await);
    until("a deleted role", async || entered(b).await.status == 400).await;
    ok(b.client.delete("sys/auth/jwt").await);
    of_a.get("auth/token/lookup-self").await.assert_denied();
}

async fn single_use_secret_id_works_once_across_nodes(Pair { a, b }: &Pair) {
    for uses in [1, 1, 1, 5] {
        let made = secret_id(a, "web", json!({ "num_uses": uses })).await;
        let all = [a, b].into_iter().flat_map(|node| (0..8).map(|_| log_in(node, "web-id", &made["secret_id"])));
        let answers = join_all(all).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), uses);
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 400)));
    }
    assert_eq!(a.database().psql("SELECT count(*) FROM secret_id"), "0");
    // A secret id destroyed on one node is invalid on the other immediately.
    let made = secret_id(a, "web", json!({})).await;
    ok(log_in(b, "web-id", &made["secret_id"]).await);
    ok(a.client.post("auth/approle/role/web/secret-id/destroy", json!({ "secret_id": made["secret_id"] })).await);
    assert_eq!(log_in(b, "web-id", &made["secret_id"]).await.status, 400);
}

async fn role_id_is_unique_and_concurrent_role_changes_are_merged(Pair { a, b }: &Pair) {
    for n in 0..10 {
        let body = json!({ "role_id": format!("id-{n}") });
        let (one, other) = join(
            a.client.post(&format!("auth/approle/role/one-{n}"), body.clone()),
            b.client.post(&format!("auth/approle/role/other-{n}"), body),
        )
        .await;
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 400], "{} {}", one.text, other.text);
        let (one, other) = join(
            a.client.post("auth/approle/role/web", json!({ "token_num_uses": n })),
            b.client.post("auth/approle/role/web", json!({ "secret_id_num_uses": n })),
        )
        .await;
        ok(one);
        ok(other);
        for node in [a, b] {
            let both = async || {
                let shown = node.client.get("auth/approle/role/web").await.body["data"].clone();
                shown["token_num_uses"] == n && shown["secret_id_num_uses"] == n
            };
            until("both changes", both).await;
        }
    }
}

async fn secret_id_of_a_role_deleted_on_another_node_is_invalid(Pair { a, b }: &Pair) {
    for n in 0..10 {
        let name = format!("gone-{n}");
        role(a, &name, json!({})).await;
        let path = format!("auth/approle/role/{name}");
        until("the role", async || b.client.get(&path).await.status == 200).await;
        let (_, _) = join(a.client.delete(&path), b.client.post(&format!("{path}/secret-id"), json!({}))).await;
        b.client.post(&format!("{path}/secret-id"), json!({})).await.assert_status(404);
    }
    ok(b.client.post("auth/approle/tidy/secret-id", json!({})).await);
    until("nothing is left", async || a.database().psql("SELECT count(*) FROM secret_id") == "0").await;
}
