//! Wrapped responses, cubbyholes and moved mounts on several nodes.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Pair, issue, ok, until};
use crate::support::{App, send, tests_on};

tests_on!(pair: Pair::start() =>
    wrapped_response_is_unwrapped_once_across_nodes,
    cubbyhole_changes_are_visible_on_every_node_immediately,
    mount_moved_on_one_node_is_moved_on_all,
);

async fn wrap(node: &App, data: Value) -> String {
    let request = node.client.request("POST", "sys/wrapping/wrap").header("X-Vault-Wrap-TTL", "5m").json(&data);
    ok(send(request).await)["wrap_info"]["token"].as_str().unwrap().to_owned()
}

async fn wrapped_response_is_unwrapped_once_across_nodes(Pair { a, b }: &Pair) {
    for round in 0..5 {
        let token = wrap(a, json!({ "round": round })).await;
        let body = json!({ "token": token });
        // Unwraps by body and by token header, and rewraps.
        let attempts = [a, b].into_iter().cycle().take(24).enumerate().map(|(n, node)| match n % 3 {
            0 => send(node.client.request("POST", "sys/wrapping/unwrap").json(&body)),
            1 => send(node.client.with_token(&token).request("PUT", "sys/wrapping/unwrap")),
            _ => send(node.client.request("POST", "sys/wrapping/rewrap").json(&body)),
        });
        let answers = join_all(attempts.map(Box::pin)).await;
        let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(won.len(), 1, "{round}");
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 400)), "{round}");
        let fetched = match won[0].body["wrap_info"]["token"].as_str() {
            None => won[0].body["data"].clone(),
            Some(token) => ok(b.client.post("sys/wrapping/unwrap", json!({ "token": token })).await)["data"].clone(),
        };
        assert_eq!(fetched, json!({ "round": round }));
    }
    assert_eq!(a.database().psql("SELECT count(*) FROM cubbyhole"), "0");
}

async fn cubbyhole_changes_are_visible_on_every_node_immediately(Pair { a, b }: &Pair) {
    ok(a.client.post("cubbyhole/x", json!({ "n": 1 })).await);
    assert_eq!(ok(b.client.get("cubbyhole/x").await)["data"], json!({ "n": 1 }));
    ok(b.client.delete("cubbyhole/x").await);
    assert_eq!(a.client.get("cubbyhole/x").await.status, 404);
}

async fn mount_moved_on_one_node_is_moved_on_all(Pair { a, b }: &Pair) {
    let serial = issue(&a.client).await;
    let moved = ok(a.client.post("sys/remount", json!({ "from": "pki", "to": "moved" })).await);
    ok(a.client.get(&format!("moved/cert/{serial}")).await);
    let there = async || b.client.get(&format!("moved/cert/{serial}")).await.status == 200;
    until("the mount at its new path", there).await;
    assert_eq!(b.client.get(&format!("pki/cert/{serial}")).await.status, 404);
    let status = format!("sys/remount/status/{}", moved["data"]["migration_id"].as_str().unwrap());
    assert_eq!(ok(b.client.get(&status).await)["data"]["migration_info"]["status"], "success");
    ok(b.client.post("moved/issue/web", json!({ "common_name": "b.test" })).await);
    let moves = [
        a.client.post("sys/remount", json!({ "from": "moved", "to": "x" })),
        b.client.post("sys/remount", json!({ "from": "moved", "to": "y" })),
    ];
    let mut statuses: Vec<u16> = join_all(moves).await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
}
