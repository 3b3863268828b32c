use std::time::Duration;

use super::*;
use crate::auth::store::{MAX_TOKENS_PER_REVOCATION, RevokedTokens, StoreCondition, TokenHash, TokenRow};
use crate::documents::SYSTEM_MOUNT;

pub(super) fn hash(n: u32) -> TokenHash {
    let mut hash = [7; 32];
    hash[..4].copy_from_slice(&n.to_be_bytes());
    hash
}

fn accessor(n: u32) -> TokenHash {
    let mut hash = hash(n);
    hash[31] = 1;
    hash
}

pub(super) fn token(n: u32, parent: Option<u32>) -> TokenRow {
    TokenRow {
        hash: hash(n),
        accessor_hash: accessor(n),
        parent: parent.map(hash),
        expires_at: (n % 2 == 1).then(|| now() + Duration::from_secs(3600)),
        uses: None,
        mount: None,
        entity: n.is_multiple_of(3).then(|| format!("entity-{n}")),
        body: format!(r#"{{"accessor":"plain-accessor-{n}"}}"#).into_bytes(),
    }
}

async fn commit_one(w: &ContractStore, write: AuthWrite) -> AuthOutcome {
    w.auth.commit(vec![write]).await.unwrap().remove(0)
}

async fn insert(w: &ContractStore, row: TokenRow) {
    assert_eq!(commit_one(w, AuthWrite::TokenInsert(row)).await, AuthOutcome::Done);
}

pub(super) async fn token_is_found_by_hash_and_accessor(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..4 {
        insert(&w, token(n, (n > 1).then(|| n - 1))).await;
    }
    for n in 1..4 {
        let row = token(n, (n > 1).then(|| n - 1));
        assert!(w.auth.token(hash(n)).await.unwrap() == Some(row.clone()));
        assert!(w.auth.token_by_accessor(accessor(n)).await.unwrap() == Some(row));
    }
    assert!(w.auth.token(accessor(1)).await.unwrap().is_none());
    assert!(w.auth.token_by_accessor(hash(1)).await.unwrap().is_none());
    for row in [token(1, None), TokenRow { hash: hash(9), ..token(1, None) }] {
        let error = w.auth.commit(vec![AuthWrite::TokenInsert(row)]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "same token, same accessor");
    }
    fixture.clock().advance(Duration::from_secs(86_400));
    assert!(w.auth.token(hash(1)).await.unwrap().is_some(), "expired ones too");
}

pub(super) async fn renewal_changes_expiry_and_body_of_a_live_token_only(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, token(1, None)).await;
    let end = now() + Duration::from_nanos(7_200_000_000_999);
    let renew = || AuthWrite::TokenUpdate { hash: hash(1), expires_at: Some(end), body: b"renewed".to_vec() };
    assert_eq!(commit_one(&w, renew()).await, AuthOutcome::Done);
    let row = w.auth.token(hash(1)).await.unwrap().unwrap();
    assert!(row.body == b"renewed" && row.expires_at == Some(now() + Duration::from_secs(7200)));
    let absent = AuthWrite::TokenUpdate { hash: hash(2), expires_at: None, body: Vec::new() };
    assert_eq!(commit_one(&w, absent).await, AuthOutcome::Absent);
    fixture.clock().advance(Duration::from_secs(7200));
    assert_eq!(commit_one(&w, renew()).await, AuthOutcome::Absent, "a renewal at the end is too late");
}

pub(super) async fn endless_tokens_are_counted_while_they_live(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    assert_eq!(w.auth.condition().await.unwrap(), StoreCondition::default());
    let count = async || w.auth.condition().await.unwrap().endless_tokens;
    // Tokens with an odd number have an expiry.
    for n in 1..5 {
        insert(&w, token(n, None)).await;
    }
    insert(&w, TokenRow { uses: Some(1), ..token(6, None) }).await;
    assert_eq!(count().await, 3);
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(6))).await, AuthOutcome::UsesLeft(0));
    assert_eq!(count().await, 2);
    commit_one(&w, AuthWrite::TokenRevoke(vec![hash(2)])).await;
    assert_eq!(count().await, 1);
}

