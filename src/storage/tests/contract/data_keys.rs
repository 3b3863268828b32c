//! Contract tests of data keys: rotation, usage counts, resealing of older values, and the seal.

use std::time::Duration;

use futures_util::future::join;

use super::auth::{hash, token};
use super::*;
use crate::auth::store::{
    AliasRow, CubbyholeRow, EntityBy, EntityRow, SecretIdKey, SecretIdRow, SecretIdWrite, TokenRow,
};
use crate::keyring::store::{DataKey, ResealOutcome};
use crate::pki::store::MetadataRow;

/// Tables with sealed bodies that these tests cover.
const TABLES: [&str; 7] =
    ["document", "token", "cubbyhole", "entity", "entity_alias", "secret_id", "certificate_metadata"];
const ROLE: i64 = 7;

/// Writes row `n` into each table of `TABLES`, with a body that contains `n`.
async fn put_all(w: &ContractStore, n: u32) {
    let body = format!("\"plain-{n}\"").into_bytes();
    let metadata = MetadataRow { mount: w.mount, serial: serial(n), not_after: NOW + 60, body: body.clone() };
    w.put(vec![
        PkiWrite::Document(document(w.mount, &format!("d{n}"), 0, Some(&format!("\"plain-{n}\"")))),
        PkiWrite::Metadata(metadata),
    ])
    .await;
    let entity =
        EntityRow { id: format!("e{n}"), name: format!("n{n}"), version: 1, body: body.clone(), kept_until: None };
    let alias = AliasRow {
        id: format!("a{n}"),
        accessor: format!("acc{n}"),
        name: "Bob".into(),
        entity: entity.id.clone(),
        version: 1,
        body: body.clone(),
    };
    let secret_id = SecretIdRow {
        mount: w.mount,
        role: ROLE,
        hash: [n as u8; 32],
        accessor: format!("accessor-{n}"),
        expires_at: n.is_multiple_of(2).then(|| now() + Duration::from_secs(60)),
        uses: None,
        updated_at: now(),
        body: body.clone(),
    };
    let unit = vec![
        AuthWrite::TokenInsert(TokenRow { body: body.clone(), ..token(n, None) }),
        AuthWrite::CubbyholePut(CubbyholeRow { token: hash(n), path: "p".into(), body }),
        AuthWrite::EntityPut(entity),
        AuthWrite::AliasPut(alias),
        AuthWrite::SecretId(SecretIdWrite::Insert(secret_id)),
    ];
    assert!(w.auth.commit(unit).await.unwrap().iter().all(|outcome| *outcome == AuthOutcome::Done));
}

async fn read_body(w: &ContractStore, table: &str, n: u32) -> Result<Vec<u8>> {
    Ok(match table {
        "document" => {
            let name = format!("d{n}");
            w.pki.documents(w.mount).await?.into_iter().find(|document| document.key.name == name).unwrap().body
        }
        "token" => w.auth.token(hash(n)).await?.unwrap().body,
        "cubbyhole" => w.auth.cubbyhole(hash(n), "p".into()).await?.unwrap().body,
        "entity" => w.auth.identity(EntityBy::Id(format!("e{n}"))).await?.unwrap().entity.body,
        "entity_alias" => w.auth.identity(EntityBy::Id(format!("e{n}"))).await?.unwrap().aliases.remove(0).body,
        "secret_id" => w.auth.secret_id(w.mount, ROLE, SecretIdKey::Hash([n as u8; 32])).await?.unwrap().body,
        _ => w.pki.metadata(w.mount, serial(n)).await?.unwrap().body,
    })
}

async fn assert_all_readable(w: &ContractStore, numbers: std::ops::Range<u32>) {
    for table in TABLES {
        for n in numbers.clone() {
            assert!(read_body(w, table, n).await.unwrap() == format!("\"plain-{n}\"").into_bytes(), "{table} {n}");
        }
    }
}

/// Returns the number of bodies sealed with the key of `term` or a later one, and the number of all others.
fn count_by_term(fixture: &impl Fixture, term: u32) -> (i64, i64) {
    let first = term.to_be_bytes();
    let count = |is: &str| {
        let of = |table: &str| {
            // Rows are counted with an update, because no other operation of the fixture takes a byte string as
            // parameter.
            fixture.execute(&format!("UPDATE {table} SET body = body WHERE body {is} $1"), &[&first]) as i64
        };
        TABLES.iter().map(|table| of(table)).sum::<i64>()
    };
    (count(">="), count("<"))
}

