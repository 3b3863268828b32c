//! Every endpoint, with one of its store calls failing at a time: either a 503 that changed nothing, or a completely
//! stored change. The same request then succeeds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use signet::auth::policy::Operation;
use signet::http::secrets::all_routes;
use signet::http::secrets::route::operation_name;

use super::double::{Fault, Met};
use super::requests::{Afterwards, Ask, lease, request};
use super::stage::{Changes, Stage, assert_counted, changes};
use crate::support::{Answer, send};

/// More store calls than any request makes.
const MOST: usize = 40;

/// Routes with tests of their own:
/// - `sys/health` reports on the store itself, is cached for a second and has its own body.
/// - The end of a lease is two commits; the rest continues in the background, as each tidy does.
/// - OCSP has its own response format.
/// - The revocation queue is always empty and reads no store.
/// - Data keys are also maintained in the background, so their calls are not counted.
/// - Metrics remain available to authorized callers while the store is unavailable.
const ASIDE: [(&str, &str); 18] = [
    ("pki", "certs/revocation-queue"),
    ("system", "health"),
    ("system", "metrics"),
    ("pki", "ocsp"),
    ("pki", "ocsp/**request"),
    ("pki", "unified-ocsp"),
    ("pki", "unified-ocsp/**request"),
    ("pki", "tidy"),
    ("token", "tidy"),
    ("system", "leases/revoke"),
    ("system", "leases/revoke/*lease_id"),
    ("system", "leases/revoke-prefix/*prefix"),
    ("system", "leases/revoke-force/*prefix"),
    ("system", "key-status"),
    ("system", "rotate"),
    ("system", "rotate/keyring"),
    ("system", "rotate/config"),
    ("system", "rotate/keyring/config"),
];

async fn ask(stage: &Stage, operation: Operation, ask: &Ask) -> Answer {
    let client =
        ask.token.as_ref().map_or_else(|| stage.app.client.clone(), |token| stage.app.client.with_token(token));
    match operation {
        Operation::Read => client.get(&ask.path).await,
        Operation::List => client.list(&ask.path).await,
        Operation::Create | Operation::Update => client.post(&ask.path, ask.body.clone()).await,
        Operation::Patch => client.patch(&ask.path, ask.body.clone()).await,
        Operation::Delete => client.delete(&ask.path).await,
    }
}

pub fn assert_unavailable(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 503, "{what}: {}", answer.text);
    assert_eq!(answer.header("retry-after"), "1", "{what}");
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    assert!(!answer.error().is_empty(), "{what}: {}", answer.text);
    // Warnings about the request are permitted, too.
    let expected = |name: &String| matches!(&name[..], "errors" | "warnings");
    assert!(answer.body.as_object().unwrap().keys().all(expected), "{what}: {}", answer.text);
}

fn assert_status(answer: &Answer, wanted: u16, what: &str) {
    let fits = if wanted == 0 { matches!(answer.status, 200 | 204) } else { answer.status == wanted };
    assert!(fits, "{what}: {} {}", answer.status, answer.text);
}

struct Walk<'a> {
    stage: &'a Stage,
    kind: &'static str,
    operation: Operation,
    pattern: &'static str,
    /// The changes without a fault.
    whole: Changes,
    /// The names of the calls without a fault, those of background work included.
    calls: BTreeSet<&'static str>,
}

impl Walk<'_> {
    async fn prepared(&self) -> Ask {
        let kind = self.kind;
        let pattern = self.pattern;
        let ask = request(self.stage, kind, self.operation, pattern).await;
        let ask = ask.unwrap_or_else(|| panic!("no request for {} {kind} {pattern}", operation_name(self.operation)));
        self.stage.forget_tokens();
        ask
    }

    async fn step(&self, n: usize, fault: Fault) -> bool {
        let stage = self.stage;
        let wanted = self.prepared().await;
        let what = format!("{} {}, call {n} {fault:?}", operation_name(self.operation), wanted.path);
        let before = stage.rows();
        stage.faults.arm_among(&self.calls, n, fault);
        let answer = ask(stage, self.operation, &wanted).await;
        let met = stage.faults.disarm();
        let changed = changes(&before, &stage.rows());
        let Some(met) = met else {
            assert_status(&answer, wanted.status, &what);
            return false;
        };
        let what = format!("{what} ({})", met.call);
        let stored = self.judge(&wanted, &answer, &met, fault, &changed, &what);
        stage.forget_tokens();
        let second = ask(stage, self.operation, &wanted).await;
        let status = if stored { wanted.again } else { wanted.status };
        assert_status(&second, status, &format!("{what}, again"));
        assert_eq!(stage.differences().await, Vec::<String>::new(), "{what}");
        true
    }

    /// Checks that the response fits the changes. Returns `true` if the change is stored.
    fn judge(&self, ask: &Ask, answer: &Answer, met: &Met, fault: Fault, changed: &Changes, what: &str) -> bool {
        if met.commits == 0 {
            assert_unavailable(answer, what);
            let nothing = changed.is_empty();
            let may_be_stored = fault != Fault::Before && met.call.starts_with("commit");
            assert!(nothing || (may_be_stored && *changed == self.whole), "{what}: changed {changed:?}");
            return !nothing;
        }
        if let Afterwards::InParts(why) = ask.afterwards {
            assert!(changed.keys().all(|table| self.whole.contains_key(table)), "{what}: changed {changed:?}");
            assert_unavailable(answer, &format!("{what}: {why}"));
            return !changed.is_empty();
        }
        assert_eq!(*changed, self.whole, "{what}: stored before");
        match ask.afterwards {
            Afterwards::Done => panic!("{what}: a call after the change was stored"),
            Afterwards::Warns => {
                assert_status(answer, ask.status, what);
                assert!(answer.text.contains("CRLs could not be built yet"), "{what}: {}", answer.text);
            }
            Afterwards::Unnoticed(why) => assert_status(answer, ask.status, &format!("{what}: {why}")),
            Afterwards::Unanswered(why) | Afterwards::InParts(why) => {
                assert_unavailable(answer, &format!("{what}: {why}"))
            }
        }
        true
    }
}

