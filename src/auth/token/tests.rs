//! Tests of tokens from creation to expiry.

mod batch;
mod bound;
mod login;
mod remembered;
mod roles;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use time::macros::datetime;

use super::*;
use crate::auth::policy::Operation;
use crate::auth::store::{AuthStore as _, AuthWrite};
use crate::auth::tests::TestStore;
use crate::clock::Clock;
use crate::error::Warnings;
use crate::fields::Fields;

const DENIED: &str = "permission denied";
const ADMIN: &str = r#"path "*" { capabilities = ["create", "read", "update", "delete", "list", "sudo"] }"#;

/// A server with a root token and the policies `web` and `admin`.
struct Fixture {
    auth: Arc<Auth>,
    store: Arc<TestStore>,
    clock: Clock,
    root: String,
}

fn fields(body: Value) -> Fields {
    Fields::parse(body.to_string().as_bytes()).unwrap()
}

fn rendered((given, warnings): (TokenResponse, Warnings)) -> (Value, Warnings) {
    (given.into(), warnings)
}

impl Auth {
    async fn identify(&self, token: &str) -> Result<Arc<Caller>> {
        self.admit(self.recognise(token, None).await?, None).await
    }
}

impl Fixture {
    async fn new() -> Self {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        let store = TestStore::open(&clock).await;
        let auth = Auth::open(store.clone(), clock.clone()).await.unwrap();
        let web = r#"path "pki/issue/web" { capabilities = ["update"] }"#;
        for (name, text) in [("web", web), ("admin", ADMIN)] {
            auth.policy_write(name, &fields(json!({ "policy": text }))).await.unwrap();
        }
        let root = auth.root_token(None, "root").await.unwrap();
        Self { auth, store, clock, root }
    }

    async fn caller(&self, token: &str) -> Arc<Caller> {
        self.auth.identify(token).await.map_err(|e| e.to_string()).unwrap()
    }

    async fn create(&self, parent: &str, sudo: bool, body: Value) -> Result<(Value, Warnings)> {
        self.create_on(CreatePath::Child, parent, sudo, body).await
    }

    async fn create_on(
        &self,
        path: CreatePath<'_>,
        parent: &str,
        sudo: bool,
        body: Value,
    ) -> Result<(Value, Warnings)> {
        let caller = self.auth.identify(parent).await?;
        self.auth.create_token(&caller, sudo, path, &fields(body)).await.map(rendered)
    }

    async fn token(&self, parent: &str, body: Value) -> String {
        let (auth, _) = self.create(parent, true, body).await.map_err(|e| e.to_string()).unwrap();
        auth["client_token"].as_str().unwrap().to_owned()
    }

    async fn create_error(&self, parent: &str, sudo: bool, body: Value) -> String {
        let error = self.create(parent, sudo, body.clone()).await.map(drop).expect_err(&body.to_string());
        error.text().to_owned()
    }

    async fn is_denied(&self, token: &str) -> bool {
        self.auth.identify(token).await.is_err_and(|e| e.text() == DENIED && e.kind() == Kind::Forbidden)
    }

    async fn renew(&self, token: &str, increment: u64) -> Result<(Value, Warnings), String> {
        let renewed = self.auth.renew(token, Some(Duration::from_secs(increment))).await;
        renewed.map(rendered).map_err(|e| e.text().to_owned())
    }

    fn advance(&self, seconds: f64) {
        self.clock.advance(Duration::from_secs_f64(seconds));
    }
}

#[tokio::test]
async fn child_token_gets_policies_of_its_parent_or_a_subset() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["web", "Extra"]})).await;
    let (auth, warnings) = f.create(&parent, false, json!({})).await.unwrap();
    assert_eq!(auth["policies"], json!(["default", "extra", "web"]));
    assert_eq!(*warnings, ["Policy \"extra\" does not exist"]);
    let (auth, _) = f.create(&parent, false, json!({"policies": "web"})).await.unwrap();
    assert_eq!(auth["token_policies"], json!(["default", "web"]));
    let (auth, _) = f.create(&parent, false, json!({"policies": ["web"], "no_default_policy": true})).await.unwrap();
    assert_eq!(auth["token_policies"], json!(["web"]));
    let text = f.create_error(&parent, false, json!({"policies": ["web", "admin"]})).await;
    assert_eq!(text, "child policies must be subset of parent");
    let (auth, _) = f.create(&parent, true, json!({"policies": ["admin"]})).await.unwrap();
    assert_eq!(auth["policies"], json!(["admin", "default"]));
    let text = f.create_error(&parent, true, json!({"policies": ["response-wrapping"]})).await;
    assert_eq!(text, "cannot assign policy \"response-wrapping\"");
}

