//! Each kind of change, made on one node and followed by another, in both directions.

use serde_json::json;

use signet::error::Kind;
use signet::keys::signing::{ManagedKeyRef, Signers as _};

use super::{Pair, issue, nodes, ok, stop, until};
use crate::support::{App, Client, NO_MODULE, send, tests_on};

tests_on!(pair: Pair::start() =>
    issuer_key_and_setting_changes_reach_every_node,
    policy_changes_reach_every_node,
    cors_origin_changes_reach_every_node,
    quota_changes_reach_every_node_and_counts_are_per_node,
    token_revocations_and_uses_apply_on_every_node,
    lease_can_be_revoked_on_another_node,
    managed_keys_and_mount_grants_reach_every_node,
    writers_of_one_managed_key_on_two_nodes_make_one_key,
);

const READ: &str = "path \"pki/roles/*\" { capabilities = [\"read\"] }";
const NOTHING: &str = "path \"pki/none\" { capabilities = [\"read\"] }";

#[actix_web::test]
async fn role_changes_reach_every_node() {
    let (a, [b, c]) = nodes().await;
    ok(a.client.post("pki/roles/new", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" })).await);
    for node in [&b, &c] {
        until("a new role", async || node.client.get("pki/roles/new").await.status == 200).await;
        ok(node.client.post("pki/issue/new", json!({ "common_name": "a.test" })).await);
    }
    ok(b.client.patch("pki/roles/new", json!({ "allow_any_name": false })).await);
    for node in [&a, &c] {
        let refused =
            async || node.client.post("pki/issue/new", json!({ "common_name": "a.test" })).await.status == 400;
        until("the changed role", refused).await;
    }
    ok(c.client.delete("pki/roles/new").await);
    for node in [&a, &b] {
        until("a deleted role", async || node.client.get("pki/roles/new").await.status == 404).await;
    }
    stop(a, [b, c]).await;
}

async fn issuer_key_and_setting_changes_reach_every_node(Pair { a, b }: &Pair) {
    let other = json!({ "common_name": "Other", "issuer_name": "other", "key_name": "k", "key_type": "ec" });
    ok(a.client.post("pki/root/generate/internal", other).await);
    until("a new issuer", async || b.client.get("pki/issuer/other").await.status == 200).await;
    until("its key", async || b.client.get("pki/key/k").await.status == 200).await;
    let issued = b.client.post("pki/issuer/other/issue/web", json!({ "common_name": "a.test", "ttl": "1h" })).await;
    let signed_by = ok(issued);
    let other = ok(a.client.get("pki/issuer/other").await);
    let pem = |body: &serde_json::Value, name: &str| body["data"][name].as_str().unwrap().trim().to_owned();
    assert_eq!(pem(&signed_by, "issuing_ca"), pem(&other, "certificate"));

    ok(b.client.post("pki/config/issuers", json!({ "default": "other" })).await);
    let default = ok(b.client.get("pki/config/issuers").await)["data"]["default"].clone();
    let same = async || a.client.get("pki/config/issuers").await.body["data"]["default"] == default;
    until("another default", same).await;
    ok(a.client.post("pki/config/urls", json!({ "issuing_certificates": "http://ca.test/" })).await);
    let urls = async || {
        b.client.get("pki/config/urls").await.body["data"]["issuing_certificates"] == json!(["http://ca.test/"])
    };
    until("urls", urls).await;
    ok(b.client.delete("pki/issuer/other").await);
    until("a deleted issuer", async || a.client.get("pki/issuer/other").await.status == 404).await;
}

#[actix_web::test]
async fn mounts_open_and_close_on_every_node() {
    let (a, [b]) = nodes().await;
    for _ in 0..2 {
        ok(a.client.post("sys/mounts/team", json!({ "type": "pki" })).await);
        until("a new mount", async || b.client.list("team/issuers").await.status == 404 && table(&b).await).await;
        ok(b.client.post("team/root/generate/internal", json!({ "common_name": "Team", "key_type": "ec" })).await);
        let role = json!({ "allow_any_name": true, "key_type": "ec", "no_store": true });
        ok(b.client.post("team/roles/x", role).await);
        let issues = async |node: &crate::support::App| {
            node.client.post("team/issue/x", json!({ "common_name": "a.test", "ttl": "1h" })).await.status
        };
        until("its role", async || issues(&a).await == 200).await;
        assert_eq!(issues(&b).await, 200);
        ok(b.client.delete("sys/mounts/team").await);
        assert_eq!(issues(&b).await, 404);
        until("a dropped mount", async || issues(&a).await == 404).await;
    }
    stop(a, [b]).await;

    async fn table(node: &crate::support::App) -> bool {
        node.client.get("sys/mounts").await.body["data"].get("team/").is_some()
    }
}

async fn policy_changes_reach_every_node(Pair { a, b }: &Pair) {
    a.policy("reader", READ).await;
    let reader = a.with_policies(&["reader"]).await;
    let there = b.client.with_token(&reader.token);
    until("a new policy", async || there.get("pki/roles/web").await.status == 200).await;
    b.policy("reader", NOTHING).await;
    there.get("pki/roles/web").await.assert_denied();
    until("the changed policy", async || reader.get("pki/roles/web").await.status == 403).await;
    ok(a.client.post("sys/policies/acl/reader", json!({ "policy": READ })).await);
    until("the policy as it was", async || there.get("pki/roles/web").await.status == 200).await;
    ok(b.client.delete("sys/policies/acl/reader").await);
    until("a deleted policy", async || reader.get("pki/roles/web").await.status == 403).await;
}

async fn cors_origin_changes_reach_every_node(Pair { a, b }: &Pair) {
    let page = |client: &Client| client.request("GET", "sys/health").header("Origin", "https://other.test");
    ok(a.client.post("sys/config/cors", json!({ "allowed_origins": "https://console.test" })).await);
    until("origins that are named", async || send(page(&b.client)).await.status == 403).await;
    ok(b.client.delete("sys/config/cors").await);
    until("none that is", async || send(page(&a.client)).await.status == 200).await;
}

async fn quota_changes_reach_every_node_and_counts_are_per_node(Pair { a, b }: &Pair) {
    let quota = "sys/quotas/rate-limit/seldom";
    ok(a.client.post(quota, json!({ "path": "pki/roles/*", "rate": 1, "interval": "1h" })).await);
    until("a new quota", async || b.client.get(quota).await.status == 200).await;
    for node in [a, b] {
        assert_eq!(node.client.get("pki/roles/web").await.status, 200);
        assert_eq!(node.client.get("pki/roles/web").await.status, 429);
    }
    ok(b.client.post("sys/quotas/config", json!({ "rate_limit_exempt_paths": ["pki/roles/web"] })).await);
    until("an exempt path", async || a.client.get("pki/roles/web").await.status == 200).await;
    assert_eq!(a.client.get("pki/roles/other").await.status, 429);
    // Two quotas of the same scope cannot be created, not even concurrently.
    let same = async |node: &App, name: &str| {
        node.client.post(&format!("sys/quotas/rate-limit/{name}"), json!({ "path": "pki", "rate": 1000 })).await.status
    };
    let (one, other) = futures_util::future::join(same(a, "one"), same(b, "other")).await;
    assert_eq!([one, other].iter().filter(|status| **status == 204).count(), 1, "{one} {other}");
    ok(b.client.delete(quota).await);
    until("a deleted quota", async || a.client.get("pki/roles/other").await.status == 404).await;
}

async fn token_revocations_and_uses_apply_on_every_node(Pair { a, b }: &Pair) {
    a.policy("reader", READ).await;
    let here = a.with_policies(&["reader"]).await;
    let there = b.client.with_token(&here.token);
    until("the policy", async || there.get("pki/roles/web").await.status == 200).await;
    ok(a.client.post("auth/token/revoke", json!({ "token": here.token })).await);
    here.get("pki/roles/web").await.assert_denied();
    until("a revoked token", async || there.get("pki/roles/web").await.status == 403).await;

    let limited = json!({ "policies": ["reader"], "num_uses": 2 });
    let made = ok(a.client.post("auth/token/create", limited).await);
    let token = made["auth"]["client_token"].as_str().unwrap();
    let here = a.client.with_token(token);
    let there = b.client.with_token(token);
    ok(here.get("pki/roles/web").await);
    ok(there.get("pki/roles/web").await);
    here.get("pki/roles/web").await.assert_denied();
    there.get("pki/roles/web").await.assert_denied();
}

async fn lease_can_be_revoked_on_another_node(Pair { a, b }: &Pair) {
    let role = json!({ "allow_any_name": true, "key_type": "ec", "generate_lease": true, "ttl": "1h" });
    ok(a.client.post("pki/roles/leased", role).await);
    let issued = ok(a.client.post("pki/issue/leased", json!({ "common_name": "a.test" })).await);
    ok(b.client.post("sys/leases/revoke", json!({ "lease_id": issued["lease_id"], "sync": true })).await);
    let serial = issued["data"]["serial_number"].as_str().unwrap();
    let revoked = ok(a.client.get(&format!("pki/cert/{serial}")).await);
    assert!(revoked["data"]["revocation_time"].as_i64().unwrap() > 0);
    issue(&b.client).await;
}

/// The error of a node's mount `pki` for the managed key `hsm`, which has no module.
async fn refusal(node: &App) -> Kind {
    let shared = node.shared();
    let mount = shared.auth.mounts().get("pki").unwrap().id;
    match shared.managed_keys.start_use(mount, ManagedKeyRef::Name("hsm".to_owned())) {
        Ok(taking) => taking.await.err().unwrap().kind(),
        Err(refused) => refused.kind(),
    }
}

async fn managed_keys_and_mount_grants_reach_every_node(Pair { a, b }: &Pair) {
    let path = "sys/managed-keys/pkcs11/hsm";
    let key =
        json!({ "library": NO_MODULE, "token_label": "one", "key_label": "k", "mechanism": "0x1041", "pin": "1234" });
    ok(a.client.post(path, key.clone()).await);
    until("a new key", async || b.client.get(path).await.status == 200).await;
    let shown = ok(a.client.get(path).await)["data"].clone();
    assert_eq!(ok(b.client.get(path).await)["data"], shown);
    ok(b.client.post(path, json!({ "max_parallel": 7 })).await);
    let changed = async || ok(a.client.get(path).await)["data"]["max_parallel"] == 7;
    until("the changed key", changed).await;
    assert_eq!(ok(a.client.get(path).await)["data"]["UUID"], shown["UUID"]);

    assert_eq!(refusal(b).await, Kind::Invalid);
    ok(a.client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": "hsm" })).await);
    // The key is granted, so its module is tried.
    until("a grant", async || refusal(b).await == Kind::Unavailable).await;
    // The deletion is rejected even if node `a` has not yet read these changes.
    ok(b.client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": "other" })).await);
    ok(b.client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": "hsm" })).await);
    assert_eq!(a.client.delete(path).await.error(), "managed key \"hsm\" is in use by mount \"pki/\"");
    ok(b.client.post("sys/mounts/pki/tune", json!({ "allowed_managed_keys": [] })).await);
    until("no grant", async || refusal(a).await == Kind::Invalid).await;
    ok(a.client.delete(path).await);
    until("a deleted key", async || b.client.get(path).await.status == 404).await;
}

async fn writers_of_one_managed_key_on_two_nodes_make_one_key(Pair { a, b }: &Pair) {
    let key = |n: u32| {
        json!({ "library": NO_MODULE, "token_label": "one", "key_label": "k", "mechanism": "0x1041", "pin": "1234",
            "max_parallel": n })
    };
    for round in 0..6 {
        let path = format!("sys/managed-keys/pkcs11/k{round}");
        let writes = [a.client.post(&path, key(1)), b.client.post(&path, key(2))];
        let [one, other] = futures_util::future::join_all(writes).await.try_into().ok().unwrap();
        ok(one);
        ok(other);
        let uuid = async |node: &App| ok(node.client.get(&path).await)["data"].clone();
        let same = async || uuid(a).await == uuid(b).await;
        until("the same key on both", same).await;
    }
}
