//! Tokens that are used on several nodes.

use futures_util::future::join_all;
use serde_json::json;

use super::{Pair, ok, until};
use crate::support::tests_on;

tests_on!(pair: Pair::start() =>
    single_use_token_serves_one_of_50_concurrent_requests,
    token_role_and_batch_token_work_on_every_node,
);

const READ: &str = "path \"pki/roles/*\" { capabilities = [\"read\"] }";

async fn single_use_token_serves_one_of_50_concurrent_requests(Pair { a, b }: &Pair) {
    a.policy("reader", READ).await;
    let both = a.with_policies(&["reader"]).await;
    until("the policy", async || b.client.with_token(&both.token).get("pki/roles/web").await.status == 200).await;
    for _ in 0..3 {
        let limited = json!({ "policies": ["reader"], "num_uses": 1 });
        let made = ok(a.client.post("auth/token/create", limited).await);
        let token = made["auth"]["client_token"].as_str().unwrap();
        let clients = [a.client.with_token(token), b.client.with_token(token)];
        let asked = (0..50).map(|n| clients[n % 2].get("pki/roles/web"));
        let statuses: Vec<u16> = join_all(asked).await.iter().map(|answer| answer.status).collect();
        let served = statuses.iter().filter(|status| **status == 200).count();
        let denied = statuses.iter().filter(|status| **status == 403).count();
        assert_eq!((served, denied), (1, 49), "{statuses:?}");
    }
}

async fn token_role_and_batch_token_work_on_every_node(Pair { a, b }: &Pair) {
    a.policy("reader", READ).await;
    ok(a.client.post("auth/token/roles/readers", json!({ "allowed_policies": "reader" })).await);
    until("a new role", async || b.client.get("auth/token/roles/readers").await.status == 200).await;
    let parent = b.with_policies(&["default"]).await;
    let body = json!({ "type": "batch", "ttl": "1h" });
    ok(a.client.post("auth/token/lookup", json!({ "token": parent.token })).await);
    b.policy("maker", "path \"auth/token/create/readers\" { capabilities = [\"update\"] }").await;
    let maker = b.with_policies(&["maker"]).await;
    let made = ok(maker.post("auth/token/create/readers", body).await);
    let token = made["auth"]["client_token"].as_str().unwrap();
    for node in [a, b] {
        let client = node.client.with_token(token);
        until("the policy", async || client.get("pki/roles/web").await.status == 200).await;
    }
    ok(b.client.post("auth/token/revoke", json!({ "token": maker.token })).await);
    b.client.with_token(token).get("pki/roles/web").await.assert_denied();
    let there = a.client.with_token(token);
    until("the end of the parent", async || there.get("pki/roles/web").await.status == 403).await;
    ok(a.client.delete("auth/token/roles/readers").await);
    until("the end of the role", async || b.client.get("auth/token/roles/readers").await.status == 404).await;
}