#[tokio::test]
async fn no_spelling_of_root_creates_a_root_token() {
    let f = Fixture::new().await;
    let admin = f.token(&f.root, json!({"policies": ["admin"]})).await;
    for name in [" Root", "ROOT", "root ", "\troot"] {
        let text = f.create_error(&admin, true, json!({"policies": [name]})).await;
        assert_eq!(text, "root tokens may not be created without parent token being root", "{name:?}");
    }
    let (auth, _) = f.create(&f.root, true, json!({"policies": ["web", "root"]})).await.unwrap();
    assert_eq!(auth["policies"], json!(["root"]));
}

#[tokio::test]
async fn limited_token_works_for_its_number_of_uses() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"num_uses": 2, "policies": ["web"]})).await;
    for left in [1, 0] {
        let caller = f.caller(&token).await;
        assert_eq!(caller.uses_left(), Some(left));
        assert!(!f.auth.decide(&caller, Operation::Read, "sys/mounts".into(), None).allowed);
    }
    assert!(f.is_denied(&token).await);
    assert_eq!(f.auth.lookup(&token).await.unwrap_err().text(), "bad token");
}

#[tokio::test]
async fn recognition_spends_no_use_and_admission_rechecks_the_token() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"num_uses": 1, "policies": ["web"]})).await;
    let known = f.auth.recognise(&token, None).await.unwrap();
    assert_eq!(f.auth.recognise(&token, None).await.unwrap().uses_left(), Some(1));
    assert_eq!(f.auth.admit(known.clone(), None).await.unwrap().uses_left(), Some(0));
    assert!(f.auth.admit(known, None).await.is_err_and(|e| e.text() == DENIED));
    assert!(f.auth.recognise(&token, None).await.is_err_and(|e| e.text() == DENIED));
    let token = f.token(&f.root, json!({"policies": ["web"]})).await;
    let known = f.auth.recognise(&token, None).await.unwrap();
    f.auth.policy_write("web", &fields(json!({"policy": ADMIN}))).await.unwrap();
    let admitted = f.auth.admit(known.clone(), None).await.unwrap();
    assert!(f.auth.decide(&admitted, Operation::Read, "sys/mounts".into(), None).allowed);
    assert!(f.auth.revoke(&token).await.unwrap());
    assert!(f.auth.admit(known, None).await.is_err_and(|e| e.text() == DENIED));
}

#[tokio::test]
async fn renewal_near_the_end_never_creates_an_endless_token() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"explicit_max_ttl": "10s", "ttl": "10s"})).await;
    f.advance(9.5);
    assert_eq!(f.renew(&token, 3600).await.unwrap_err(), "past the max TTL, cannot renew");
    f.advance(0.5);
    assert!(f.is_denied(&token).await);
    assert_eq!(f.renew(&token, 3600).await.unwrap_err(), "token not found");
    let short = f.token(&f.root, json!({"ttl": "1s"})).await;
    let refused = f.auth.renew(&short, Some(Duration::from_millis(1))).await.err().unwrap();
    assert_eq!(refused.text(), "ttl: must be at least 1s");
    f.advance(1.0);
    assert!(f.is_denied(&short).await);
    assert!(f.store.all_tokens().await.iter().all(|row| row.expires_at.is_some() || row.parent.is_none()));
}

