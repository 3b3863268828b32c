//! Entities on several nodes: one entity per name wherever it logs in, and changes apply on all nodes.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Pair, ok, until};
use crate::support::{App, tests_on};
use crate::v1::identity::{entity_id, login, method, try_login};

tests_on!(pair: Pair::start() =>
    one_name_that_logs_in_everywhere_at_once_is_one_entity,
    entity_change_applies_on_every_node,
);

const READ: &str = "path \"pki/roles/{{identity.entity.metadata.role}}\" { capabilities = [\"read\"] }";

async fn method_on_both(a: &App, b: &App) {
    method(a, "one").await;
    let there = async || b.client.get("sys/auth").await.body["data"].get("one/").is_some();
    until("a new method", there).await;
}

async fn one_name_that_logs_in_everywhere_at_once_is_one_entity(Pair { a, b }: &Pair) {
    method_on_both(a, b).await;
    for round in 0..5 {
        let name = format!("bob-{round}");
        let logins = (0..12).map(|n| {
            let node = if n % 2 == 0 { a } else { b };
            try_login(node, "one", &name, json!({ "n": n.to_string() }), json!({}))
        });
        let ids: Vec<Value> =
            join_all(logins).await.into_iter().map(|auth| auth.unwrap()["entity_id"].clone()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
    assert_eq!(ok(a.client.list("identity/entity/id").await)["data"]["keys"].as_array().unwrap().len(), 5);
}

async fn entity_change_applies_on_every_node(Pair { a, b }: &Pair) {
    method_on_both(a, b).await;
    a.policy("reader", READ).await;
    let there_is = async || b.client.get("sys/policies/acl/reader").await.status == 200;
    until("the policy", there_is).await;
    let here = login(a, "one", "bob", json!({})).await;
    let there = b.client.with_token(&here.token);
    let path = format!("identity/entity/id/{}", entity_id(&here).await);
    assert_eq!(entity_id(&there).await, entity_id(&here).await);
    let status = async || there.get("pki/roles/web").await.status;
    let change = async |body: Value| {
        ok(a.client.post(&path, body).await);
    };

    assert_eq!(status().await, 403);
    change(json!({ "policies": "reader" })).await;
    assert_eq!(status().await, 403, "its template is not filled");
    change(json!({ "metadata": { "role": "web" } })).await;
    until("policies and metadata", async || status().await == 200).await;
    change(json!({ "metadata": { "role": "*" } })).await;
    until("no value that is a pattern", async || status().await == 403).await;
    change(json!({ "metadata": { "role": "web" } })).await;
    until("the value again", async || status().await == 200).await;
    change(json!({ "disabled": true })).await;
    until("a disabled entity", async || there.get("auth/token/lookup-self").await.status == 403).await;
    let refused = async || try_login(b, "one", "bob", json!({}), json!({})).await.is_err();
    until("no login", refused).await;
    change(json!({ "disabled": false })).await;
    until("an entity as it was", async || status().await == 200).await;
    ok(b.client.delete(&path).await);
    there.get("auth/token/lookup-self").await.assert_denied();
    until("a deleted entity", async || here.get("auth/token/lookup-self").await.status == 403).await;
}