pub(super) async fn token_uses_are_spent_down_to_zero(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, TokenRow { uses: Some(2), ..token(1, None) }).await;
    insert(&w, token(2, None)).await;
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(1))).await, AuthOutcome::UsesLeft(1));
    assert_eq!(w.auth.token(hash(1)).await.unwrap().unwrap().uses, Some(1));
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(1))).await, AuthOutcome::UsesLeft(0));
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(1))).await, AuthOutcome::Absent);
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(2))).await, AuthOutcome::Absent, "no limit, nothing to take");
    assert_eq!(commit_one(&w, AuthWrite::TokenSpend(hash(3))).await, AuthOutcome::Absent);
    assert_eq!(w.auth.token(hash(2)).await.unwrap().unwrap().uses, None);
}

pub(super) async fn revoking_removes_all_descendants_of_a_10000_deep_chain(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let chain = (1..=10_000).map(|n| AuthWrite::TokenInsert(token(n, (n > 1).then(|| n - 1))));
    w.auth.commit(chain.collect()).await.unwrap();
    insert(&w, token(20_000, Some(5))).await;
    insert(&w, token(20_001, None)).await;
    let gone = revoke_and_continue(&w, 2).await;
    assert_eq!(gone.len(), 10_000);
    assert_eq!(gone[0], hash(2), "itself first");
    assert!(gone.contains(&hash(20_000)));
    assert!(w.auth.token(hash(10_000)).await.unwrap().is_none());
    assert!(w.auth.token_by_accessor(accessor(7)).await.unwrap().is_none());
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 2, "the parent and the stranger");
    assert_eq!(
        commit_one(&w, AuthWrite::TokenRevoke(vec![hash(2)])).await,
        AuthOutcome::Revoked(RevokedTokens::default())
    );
}

/// Revokes a token in as many steps as needed, and checks the size of each.
async fn revoke_and_continue(w: &ContractStore, n: u32) -> Vec<TokenHash> {
    let mut all = Vec::new();
    let mut left = vec![hash(n)];
    while !left.is_empty() {
        let write = AuthWrite::TokenRevoke(left.split_off(left.len().saturating_sub(MAX_TOKENS_PER_REVOCATION)));
        let AuthOutcome::Revoked(step) = commit_one(w, write).await else { panic!() };
        assert!(step.gone.len() <= 2 * MAX_TOKENS_PER_REVOCATION);
        all.extend(step.gone);
        left.extend(step.left);
    }
    all
}

/// Sweeps until a sweep finds nothing. Apart from sweeps, the store does not continue unfinished revocations.
async fn sweep(w: &ContractStore) {
    for _ in 0..1_000 {
        let RevokedTokens { gone, left, .. } = w.auth.sweep_tokens(now(), 100).await.unwrap();
        if gone.is_empty() && left.is_empty() {
            return;
        }
    }
    panic!("it goes on and on");
}

pub(super) async fn revocation_of_many_descendants_runs_in_short_steps(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, token(1, None)).await;
    insert(&w, token(2, Some(1))).await;
    // Several tokens have many children each, and one of these children has children too.
    let parents = (10..15).chain([1]);
    let children = parents.clone().flat_map(|parent| (0..700).map(move |n| (parent, 1_000 * parent + n)));
    let all = (10..15).map(|n| (2, n)).chain(children).chain((0..150).map(|n| (10_003, 100_000 + n)));
    let all: Vec<_> = all.map(|(parent, n)| AuthWrite::TokenInsert(token(n, Some(parent)))).collect();
    let count = all.len() + 1;
    w.auth.commit(all).await.unwrap();
    insert(&w, token(3, None)).await;
    let mut gone = revoke_and_continue(&w, 1).await;
    gone.sort_unstable();
    gone.dedup();
    assert_eq!(gone.len(), count + 1);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 1, "the stranger");
}

pub(super) async fn revocation_completes_an_abandoned_revocation_below_it(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for sweeps in [false, true] {
        insert(&w, token(1, None)).await;
        insert(&w, token(2, Some(1))).await;
        let below =
            |parent: u32| (0..300).map(move |n| AuthWrite::TokenInsert(token(1_000 * parent + n, Some(parent))));
        w.auth.commit(below(2).collect()).await.unwrap();
        w.auth.commit((2_100..2_105).flat_map(below).collect()).await.unwrap();
        // One step of a revocation whose remaining steps are never run.
        let step = w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(2)])]).await.unwrap();
        let [AuthOutcome::Revoked(RevokedTokens { left, .. })] = &step[..] else { panic!() };
        assert!(left.contains(&hash(2)));
        if sweeps {
            w.auth.sweep_tokens(now(), 1).await.unwrap();
        }
        revoke_and_continue(&w, 1).await;
        if !sweeps {
            assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
        }
        sweep(&w).await;
        assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
    }
}