#[tokio::test]
async fn renewal_repeats_the_last_grant_up_to_the_maximum() {
    let f = Fixture::new().await;
    f.auth.mount_tune("auth/token", &fields(json!({"max_lease_ttl": "4h"}))).await.unwrap();
    let token = f.token(&f.root, json!({"ttl": "2h"})).await;
    let lifetime = |answer: &(Value, Warnings)| answer.0["lease_duration"].as_u64().unwrap();
    assert_eq!(lifetime(&f.renew(&token, 0).await.unwrap()), 7200);
    assert_eq!(lifetime(&f.renew(&token, 3 * 3600).await.unwrap()), 3 * 3600);
    assert_eq!(lifetime(&f.renew(&token, 0).await.unwrap()), 3 * 3600);
    f.advance(2.0 * 3600.0);
    let capped = f.renew(&token, 0).await.unwrap();
    assert_eq!(lifetime(&capped), 2 * 3600);
    let want = "TTL of \"3h\" exceeded the effective max_ttl of \"4h\"; TTL value is capped accordingly";
    assert_eq!(*capped.1, [want]);
    assert_eq!(lifetime(&f.renew(&token, 60).await.unwrap()), 60);
    f.renew(&token, 7200).await.unwrap();
    f.advance(2.0 * 3600.0 - 0.9);
    assert_eq!(f.renew(&token, 60).await.unwrap_err(), "past the max TTL, cannot renew");
    let shown = f.auth.lookup(&token).await.unwrap();
    assert_eq!(shown["creation_ttl"], 7200);
    assert_eq!(shown["ttl"], 0);
}

#[tokio::test]
async fn periodic_token_lives_until_its_explicit_maximum() {
    let f = Fixture::new().await;
    let forever = f.token(&f.root, json!({"period": "100h"})).await;
    let bounded = f.token(&f.root, json!({"period": "100h", "explicit_max_ttl": "250h"})).await;
    for _ in 0..20 {
        f.advance(99.0 * 3600.0);
        assert_eq!(f.renew(&forever, 5).await.unwrap().0["lease_duration"], 360_000);
        let _ = f.renew(&bounded, 5).await;
    }
    assert!(f.is_denied(&bounded).await);
    assert_eq!(f.auth.lookup(&forever).await.unwrap()["period"], 360_000);
    let admin = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let text = f.create_error(&admin, false, json!({"period": "1h"})).await;
    assert_eq!(text, "root or sudo privileges required to create periodic token");
}

#[tokio::test]
async fn revoking_a_parent_ends_its_descendants_but_not_orphans() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let child = f.token(&parent, json!({})).await;
    let grandchild = f.token(&child, json!({})).await;
    let orphan = f.token(&child, json!({"no_parent": true})).await;
    for token in [&parent, &child, &grandchild, &orphan] {
        f.caller(token).await;
    }
    assert!(f.auth.revoke(&parent).await.unwrap());
    for token in [&parent, &child, &grandchild] {
        assert!(f.is_denied(token).await);
    }
    f.caller(&orphan).await;
    assert!(!f.auth.revoke(&parent).await.unwrap());
    let admin = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let text = f.create_error(&admin, false, json!({"no_parent": true})).await;
    assert_eq!(text, "root or sudo privileges required to create orphan token");
    let caller = f.caller(&admin).await;
    let (auth, _) =
        f.auth.create_token(&caller, false, CreatePath::Orphan, &fields(json!({}))).await.map(rendered).unwrap();
    assert_eq!(auth["orphan"], true);
}

#[tokio::test]
async fn children_of_a_token_revoked_alone_become_orphans() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let child = f.token(&parent, json!({})).await;
    let grandchild = f.token(&child, json!({})).await;
    let batch = f.token(&parent, json!({"type": "batch"})).await;
    f.auth.revoke_orphan(&parent).await.unwrap();
    assert!(f.is_denied(&parent).await && f.is_denied(&batch).await);
    for (token, orphan) in [(&child, true), (&grandchild, false)] {
        f.caller(token).await;
        assert_eq!(f.auth.lookup(token).await.unwrap()["orphan"], json!(orphan));
    }
    assert_eq!(f.auth.revoke_orphan(&parent).await.unwrap_err().text(), "token to revoke not found");
    let batch = f.token(&child, json!({"type": "batch"})).await;
    assert_eq!(f.auth.revoke_orphan(&batch).await.unwrap_err().text(), "batch tokens cannot be revoked");
    assert!(f.auth.revoke(&child).await.unwrap());
    assert!(f.is_denied(&grandchild).await && f.is_denied(&batch).await);
}