async fn key_status(w: &ContractStore) -> DataKey {
    w.storage.keyring().status().await.unwrap()
}

async fn rotate(w: &ContractStore) -> u32 {
    w.storage.keyring().rotate(key_status(w).await.term).await.unwrap()
}

/// Runs steps of resealing until nothing is left, and returns the number of steps.
async fn reseal_all(w: &ContractStore) -> usize {
    let keyring = w.storage.keyring();
    for steps in 1..1000 {
        match keyring.re_seal().await.unwrap() {
            ResealOutcome::More => {}
            ResealOutcome::Done => return steps,
            ResealOutcome::Later => panic!("no other process re-seals"),
        }
    }
    panic!("it does not end");
}

/// A sealed value must not decrypt if a bit was flipped, or if it was moved to another row, given an unknown version or
/// truncated.
pub(super) async fn bit_flip_swap_or_unknown_version_of_a_value_is_an_error(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        put_all(&w, n).await;
    }
    for table in TABLES {
        let which = |n: u32| match table {
            "document" => format!("name = 'd{n}'"),
            "token" | "cubbyhole" | "secret_id" | "certificate_metadata" => String::new(),
            "entity" => format!("id = 'e{n}'"),
            _ => format!("id = 'a{n}'"),
        };
        // In tables with binary keys, the two rows are selected by the order of their bodies.
        let bodies = [1, 2].map(|n| match which(n).as_str() {
            "" => {
                let by = if n == 1 { "ASC" } else { "DESC" };
                fixture.query_bytes(&format!("SELECT body FROM {table} ORDER BY body {by} LIMIT 1"))
            }
            is => fixture.query_bytes(&format!("SELECT body FROM {table} WHERE {is}")),
        });
        let set = |from: &[u8], to: &[u8]| {
            assert_eq!(fixture.execute(&format!("UPDATE {table} SET body = $1 WHERE body = $2"), &[to, from]), 1);
        };
        let is_refused = async || read_body(&w, table, 1).await.is_err() || read_body(&w, table, 2).await.is_err();
        let mut stored = bodies[0].clone();
        // Flips every bit in the first table, and one bit per byte in the others.
        let bits = if table == "document" { 8 } else { 1 };
        for bit in 0..stored.len() * bits {
            let octet = bit / bits;
            let bit = if bits == 8 { bit % 8 } else { bit % 7 };
            let mut changed = bodies[0].clone();
            changed[octet] ^= 1 << bit;
            set(&stored, &changed);
            assert!(is_refused().await, "{table}: octet {octet}, bit {bit}");
            stored = changed;
        }
        let mut version = bodies[0].clone();
        version[4] = 2;
        set(&stored, &version);
        assert!(is_refused().await, "{table}: version");
        set(&version, &bodies[0][..bodies[0].len() - 1]);
        assert!(is_refused().await, "{table}: cut");
        set(&bodies[0][..bodies[0].len() - 1], b"aside");
        set(&bodies[1], &bodies[0]);
        set(b"aside", &bodies[1]);
        assert!(is_refused().await, "{table}: swapped");
        set(&bodies[0], b"aside");
        set(&bodies[1], &bodies[0]);
        set(b"aside", &bodies[1]);
    }
    assert_all_readable(&w, 1..3).await;
}

/// Tests a single node. The tests of the PostgreSQL engine test two nodes.
pub(super) async fn old_values_stay_readable_and_new_ones_have_the_new_term(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put_all(&w, 1).await;
    assert_eq!(rotate(&w).await, 2);
    put_all(&w, 2).await;
    assert_eq!(count_by_term(fixture, 2), (7, 7));
    assert_all_readable(&w, 1..3).await;
    w.storage.shutdown().await.unwrap();
    assert_all_readable(&ContractStore::reopen(fixture, w.mount).await, 1..3).await;
}