/// Tests every route of a mount type whose operation passes `of`, each on its own server. Counts failed calls by route.
async fn walk(kind: &'static str, of: impl Fn(Operation) -> bool) -> BTreeMap<String, usize> {
    let mut failed = BTreeMap::new();
    let routes =
        all_routes().filter(|(k, route)| *k == kind && of(route.operation) && !ASIDE.contains(&(*k, route.pattern)));
    for (kind, route) in routes {
        let stage = Stage::with_authority().await;
        let operation = route.operation;
        let pattern = route.pattern;
        let mut walk = Walk { stage: &stage, kind, operation, pattern, whole: Changes::new(), calls: BTreeSet::new() };
        let wanted = walk.prepared().await;
        let before = stage.rows();
        let counts = stage.faults.counts();
        assert_status(&ask(&stage, operation, &wanted).await, wanted.status, &wanted.path);
        walk.whole = changes(&before, &stage.rows());
        let more = stage.faults.counts().into_iter().filter(|(name, count)| counts.get(name) != Some(count));
        walk.calls = more.map(|(name, _)| name).collect();
        for fault in [Fault::Before, Fault::After, Fault::Outage] {
            let mut n = 1;
            while walk.step(n, fault).await {
                n += 1;
                assert!(n < MOST, "{kind} {pattern}");
            }
            *failed.entry(format!("{} {pattern}", operation_name(operation))).or_default() += n - 1;
        }
        assert_counted(stage.app.folder());
        stage.stop().await;
    }
    failed
}

fn reads(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::List)
}

/// Defines a test for each mount type and its operations. Some of its routes have these numbers of failed calls: three
/// for each call that the request makes.
macro_rules! tests_of_routes {
    ($($name:ident: $kind:literal, $operations:expr => $counts:expr;)+) => {
        $(#[actix_web::test] async fn $name() {
            let failed = walk($kind, $operations).await;
            for (route, count) in $counts {
                assert_eq!(failed[route], count, "{route}: {failed:?}");
            }
        })+
    };
}

tests_of_routes!(
    // Three calls with three faults each: the caller, the policies, the write.
    system_routes_return_503_and_leave_no_partial_change: "system", |_| true =>
        [("update policies/acl/*name", 9), ("read seal-status", 0)];
    // The caller, the parent's current state, the write.
    token_routes_return_503_and_leave_no_partial_change: "token", |_| true =>
        [("update create", 9)];
    // The secret id, the entity, the token.
    approle_routes_return_503_and_leave_no_partial_change: "approle", |_| true =>
        [("update login", 9), ("update role/:login_role", 6)];
    // The entity and the token; the configured key is in memory.
    jwt_routes_return_503_and_leave_no_partial_change: "jwt", |_| true =>
        [("update login", 6), ("update config", 6), ("update role/:login_role", 6)];
    cloudb_routes_return_503_and_leave_no_partial_change: "cloudb", |_| true =>
        [("update config", 6), ("update role/:login_role", 6)];
    cubbyhole_routes_return_503_and_leave_no_partial_change: "cubbyhole", |_| true =>
        [("update *path", 6)];
    // The caller, the entity with the name, the write.
    identity_routes_return_503_and_leave_no_partial_change: "identity", |_| true =>
        [("update entity", 9)];
    pki_read_routes_return_503: "pki", reads =>
        [("list certs", 6), ("read cert/:serial", 3), ("read crl", 0)];
    // The caller, the certificate, the record; the revocations and the CRL.
    pki_write_routes_return_503_and_leave_no_partial_change: "pki", |operation| !reads(operation) =>
        [("update issue/:name", 6), ("update revoke", 15)];
);

