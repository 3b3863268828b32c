//! Several nodes on one database: each follows the changes of the others.
//!
//! Nodes lag by at most a second. The tests wait longer, so that they pass on a busy machine.

mod change_propagation;
mod concurrent_changes;
mod crls;
pub mod failover;
mod idempotency;
mod identities;
mod logins;
mod managed_keys;
mod outage;
mod processes;
mod tokens;
mod wrapped;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client, until};

/// Two nodes with a mount that issues certificates.
struct Pair {
    a: App,
    b: App,
}

impl Pair {
    async fn start() -> Self {
        let (a, [b]) = nodes().await;
        Self { a, b }
    }

    async fn stop(self) {
        stop(self.a, [self.b]).await;
    }
}

async fn nodes<const OTHERS: usize>() -> (App, [App; OTHERS]) {
    let first = App::builder().postgres().start().await;
    ok(first.client.post("sys/mounts/pki/tune", json!({ "max_lease_ttl": "87600h" })).await);
    let root = json!({ "common_name": "Root", "issuer_name": "root", "key_type": "ec", "ttl": "87600h" });
    ok(first.client.post("pki/root/generate/internal", root).await);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "max_ttl": "720h" });
    ok(first.client.post("pki/roles/web", role).await);
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(first.another().await);
    }
    (first, others.try_into().ok().unwrap())
}

fn ok(answer: Answer) -> Value {
    assert!(answer.status < 300, "{}: {}", answer.status, answer.text);
    answer.body
}

async fn issue(client: &Client) -> String {
    let body = ok(client.post("pki/issue/web", json!({ "common_name": "a.test" })).await);
    body["data"]["serial_number"].as_str().unwrap().to_owned()
}

async fn revoke(client: &Client, serial: &str) {
    ok(client.post("pki/revoke", json!({ "serial_number": serial })).await);
}

async fn stop<const N: usize>(first: App, others: [App; N]) {
    for node in others {
        node.stop().await;
    }
    first.stop().await;
}