pub(super) async fn partly_revoked_token_leaves_no_orphans(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, token(1, None)).await;
    let children = (10..1_500).map(|n| AuthWrite::TokenInsert(token(n, Some(1))));
    w.auth.commit(children.collect()).await.unwrap();
    commit_one(&w, AuthWrite::TokenRevoke(vec![hash(1)])).await;
    assert_eq!(
        commit_one(&w, AuthWrite::TokenRevokeAlone(hash(1))).await,
        AuthOutcome::Revoked(RevokedTokens::default())
    );
    revoke_and_continue(&w, 1).await;
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
}

pub(super) async fn token_revoked_alone_detaches_its_children_in_steps(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, token(1, None)).await;
    let children = (10..1_020).map(|n| AuthWrite::TokenInsert(token(n, Some(1))));
    w.auth.commit(children.collect()).await.unwrap();
    let orphans = "SELECT COUNT(*) FROM token WHERE parent IS NULL";
    for left in [500, 1_000] {
        let step = commit_one(&w, AuthWrite::TokenRevokeAlone(hash(1))).await;
        assert_eq!(step, AuthOutcome::Revoked(RevokedTokens { left: vec![hash(1)], ..RevokedTokens::default() }));
        assert_eq!(fixture.query_number(orphans), left + 1);
        assert_eq!(w.auth.token(hash(1)).await.unwrap().unwrap().uses, None, "it still exists");
    }
    let last = commit_one(&w, AuthWrite::TokenRevokeAlone(hash(1))).await;
    assert_eq!(last, AuthOutcome::Revoked(RevokedTokens { gone: vec![hash(1)], ..RevokedTokens::default() }));
    assert_eq!(fixture.query_number(orphans), 1_010);
    assert_eq!(
        commit_one(&w, AuthWrite::TokenRevokeAlone(hash(1))).await,
        AuthOutcome::Revoked(RevokedTokens::default())
    );
}

pub(super) async fn unfinished_revocation_leaves_ended_tokens_that_are_swept(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert(&w, token(1, None)).await;
    let children = (10..3_000).map(|n| AuthWrite::TokenInsert(token(n, Some(1))));
    w.auth.commit(children.collect()).await.unwrap();
    let grandchildren = (10..3_000).map(|n| AuthWrite::TokenInsert(token(10_000 + n, Some(n))));
    w.auth.commit(grandchildren.collect()).await.unwrap();
    let AuthOutcome::Revoked(step) = commit_one(&w, AuthWrite::TokenRevoke(vec![hash(1)])).await else { panic!() };
    assert!(step.left.contains(&hash(1)) && step.gone.len() < 1_000);
    for hash in step.left {
        assert_eq!(w.auth.token(hash).await.unwrap().unwrap().uses, Some(0), "it has ended");
    }
    let late = w.auth.commit(vec![AuthWrite::TokenInsert(token(5, Some(1)))]).await.unwrap_err();
    assert_eq!(late.kind(), Kind::Conflict);
    sweep(&w).await;
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
}

pub(super) async fn child_of_a_missing_token_is_rejected(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let error = w.auth.commit(vec![AuthWrite::TokenInsert(token(2, Some(1)))]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    // A parent's revocation and the insert of its child share a batch, in either order. The child must never remain
    // without its parent.
    insert(&w, token(1, None)).await;
    let revoke = w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(1)])]);
    let child = w.auth.commit(vec![AuthWrite::TokenInsert(token(2, Some(1)))]);
    assert!(child.await.is_err() && revoke.await.is_ok());
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
}