#[actix_web::test]
async fn token_tidy_starts_only_if_the_caller_can_be_resolved() {
    let stage = Stage::with_authority().await;
    stage.forget_tokens();
    stage.faults.arm(1, Fault::Outage);
    assert_unavailable(&stage.app.client.post("auth/token/tidy", json!({})).await, "tidy");
    assert!(stage.faults.disarm().is_some());
    assert_eq!(stage.app.client.post("auth/token/tidy", json!({})).await.status, 202);
    stage.stop().await;
}

#[actix_web::test]
async fn lease_revocation_after_partial_failure_succeeds_on_retry() {
    let stage = Stage::with_authority().await;
    let client = &stage.app.client;
    let mut failed = 0;
    for path in
        ["sys/leases/revoke", "sys/leases/revoke/ID", "sys/leases/revoke-prefix/ID", "sys/leases/revoke-force/ID"]
    {
        for fault in [Fault::Before, Fault::After, Fault::Outage] {
            for n in 1..MOST {
                let id = lease(&stage).await;
                let path = path.replace("ID", &id);
                let body = json!({ "lease_id": id });
                stage.forget_tokens();
                stage.faults.arm(n, fault);
                let answer = client.post(&path, body.clone()).await;
                let what = format!("{path}, call {n} {fault:?}");
                let Some(met) = stage.faults.disarm() else {
                    assert_status(&answer, 204, &what);
                    break;
                };
                failed += 1;
                assert_unavailable(&answer, &format!("{what} ({})", met.call));
                stage.forget_tokens();
                assert_status(&client.post(&path, body).await, 204, &format!("{what}, again"));
                assert_eq!(client.post("sys/leases/lookup", json!({ "lease_id": id })).await.status, 400, "{what}");
            }
        }
    }
    assert!(failed > 60, "{failed} calls failed");
    // Every certificate with a lease is revoked, and no lease is left.
    let serials = client.list("pki/certs").await.body["data"]["keys"].as_array().unwrap().len();
    let revoked = client.list("pki/certs/revoked").await.body["data"]["keys"].as_array().unwrap().len();
    assert_eq!(revoked, serials - 1, "all but the root");
    assert!(stage.rows()["lease"].is_empty());
    assert_counted(stage.app.folder());
    stage.app.stop().await;
}

/// A write is stored, but its commit fails and the server cannot read the result.
#[actix_web::test]
async fn unconfirmed_write_is_served_once_the_store_responds() {
    let stage = Stage::with_authority().await;
    let client = &stage.app.client;
    let policy = json!({ "policy": "path \"pki/*\" { capabilities = [\"read\"] }" });
    stage.post("sys/policies/acl/known", policy.clone()).await;
    stage.post("sys/mounts/gone", json!({ "type": "pki" })).await;
    stage.post("sys/auth/approle", json!({ "type": "approle" })).await;
    stage.post("auth/approle/role/known", json!({ "role_id": "known" })).await;
    let root = json!({ "common_name": "Other", "issuer_name": "other", "key_type": "ec" });
    let requests = [
        ("POST", "sys/policies/acl/new", policy),
        ("DELETE", "sys/policies/acl/known", json!({})),
        ("POST", "sys/mounts/new", json!({ "type": "pki" })),
        ("DELETE", "sys/mounts/gone", json!({})),
        ("POST", "auth/approle/role/new", json!({ "role_id": "new" })),
        ("DELETE", "auth/approle/role/known", json!({})),
        ("POST", "pki/roles/new", json!({ "key_type": "ec" })),
        ("DELETE", "pki/roles/web", json!({})),
        ("POST", "pki/root/generate/internal", root),
    ];
    for (method, path, body) in requests {
        let before = stage.rows();
        stage.forget_tokens();
        let commit = if path.starts_with("pki/") { "commit (pki)" } else { "commit (auth)" };
        stage.faults.arm_next(commit, Fault::Outage);
        assert_unavailable(&send(client.request(method, path).json(&body)).await, path);
        assert!(stage.faults.disarm().is_some(), "{method} {path}");
        assert_ne!(stage.rows(), before, "{method} {path}: stored");
        stage.caught_up().await;
    }
    assert_eq!(client.get("new/roles/absent").await.status, 404, "the mount is open");
    assert_eq!(client.get("gone/crl").await.status, 404, "the mount is gone");
    assert_eq!(client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.status, 400, "no such role");
    let started = std::time::Instant::now();
    for (role, status) in [("known", 404), ("new", 200)] {
        while client.get(&format!("auth/approle/role/{role}")).await.status != status {
            assert!(started.elapsed() < std::time::Duration::from_secs(20), "{role}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    while client.get("pki/issuer/other/crl").await.status != 200 {
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    stage.app.stop().await;
}