#[tokio::test]
async fn live_token_accessors_are_listed_in_pages() {
    let f = Fixture::new().await;
    for _ in 0..7 {
        f.token(&f.root, json!({"ttl": "1h"})).await;
    }
    let ended = f.token(&f.root, json!({"ttl": "1m"})).await;
    f.token(&f.root, json!({"type": "batch", "policies": ["web"]})).await;
    let gone = f.caller(&ended).await.accessor.clone();
    f.advance(60.0);
    let all = f.auth.accessors("", 100).await.unwrap().unwrap();
    assert!(all.is_sorted() && all.len() == 8 && !all.contains(&gone));
    assert_eq!(f.auth.accessors(&all[2], 100).await.unwrap().unwrap(), all[3..]);
    assert_eq!(f.auth.accessors("", 7).await.unwrap(), None, "more than the maximum");
    let mut pages = Vec::new();
    let mut after = f.auth.accessor_position("");
    loop {
        let page = f.auth.accessor_page(after, 3).await.unwrap();
        assert!(page.len() <= 3);
        let Some((last, _)) = page.last() else { break };
        after = *last;
        let positions = page.iter().filter_map(|(position, accessor)| accessor.as_ref().map(|text| (position, text)));
        assert!(positions.clone().all(|(position, accessor)| f.auth.accessor_position(accessor) == *position));
        pages.extend(positions.map(|(_, accessor)| accessor.clone()));
    }
    pages.sort();
    assert_eq!(pages, all);
}

#[tokio::test]
async fn used_up_token_is_swept() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"num_uses": 1})).await;
    f.caller(&token).await;
    assert_eq!(f.auth.sweep().await.unwrap(), 1);
    assert!(f.store.token(hash_of(&token).unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn revocation_that_storage_refuses_changes_nothing() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["web"]})).await;
    let child = f.token(&parent, json!({})).await;
    f.store.set_unavailable(true);
    assert_eq!(f.auth.revoke(&parent).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(f.auth.revoke_orphan(&parent).await.unwrap_err().kind(), Kind::Unavailable);
    f.store.set_unavailable(false);
    f.caller(&parent).await;
    f.caller(&child).await;
    assert_eq!(f.auth.lookup(&child).await.unwrap()["orphan"], json!(false));
}

#[tokio::test]
async fn token_is_looked_up_and_revoked_by_accessor() {
    let f = Fixture::new().await;
    let (auth, _) = f.create(&f.root, true, json!({"policies": ["web"], "ttl": "1h"})).await.unwrap();
    let accessor = auth["accessor"].as_str().unwrap();
    let shown = f.auth.lookup_accessor(accessor).await.unwrap();
    assert_eq!((&shown["id"], &shown["ttl"]), (&json!(""), &json!(3600)));
    let (renewed, _) = f.auth.renew_accessor(accessor, None).await.map(rendered).unwrap();
    assert_eq!(renewed["client_token"], "");
    let caller = f.auth.caller_by_accessor(accessor).await.unwrap().unwrap();
    assert_eq!(f.auth.capabilities(&caller, "pki/issue/web".into()), ["update"]);
    assert_eq!(f.auth.capabilities(&caller, "pki/issue/other".into()), ["deny"]);
    assert!(f.auth.revoke_accessor(accessor).await.unwrap());
    assert!(!f.auth.revoke_accessor(accessor).await.unwrap());
    assert!(f.is_denied(auth["client_token"].as_str().unwrap()).await);
    assert_eq!(f.auth.lookup_accessor(accessor).await.unwrap_err().text(), "invalid accessor");
    assert_eq!(f.auth.lookup_accessor("").await.unwrap_err().text(), "invalid accessor");
}