pub(super) async fn sweep_removes_expired_tokens_with_their_descendants(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let ends = |n, seconds| TokenRow { expires_at: Some(now() + Duration::from_secs(seconds)), ..token(n, None) };
    for (n, seconds) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
        insert(&w, ends(n, seconds)).await;
    }
    insert(&w, token(100, Some(1))).await;
    insert(&w, token(102, Some(100))).await;
    insert(&w, token(200, None)).await;
    let at = |seconds| now() + Duration::from_secs(seconds);
    assert_eq!(w.auth.sweep_tokens(at(9), 10).await.unwrap().gone.len(), 0);
    assert_eq!(w.auth.sweep_tokens(at(30), 2).await.unwrap().gone.len(), 4, "two ended ones, and two descendants");
    assert!(w.auth.token(hash(3)).await.unwrap().is_some());
    assert_eq!(w.auth.sweep_tokens(at(30), 2).await.unwrap().gone.len(), 1, "ended: now >= its end");
    assert_eq!(w.auth.sweep_tokens(at(30), 2).await.unwrap().gone.len(), 0);
    assert!(w.auth.token(hash(4)).await.unwrap().is_some() && w.auth.token(hash(200)).await.unwrap().is_some());
}

pub(super) async fn sweep_removes_expired_tokens_of_every_mount(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let methods = [MountId::random(), MountId::random()];
    w.auth.commit(methods.map(AuthWrite::MountCreate).into()).await.unwrap();
    let mounts = [None, Some(methods[0]), Some(methods[1])];
    for (n, mount) in (1..).zip(mounts) {
        for (n, seconds) in [(n, 10), (10 + n, 20)] {
            let expires_at = Some(now() + Duration::from_secs(seconds));
            insert(&w, TokenRow { expires_at, mount, ..token(n, None) }).await;
        }
        insert(&w, TokenRow { expires_at: None, mount, ..token(20 + n, None) }).await;
    }
    let at = |seconds| now() + Duration::from_secs(seconds);
    assert_eq!(w.auth.sweep_tokens(at(10), 2).await.unwrap().gone.len(), 2, "no more than asked for");
    assert_eq!(w.auth.sweep_tokens(at(10), 2).await.unwrap().gone.len(), 1);
    assert_eq!(w.auth.sweep_tokens(at(19), 10).await.unwrap().gone.len(), 0);
    assert_eq!(w.auth.sweep_tokens(at(20), 10).await.unwrap().gone.len(), 3);
    for n in 21..24 {
        assert!(w.auth.token(hash(n)).await.unwrap().is_some(), "without an end: {n}");
    }
}

pub(super) async fn tokens_of_a_dropped_mount_are_invisible_immediately(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let method = MountId::random();
    w.auth.commit(vec![AuthWrite::MountCreate(method)]).await.unwrap();
    let of_mount = |n, parent| TokenRow { mount: Some(method), ..token(n, parent) };
    // The mount has more tokens than one step removes.
    w.auth.commit((2..=1_500).map(|n| AuthWrite::TokenInsert(of_mount(n, None))).collect()).await.unwrap();
    insert(&w, of_mount(2_000, Some(2))).await;
    insert(&w, token(2_001, Some(2_000))).await;
    insert(&w, token(1, None)).await;
    assert!(w.auth.token(hash(2_000)).await.unwrap() == Some(of_mount(2_000, Some(2))));
    commit_one(&w, AuthWrite::MountDelete(method)).await;
    for n in [2, 700, 1_500, 2_000] {
        assert!(w.auth.token(hash(n)).await.unwrap().is_none(), "{n}");
        assert!(w.auth.token_by_accessor(accessor(n)).await.unwrap().is_none(), "{n}");
    }
    let late = w.auth.commit(vec![AuthWrite::TokenInsert(of_mount(3_000, None))]).await.unwrap_err();
    assert_eq!(late.kind(), Kind::Conflict, "a login while its method goes");
    for _ in 0..500 {
        if fixture.query_number("SELECT COUNT(*) FROM token") == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 1, "only the token without a mount is left");
    assert!(w.auth.token(hash(1)).await.unwrap().is_some());
}

pub(super) async fn system_documents_are_listed_by_kind(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let write = |kind, name: &str| {
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind, name: name.into() };
        AuthWrite::Document(DocumentWrite { key, expected: 0, body: Some(name.into()) })
    };
    w.auth.commit(vec![write("policy", "b"), write("policy", "a"), write("mount", "pki/")]).await.unwrap();
    let policies = w.auth.documents("policy").await.unwrap();
    let names: Vec<_> = policies.iter().map(|d| (d.key.kind, &d.key.name[..], d.body.clone())).collect();
    assert!(names == [("policy", "a", b"a".to_vec()), ("policy", "b", b"b".to_vec())]);
    assert_eq!(w.auth.documents("mount").await.unwrap().len(), 1);
    assert!(w.auth.documents("key").await.unwrap().is_empty());
}
