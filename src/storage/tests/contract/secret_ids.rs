//! Contract tests of the secret ids of the `approle` method.

use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::auth::store::{SecretIdKey, SecretIdRow, SecretIdWrite};

const ROLE: i64 = 7;

fn row(mount: MountId, n: u8) -> SecretIdRow {
    SecretIdRow {
        mount,
        role: ROLE,
        hash: [n; 32],
        accessor: format!("accessor-{n}"),
        expires_at: (n % 2 == 1).then(|| now() + Duration::from_secs(u64::from(n))),
        uses: (n >= 10).then(|| u32::from(n) - 9),
        updated_at: now(),
        body: format!("plain-secret-id-body-{n}").into_bytes(),
    }
}

async fn commit_one(w: &ContractStore, write: SecretIdWrite) -> Result<AuthOutcome> {
    w.auth.commit(vec![AuthWrite::SecretId(write)]).await.map(|mut outcomes| outcomes.remove(0))
}

async fn insert(w: &ContractStore, row: SecretIdRow) -> Result<AuthOutcome> {
    commit_one(w, SecretIdWrite::Insert(row)).await
}

async fn find(w: &ContractStore, key: SecretIdKey) -> Option<SecretIdRow> {
    w.auth.secret_id(w.mount, ROLE, key).await.unwrap()
}

async fn accessors(w: &ContractStore, after: &str, at: u64, limit: u32) -> Vec<String> {
    let at = now() + Duration::from_secs(at);
    w.auth.secret_id_accessors(w.mount, ROLE, after.into(), at, limit).await.unwrap()
}

pub(super) async fn secret_id_is_found_by_hash_and_accessor_of_its_role(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in [1, 2, 12] {
        assert_eq!(insert(&w, row(w.mount, n)).await.unwrap(), AuthOutcome::Done);
    }
    for n in [1, 2, 12] {
        assert!(find(&w, SecretIdKey::Hash([n; 32])).await == Some(row(w.mount, n)));
        assert!(find(&w, SecretIdKey::Accessor(format!("accessor-{n}"))).await == Some(row(w.mount, n)));
    }
    assert!(find(&w, SecretIdKey::Hash([3; 32])).await.is_none());
    assert!(w.auth.secret_id(w.mount, 8, SecretIdKey::Hash([1; 32])).await.unwrap().is_none(), "of another role");
    let elsewhere = w.auth.secret_id(MountId::random(), ROLE, SecretIdKey::Hash([1; 32])).await.unwrap();
    assert!(elsewhere.is_none(), "of another mount");
    assert_eq!(insert(&w, row(w.mount, 1)).await.unwrap_err().kind(), Kind::Conflict);
    let later = SecretIdRow { updated_at: now() + Duration::from_secs(1), ..row(w.mount, 1) };
    assert_eq!(insert(&w, later).await.unwrap(), AuthOutcome::Done, "the first one has ended");
    assert_eq!(insert(&w, row(MountId::random(), 4)).await.unwrap_err().kind(), Kind::Conflict, "no such mount");
}

pub(super) async fn secret_id_is_removed_with_its_last_use(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in [2, 11, 12] {
        insert(&w, row(w.mount, n)).await.unwrap();
    }
    let spend = |n: u8, at: u64| {
        let now = now() + Duration::from_secs(at);
        commit_one(&w, SecretIdWrite::Spend { mount: w.mount, hash: [n; 32], now })
    };
    assert_eq!(spend(12, 5).await.unwrap(), AuthOutcome::UsesLeft(2));
    let left = find(&w, SecretIdKey::Hash([12; 32])).await.unwrap();
    assert_eq!((left.uses, left.updated_at), (Some(2), now() + Duration::from_secs(5)));
    let mut outcomes: Vec<AuthOutcome> =
        join_all((0..5).map(|_| spend(12, 6))).await.into_iter().map(Result::unwrap).collect();
    outcomes.retain(|outcome| *outcome != AuthOutcome::Absent);
    assert_eq!(outcomes.len(), 2);
    assert!(find(&w, SecretIdKey::Hash([12; 32])).await.is_none(), "gone with its last use");
    assert_eq!(spend(2, 0).await.unwrap(), AuthOutcome::Absent, "no limit, nothing to take");
    assert_eq!(spend(11, 11).await.unwrap(), AuthOutcome::Absent, "it has ended");
    assert_eq!(spend(11, 10).await.unwrap(), AuthOutcome::UsesLeft(1));
    let remove = |n: u8| commit_one(&w, SecretIdWrite::Remove { mount: w.mount, hash: [n; 32] });
    assert_eq!(remove(2).await.unwrap(), AuthOutcome::Done);
    assert_eq!(remove(2).await.unwrap(), AuthOutcome::Absent);
}

