//! Nodes that concurrently change the same objects: no change is lost or made twice.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use serde_json::json;

use super::{Pair, issue, ok, until};
use crate::support::{App, Client, tests_on};

tests_on!(pair: Pair::start() =>
    concurrent_issuance_has_unique_serials_and_exact_counters,
    concurrent_changes_of_one_role_are_all_stored,
    concurrent_writes_of_many_roles_are_all_stored,
    concurrent_policy_writes_are_serialized,
    concurrent_enable_of_nested_mounts_rejects_one,
    concurrent_enable_and_disable_leave_at_most_one_mount,
);

const READ: &str = "path \"pki/roles/*\" { capabilities = [\"read\"] }";
const CLIENTS: usize = 32;
const EACH: usize = 4;

async fn concurrent_issuance_has_unique_serials_and_exact_counters(Pair { a, b }: &Pair) {
    let client = async |client: Client| {
        let mut serials = Vec::new();
        for _ in 0..EACH {
            serials.push(issue(&client).await);
        }
        serials
    };
    let all = [a, b].into_iter().flat_map(|node| (0..CLIENTS).map(|_| client(node.client.clone())));
    let serials: Vec<String> = join_all(all).await.concat();
    let unique: BTreeSet<&String> = serials.iter().collect();
    assert_eq!((unique.len(), serials.len()), (2 * CLIENTS * EACH, 2 * CLIENTS * EACH));
    let count = (serials.len() + 1).to_string();
    assert_eq!(a.database().psql("SELECT count(*) FROM certificate"), count);
    assert_eq!(a.database().psql("SELECT sum(certificates) FROM counter"), count);
    for (serial, node) in serials.iter().zip([b, a].into_iter().cycle()) {
        assert_eq!(node.client.get(&format!("pki/cert/{serial}")).await.status, 200);
    }
}

async fn concurrent_changes_of_one_role_are_all_stored(Pair { a, b }: &Pair) {
    for n in 1..=20 {
        let (one, other) = join(
            a.client.patch("pki/roles/web", json!({ "ttl": format!("{n}h") })),
            b.client.patch("pki/roles/web", json!({ "organization": format!("O{n}") })),
        )
        .await;
        ok(one);
        ok(other);
        let shown = async |node: &App| {
            let data = node.client.get("pki/roles/web").await.body["data"].clone();
            (data["ttl"].clone(), data["organization"].clone())
        };
        let both = (json!(format!("{n}h")), json!([format!("O{n}")]));
        for node in [a, b] {
            until("both changes", async || shown(node).await == both).await;
        }
    }
    let version = "SELECT version FROM document WHERE kind = 'role' AND name = 'web'";
    assert_eq!(a.database().psql(version), "41");
}

async fn concurrent_writes_of_many_roles_are_all_stored(Pair { a, b }: &Pair) {
    let write = async |node: &App, n: usize| {
        let name = format!("pki/roles/r{}-{n}", std::ptr::from_ref(node) as usize);
        ok(node.client.post(&name, json!({ "key_type": "ec" })).await);
        let same = format!("pki/roles/shared-{}", n % 5);
        ok(node.client.post(&same, json!({ "key_type": "ec", "ou": format!("{n}") })).await);
    };
    let all = (0..20).flat_map(|n| [write(a, n), write(b, n)]);
    join_all(all).await;
    let count = a.database().psql("SELECT count(*) FROM document WHERE kind = 'role'");
    // The role `web`, five written by both nodes, and twenty of each node.
    assert_eq!(count, "46");
    let versions = "SELECT sum(version) FROM document WHERE kind = 'role' AND name LIKE 'shared-%'";
    assert_eq!(a.database().psql(versions), "40");
    let keys = async |node: &App| node.client.list("pki/roles").await.body["data"]["keys"].clone();
    until("the same roles", async || keys(a).await.as_array().unwrap().len() == 46 && keys(a).await == keys(b).await)
        .await;
}

async fn concurrent_policy_writes_are_serialized(Pair { a, b }: &Pair) {
    for _ in 0..10 {
        let write = |node: &App| {
            let client = node.client.clone();
            async move { ok(client.post("sys/policies/acl/both", json!({ "policy": READ })).await) }
        };
        join(write(a), write(b)).await;
    }
    assert_eq!(ok(a.client.post("sys/policies/acl/both", json!({ "policy": READ })).await), json!(null));
    assert_eq!(ok(a.client.get("sys/policies/acl/both").await)["data"]["version"], 21);
    // A check-and-set write with an outdated version is rejected.
    let stale = json!({ "policy": READ, "cas": 20 });
    assert_eq!(b.client.post("sys/policies/acl/both", stale).await.status, 400);
}

async fn concurrent_enable_of_nested_mounts_rejects_one(Pair { a, b }: &Pair) {
    for n in 0..8 {
        let outer = format!("sys/mounts/x{n}");
        let inner = format!("sys/mounts/x{n}/y");
        let pki = json!({ "type": "pki" });
        let (one, other) = join(a.client.post(&outer, pki.clone()), b.client.post(&inner, pki)).await;
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 400], "{} {}", one.text, other.text);
    }
}

async fn concurrent_enable_and_disable_leave_at_most_one_mount(Pair { a, b }: &Pair) {
    for _ in 0..5 {
        let pki = json!({ "type": "pki" });
        let (one, other) = join(a.client.post("sys/mounts/t", pki.clone()), b.client.post("sys/mounts/t", pki)).await;
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 400], "{} {}", one.text, other.text);
        let (one, other) = join(a.client.delete("sys/mounts/t"), b.client.delete("sys/mounts/t")).await;
        assert_eq!((one.status, other.status), (204, 204), "{} {}", one.text, other.text);
        assert_eq!(a.database().psql("SELECT count(*) FROM mount"), "2");
    }
}