#[tokio::test]
async fn unsupported_token_fields_are_refused_by_name() {
    let f = Fixture::new().await;
    for (body, want) in [
        (json!({"id": "mine"}), "id:"),
        (json!({"type": "other"}), "invalid 'token_type' value"),
        (json!({"entity_alias": "a"}), "'entity_alias' is only allowed in combination with token role"),
        (json!({"num_uses": -1}), "number of uses cannot be negative"),
        (json!({"ttl": "-1h"}), "ttl"),
        (json!({"meta": {"k": "v".repeat(5000)}}), "meta: more than"),
    ] {
        let text = f.create_error(&f.root, true, body).await;
        assert!(text.contains(want), "{text}");
    }
}

#[tokio::test]
async fn unset_values_sent_by_clients_change_nothing() {
    let f = Fixture::new().await;
    let body = json!({"ttl": "0s", "explicit_max_ttl": "0s", "period": "0s", "display_name": "", "num_uses": 0,
        "renewable": true, "type": "service", "entity_alias": "", "policies": ["web"], "meta": {"a": "b"}, "id": ""});
    let (auth, warnings) = f.create(&f.root, true, body).await.unwrap();
    assert!(warnings.is_empty());
    assert_eq!(auth["lease_duration"], 2_764_800);
    assert_eq!(auth["renewable"], true);
    let token = auth["client_token"].as_str().unwrap();
    assert!(token.starts_with("s.") && token.len() == 46);
    let shown = f.auth.lookup_self(&*f.caller(token).await, token).await.unwrap();
    assert_eq!(shown["display_name"], "token");
    assert_eq!(shown["meta"], json!({"a": "b"}));
    assert_eq!(shown["expire_time"], "2030-02-02T00:00:00Z");
    assert_eq!(shown["issue_time"], "2030-01-01T00:00:00Z");
    for (name, want) in [("orphan", json!(false)), ("num_uses", json!(0)), ("type", json!("service"))] {
        assert_eq!(shown[name], want);
    }
}

#[tokio::test]
async fn display_names_keep_letters_digits_and_dashes() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"display_name": "my app! "})).await;
    assert_eq!(f.caller(&token).await.display_name, "token-my-app");
}

#[tokio::test]
async fn limited_token_cannot_create_children() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"num_uses": 2})).await;
    let text = f.create_error(&token, true, json!({})).await;
    assert_eq!(text, "restricted use token cannot generate child tokens");
    let text = f.create_error(&token, true, json!({})).await;
    assert_eq!(text, "parent token lookup failed: no parent found");
    let last = f.token(&f.root, json!({"num_uses": 1, "ttl": "1h"})).await;
    let caller = f.caller(&last).await;
    assert_eq!(f.auth.lookup_self(&caller, &last).await.unwrap()["num_uses"], -1);
    assert_eq!(f.auth.renew_self(&caller, &last, None).await.map(drop).unwrap_err().text(), "token not found");
}

#[tokio::test]
async fn expiring_root_token_cannot_create_an_endless_one() {
    let f = Fixture::new().await;
    let (auth, _) = f.create(&f.root, true, json!({})).await.unwrap();
    assert_eq!((&auth["lease_duration"], &auth["renewable"]), (&json!(0), &json!(false)));
    let expiring = f.token(&f.root, json!({"ttl": "1h"})).await;
    let text = f.create_error(&expiring, true, json!({"policies": ["root"]})).await;
    assert_eq!(text, "expiring root tokens cannot create non-expiring root tokens");
    f.token(&expiring, json!({"policies": ["root"], "ttl": "1h"})).await;
    assert_eq!(f.renew(&f.root, 5).await.unwrap_err(), "lease is not renewable");
}

#[tokio::test]
async fn unknown_token_is_reported_as_bad_token() {
    let f = Fixture::new().await;
    for token in ["", "s.unknown", &"x".repeat(10_000)] {
        let error = f.auth.lookup(token).await.unwrap_err();
        assert_eq!((error.kind(), error.text()), (Kind::Forbidden, "bad token"));
        assert!(f.is_denied(token).await);
        assert!(!f.auth.revoke(token).await.unwrap());
    }
    assert_eq!(f.auth.lookup(&f.root).await.unwrap()["id"], json!(f.root));
}