pub(super) async fn seal_operations_of_a_key_are_counted_across_restarts(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    // Opening the store has already sealed a value.
    let opened = key_status(&w).await.sealed;
    put_all(&w, 1).await;
    assert_eq!(key_status(&w).await.sealed, opened + 7);
    w.storage.keyring().record_use().await.unwrap();
    put_all(&w, 2).await;
    assert_eq!(key_status(&w).await.sealed, opened + 14);
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, w.mount).await;
    w.storage.keyring().record_use().await.unwrap();
    assert_eq!(key_status(&w).await.sealed, opened + 14);
    put_all(&w, 3).await;
    rotate(&w).await;
    assert_eq!((key_status(&w).await.term, key_status(&w).await.sealed), (2, 0), "each key has a count of its own");
}

pub(super) async fn values_sealed_by_earlier_keys_are_resealed(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    assert_eq!(key_status(&w).await.older, Some(0));
    assert_eq!(reseal_all(&w).await, 1, "there is nothing to do");
    for n in 1..101 {
        put_all(&w, n).await;
    }
    rotate(&w).await;
    put_all(&w, 101).await;
    assert_eq!(key_status(&w).await.older, None, "not counted yet");
    assert_eq!(w.storage.count_old_values().await.unwrap(), 700);
    fixture.clock().advance(Duration::from_secs(31));
    let steps = reseal_all(&w).await;
    assert!(steps > 10, "{steps} steps are not small");
    assert_eq!((key_status(&w).await.older, w.storage.count_old_values().await.unwrap()), (Some(0), 0));
    assert_eq!(count_by_term(fixture, 2), (707, 0));
    assert_all_readable(&w, 1..102).await;
    assert_eq!(reseal_all(&w).await, 1);
}

pub(super) async fn resealing_continues_after_a_restart(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..101 {
        put_all(&w, n).await;
    }
    rotate(&w).await;
    fixture.clock().advance(Duration::from_secs(31));
    // The first step starts the run, and later steps count and reseal.
    assert_eq!(w.storage.keyring().re_seal().await.unwrap(), ResealOutcome::More);
    assert_eq!(key_status(&w).await.older, None);
    let (before, steps) = reseal_some(&w).await;
    assert!((1..700).contains(&before) && steps > 7, "{before} after {steps} steps");
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, w.mount).await;
    assert_eq!(key_status(&w).await.older, Some(before));
    // The reopened store continues the run: nothing is counted or resealed twice.
    let steps = reseal_all(&w).await;
    assert_eq!((key_status(&w).await.older, count_by_term(fixture, 2)), (Some(0), (700, 0)));
    rotate(&w).await;
    fixture.clock().advance(Duration::from_secs(31));
    assert!(reseal_all(&w).await > steps, "it had begun before");
    assert_eq!(count_by_term(fixture, 3), (700, 0), "a later key has a run of its own");
    assert_all_readable(&w, 1..101).await;
}

/// Runs steps until some, but not all, of 700 values are resealed. Returns the number of values left, and the number of
/// steps.
async fn reseal_some(w: &ContractStore) -> (u64, usize) {
    for steps in 1..100 {
        assert_eq!(w.storage.keyring().re_seal().await.unwrap(), ResealOutcome::More);
        match key_status(w).await.older {
            Some(left) if left < 700 => return (left, steps),
            _ => {}
        }
    }
    panic!("nothing is sealed again");
}

pub(super) async fn resealing_overwrites_no_newer_write(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let all = 0..150;
    for n in all.clone() {
        w.put(vec![PkiWrite::Document(document(w.mount, &format!("d{n}"), 0, Some("1")))]).await;
    }
    rotate(&w).await;
    fixture.clock().advance(Duration::from_secs(31));
    let writes = async {
        for version in 1..4 {
            for n in all.clone() {
                let body = (version + 1).to_string();
                w.put(vec![PkiWrite::Document(document(w.mount, &format!("d{n}"), version, Some(&body)))]).await;
            }
        }
    };
    join(writes, reseal_all(&w)).await;
    let documents = w.pki.documents(w.mount).await.unwrap();
    assert_eq!(documents.len(), all.len());
    assert!(documents.iter().all(|document| document.version == 4 && document.body == b"4"));
    assert_eq!(w.storage.count_old_values().await.unwrap(), 0);
}