pub(super) async fn accessor_pages_list_only_live_secret_ids(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in [4, 1, 3, 2] {
        insert(&w, row(w.mount, n)).await.unwrap();
    }
    insert(&w, SecretIdRow { role: 8, ..row(w.mount, 5) }).await.unwrap();
    assert_eq!(accessors(&w, "", 0, 9).await, ["accessor-1", "accessor-2", "accessor-3", "accessor-4"]);
    assert_eq!(accessors(&w, "accessor-1", 0, 2).await, ["accessor-2", "accessor-3"]);
    assert_eq!(accessors(&w, "", 1, u32::MAX).await, ["accessor-2", "accessor-3", "accessor-4"]);
    assert_eq!(accessors(&w, "accessor-4", 0, 9).await, [""; 0]);
}

pub(super) async fn secret_ids_are_swept_after_expiry_and_with_their_role(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in [1, 2, 3, 4, 5] {
        insert(&w, row(w.mount, n)).await.unwrap();
    }
    insert(&w, SecretIdRow { role: 8, ..row(w.mount, 6) }).await.unwrap();
    let sweep = |at: u64, limit| w.auth.sweep_secret_ids(now() + Duration::from_secs(at), limit);
    assert_eq!(sweep(0, 9).await.unwrap(), 0);
    assert_eq!(sweep(3, 1).await.unwrap(), 1);
    assert_eq!(sweep(3, 9).await.unwrap(), 1);
    assert_eq!(accessors(&w, "", 0, 9).await, ["accessor-2", "accessor-4", "accessor-5"]);
    let exists = async |mount, role| w.auth.secret_id_role_exists(mount, role).await.unwrap();
    assert!(exists(w.mount, ROLE).await && !exists(MountId::random(), ROLE).await);
    let ended = commit_one(&w, SecretIdWrite::DeleteRole { mount: w.mount, role: ROLE }).await.unwrap();
    assert_eq!(ended, AuthOutcome::Done);
    assert!(!exists(w.mount, ROLE).await && exists(w.mount, 8).await);
    assert_eq!(insert(&w, row(w.mount, 8)).await.unwrap(), AuthOutcome::Absent, "none for a role that has ended");
    assert_eq!(sweep(4, 2).await.unwrap(), 2);
    assert_eq!(sweep(4, 2).await.unwrap(), 1);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM secret_id"), 1, "that of the other role");
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_role"), 1, "kept for nodes that have not heard");
    assert_eq!(sweep(601, 2).await.unwrap(), 0);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_role"), 0);
}

pub(super) async fn secret_ids_are_sealed_to_their_row_and_end_with_their_mount(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in [1, 2] {
        insert(&w, row(w.mount, n)).await.unwrap();
    }
    for (name, bytes) in fixture.files() {
        assert!(!bytes.windows(20).any(|text| text == b"plain-secret-id-body"), "{name}");
    }
    // A database writer must not be able to prolong a secret id.
    assert_eq!(fixture.execute("UPDATE secret_id SET expires_at_micros = NULL WHERE hash = $1", &[&[1; 32]]), 1);
    assert!(w.auth.secret_id(w.mount, ROLE, SecretIdKey::Hash([1; 32])).await.is_err());
    commit_one(&w, SecretIdWrite::DeleteRole { mount: w.mount, role: 9 }).await.unwrap();
    w.auth.commit(vec![AuthWrite::MountDelete(w.mount)]).await.unwrap();
    assert!(find(&w, SecretIdKey::Hash([2; 32])).await.is_none());
    assert_eq!(accessors(&w, "", 0, 9).await, [""; 0]);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_role"), 0);
    let started = std::time::Instant::now();
    while fixture.query_number("SELECT COUNT(*) FROM secret_id") > 0 {
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