#[tokio::test]
async fn storage_contains_no_token_text() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"policies": ["web"]})).await;
    for row in f.store.all_tokens().await {
        let body = String::from_utf8(row.body).unwrap();
        assert!(!body.contains(&token) && !body.contains(&f.root));
    }
    assert!(f.store.token(hash_of(&token).unwrap()).await.unwrap().is_some());
}

#[tokio::test]
async fn token_never_outlives_its_explicit_maximum() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"explicit_max_ttl": "3s"})).await;
    f.advance(2.6);
    assert_eq!(f.renew(&token, 0).await.unwrap_err(), "past the max TTL, cannot renew");
    f.caller(&token).await;
    f.advance(0.4);
    assert!(f.is_denied(&token).await);
}

#[tokio::test]
async fn a_cached_token_is_read_again_within_a_second() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"policies": ["web"]})).await;
    let first = f.caller(&token).await;
    let reads = || f.store.calls("token") + f.store.calls("identity");
    let before = reads();
    for _ in 0..10 {
        assert!(Arc::ptr_eq(&first, &f.caller(&token).await));
    }
    assert_eq!(reads(), before);
    f.advance(0.6);
    f.caller(&token).await;
    assert_eq!(reads(), before + 1);
    // Another node revokes the token.
    f.store.commit(vec![AuthWrite::TokenRevoke(vec![hash_of(&token).unwrap()])]).await.unwrap();
    f.caller(&token).await;
    f.advance(1.0);
    assert!(f.is_denied(&token).await);
}

#[tokio::test]
async fn changed_policy_applies_immediately() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({"policies": ["web"]})).await;
    let may = async |path: &str| {
        let caller = f.caller(&token).await;
        f.auth.decide(&caller, Operation::Update, path.into(), None).allowed
    };
    assert!(may("pki/issue/web").await && !may("pki/issue/new").await);
    let text = r#"path "pki/issue/new" { capabilities = ["update"] }"#;
    f.auth.policy_write("web", &fields(json!({ "policy": text, "ttl": "1h" }))).await.unwrap();
    assert!(!may("pki/issue/web").await && may("pki/issue/new").await);
    f.advance(3600.0);
    assert!(!may("pki/issue/new").await);
    assert!(f.auth.policy_read("web").is_none());
    f.auth.sweep().await.unwrap();
    assert!(f.store.documents("policy").await.unwrap().iter().all(|document| document.key.name != "web"));
}

#[tokio::test]
async fn sweep_removes_expired_tokens_with_descendants() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"ttl": "1h", "policies": ["admin"]})).await;
    let child = f.token(&parent, json!({"ttl": "9h"})).await;
    f.advance(3600.0);
    f.caller(&child).await;
    assert_eq!(f.auth.sweep().await.unwrap(), 2);
    assert!(f.is_denied(&child).await && f.is_denied(&parent).await);
    f.caller(&f.root).await;
}

#[tokio::test]
async fn one_root_token_per_display_name() {
    let f = Fixture::new().await;
    let first = f.auth.root_token(Some("dev-token"), "dev").await.unwrap();
    assert_eq!(first, "dev-token");
    assert_eq!(f.auth.root_token(Some("dev-token"), "dev").await.unwrap(), "dev-token");
    assert!(f.caller("dev-token").await.is_root());
    f.auth.root_token(Some("other"), "dev").await.unwrap();
    assert!(f.is_denied("dev-token").await);
    assert!(f.caller("other").await.is_root() && f.caller(&f.root).await.is_root());
    assert!(f.auth.has_root_token("dev").await.unwrap() && !f.auth.has_root_token("new").await.unwrap());
    let taken = f.token(&f.root, json!({"policies": ["web"]})).await;
    assert_eq!(f.auth.root_token(Some(&taken), "dev").await.unwrap_err().kind(), Kind::Conflict);
    assert!(f.auth.root_token(Some("a b"), "dev").await.is_err());
    assert!(f.auth.root_token(Some(""), "dev").await.is_err());
}

#[tokio::test]
async fn identification_without_storage_is_unavailable() {
    let f = Fixture::new().await;
    f.store.set_unavailable(true);
    assert_eq!(f.auth.identify(&f.root).await.map(drop).unwrap_err().kind(), Kind::Unavailable);
}