pub(super) async fn value_that_does_not_open_is_skipped_by_resealing(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        put_all(&w, n).await;
    }
    let body = fixture.query_bytes("SELECT body FROM entity WHERE id = 'e1'");
    let mut damaged = body.clone();
    damaged[20] ^= 1;
    fixture.execute("UPDATE entity SET body = $1 WHERE body = $2", &[&damaged, &body]);
    rotate(&w).await;
    fixture.clock().advance(Duration::from_secs(31));
    reseal_all(&w).await;
    assert_eq!((key_status(&w).await.older, count_by_term(fixture, 2)), (Some(1), (13, 1)));
    assert!(fixture.query_bytes("SELECT body FROM entity WHERE id = 'e1'") == damaged);
    fixture.execute("UPDATE entity SET body = $1 WHERE body = $2", &[&body, &damaged]);
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, w.mount).await;
    reseal_all(&w).await;
    assert_eq!((key_status(&w).await.older, count_by_term(fixture, 2)), (Some(0), (14, 0)));
    assert_all_readable(&w, 1..3).await;
}

pub(super) async fn row_with_unreadable_columns_is_skipped_by_resealing(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        put_all(&w, n).await;
    }
    assert_eq!(fixture.execute("UPDATE secret_id SET hash = $1 WHERE hash = $2", &[&[7; 31], &[1; 32]]), 1);
    rotate(&w).await;
    fixture.clock().advance(Duration::from_secs(31));
    assert_eq!(w.storage.count_old_values().await.unwrap(), 14);
    reseal_all(&w).await;
    assert_eq!((key_status(&w).await.older, count_by_term(fixture, 2)), (Some(1), (13, 1)));
    assert_eq!(w.storage.count_old_values().await.unwrap(), 1);
}

/// Returns `true` if the store contains a new root key for other nodes.
fn has_root_key_handover(fixture: &impl Fixture) -> bool {
    fixture.query_number("SELECT COUNT(*) FROM meta WHERE name = 'root-key-handover' AND length(value) > 0") > 0
}

pub(super) async fn root_key_handover_exists_only_in_a_shared_store(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put_all(&w, 1).await;
    w.storage.change_seal(&SealKey::random()).await.unwrap();
    let is_shared = w.storage.changes().is_some();
    assert_eq!(has_root_key_handover(fixture), is_shared);
    assert_eq!(rotate(&w).await, 2);
    assert_eq!(has_root_key_handover(fixture), is_shared, "nodes may run that have not taken it yet");
    fixture.clock().advance(Duration::from_secs(31));
    if is_shared {
        assert_eq!(w.storage.keyring().re_seal().await.unwrap(), ResealOutcome::Later);
        assert!(has_root_key_handover(fixture));
    }
    fixture.clock().advance(Duration::from_secs(30));
    reseal_all(&w).await;
    assert!(
        !has_root_key_handover(fixture),
        "what the key before opens is gone when nothing is sealed with it any more"
    );
    assert_eq!(key_status(&w).await.older, Some(0));
    // The handover may end after a minute. The creation of the next data key ends it.
    w.storage.change_seal(&SealKey::random()).await.unwrap();
    assert_eq!(has_root_key_handover(fixture), is_shared);
    fixture.clock().advance(Duration::from_secs(60));
    assert_eq!(rotate(&w).await, 3);
    assert!(!has_root_key_handover(fixture));
    put_all(&w, 2).await;
    assert_all_readable(&w, 1..3).await;
}

pub(super) async fn new_seal_key_opens_everything_and_the_previous_nothing(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put_all(&w, 1).await;
    rotate(&w).await;
    put_all(&w, 2).await;
    assert_eq!(w.storage.seal_status().await.unwrap(), fixture.seal_key().describe());
    let mut seal = fixture.seal_key();
    for round in 0..2 {
        fixture.clock().advance(Duration::from_secs(30));
        seal = SealKey::random();
        let changed = w.storage.change_seal(&seal).await.unwrap();
        assert_eq!((changed.key, changed.since), (seal.describe().key, Some(fixture.clock().now())), "{round}");
        assert_all_readable(&w, 1..3).await;
        assert_eq!(rotate(&w).await, 3 + round);
        put_all(&w, 3 + round).await;
    }
    w.storage.shutdown().await.unwrap();
    for wrong in [fixture.seal_key(), SealKey::random()] {
        let error = fixture.open_with(wrong, 10).await.err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.text().contains("seal key"), "{error}");
    }
    let storage = fixture.open_with(seal, 1000).await.unwrap();
    let w = ContractStore { pki: storage.pki(), auth: storage.auth(), storage, mount: w.mount };
    assert_all_readable(&w, 1..5).await;
    assert_eq!(key_status(&w).await.term, 4);
}
