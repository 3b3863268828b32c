use std::time::Duration;

use futures_util::future::join_all;

use super::auth::token;
use super::*;
use crate::auth::store::{AliasEntry, AliasRow, EntityBy, EntityEntry, EntityPage, EntityRow, IdentityRows, TokenRow};

fn entity(n: u32) -> EntityRow {
    let body = format!(r#"{{"policies":["plain-policy-{n}"]}}"#).into_bytes();
    EntityRow { id: format!("e{n}"), name: format!("name{n}"), version: 1, body, kept_until: None }
}

fn alias(n: u32, of: u32) -> AliasRow {
    let body = format!(r#"{{"metadata":{{"k":"plain-metadata-{n}"}}}}"#).into_bytes();
    let accessor = format!("acc{n}");
    let entity = format!("e{of}");
    AliasRow { id: format!("a{n}"), accessor, name: "Bob".into(), entity, version: 1, body }
}

async fn put(w: &ContractStore, unit: Vec<AuthWrite>) {
    assert!(w.auth.commit(unit).await.unwrap().iter().all(|outcome| *outcome == AuthOutcome::Done));
}

async fn assert_conflict(w: &ContractStore, write: AuthWrite) {
    assert_eq!(w.auth.commit(vec![write]).await.unwrap_err().kind(), Kind::Conflict);
}

async fn commit_one(w: &ContractStore, write: AuthWrite) -> AuthOutcome {
    w.auth.commit(vec![write]).await.unwrap().remove(0)
}

async fn find_identity(w: &ContractStore, by: EntityBy) -> Option<IdentityRows> {
    w.auth.identity(by).await.unwrap()
}

fn by_id(n: u32) -> EntityBy {
    EntityBy::Id(format!("e{n}"))
}

fn by_alias(accessor: &str, name: &str) -> EntityBy {
    EntityBy::Alias { accessor: accessor.into(), name: name.into() }
}

pub(super) async fn entity_is_found_by_id_name_and_alias(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let bare = EntityRow { kept_until: Some(now() + Duration::from_nanos(1_999)), ..entity(2) };
    put(&w, vec![AuthWrite::EntityPut(entity(1)), AuthWrite::AliasPut(alias(2, 1)), AuthWrite::AliasPut(alias(1, 1))])
        .await;
    put(&w, vec![AuthWrite::EntityPut(bare.clone())]).await;
    let whole = IdentityRows { entity: entity(1), aliases: vec![alias(1, 1), alias(2, 1)] };
    for by in [
        by_id(1),
        EntityBy::Name("name1".into()),
        EntityBy::AliasId("a2".into()),
        by_alias("acc1", "Bob"),
        by_alias("acc2", "Bob"),
    ] {
        assert_eq!(find_identity(&w, by.clone()).await, Some(whole.clone()), "{by:?}");
    }
    let kept_until = Some(now() + Duration::from_nanos(1_000));
    assert_eq!(
        find_identity(&w, by_id(2)).await,
        Some(IdentityRows { entity: EntityRow { kept_until, ..bare }, aliases: vec![] })
    );
    for by in [by_id(3), EntityBy::Name("Name1".into()), EntityBy::AliasId("e1".into()), by_alias("acc1", "bob")] {
        assert_eq!(find_identity(&w, by.clone()).await, None, "{by:?}");
    }
}

pub(super) async fn entity_version_accepts_only_one_change(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put(&w, vec![AuthWrite::EntityPut(entity(1)), AuthWrite::AliasPut(alias(1, 1))]).await;
    let second = EntityRow { version: 2, name: "other".into(), body: b"{}".to_vec(), ..entity(1) };
    put(&w, vec![AuthWrite::EntityPut(second.clone())]).await;
    let late = EntityRow { body: b"[]".to_vec(), ..second.clone() };
    assert_conflict(&w, AuthWrite::EntityPut(late)).await;
    assert_conflict(&w, AuthWrite::EntityPut(EntityRow { version: 4, ..second.clone() })).await;
    assert_conflict(&w, AuthWrite::EntityPut(entity(1))).await;
    assert_conflict(&w, AuthWrite::EntityPut(EntityRow { version: 2, ..entity(9) })).await;
    let changed = AliasRow { version: 2, body: b"{}".to_vec(), ..alias(1, 1) };
    put(&w, vec![AuthWrite::AliasPut(changed.clone())]).await;
    assert_conflict(&w, AuthWrite::AliasPut(AliasRow { body: b"[]".to_vec(), ..changed.clone() })).await;
    assert_eq!(find_identity(&w, by_id(1)).await, Some(IdentityRows { entity: second, aliases: vec![changed] }));
    assert_eq!(find_identity(&w, EntityBy::Name("name1".into())).await, None);
}

pub(super) async fn entity_names_and_aliases_are_unique(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put(&w, vec![AuthWrite::EntityPut(entity(1)), AuthWrite::EntityPut(entity(2)), AuthWrite::AliasPut(alias(1, 1))])
        .await;
    assert_conflict(&w, AuthWrite::EntityPut(EntityRow { name: "name1".into(), ..entity(3) })).await;
    assert_conflict(&w, AuthWrite::EntityPut(EntityRow { version: 2, name: "name1".into(), ..entity(2) })).await;
    let taken = AliasRow { accessor: "acc1".into(), ..alias(2, 2) };
    assert_conflict(&w, AuthWrite::AliasPut(taken.clone())).await;
    let second_place = AliasRow { name: "al".into(), entity: "e1".into(), ..taken.clone() };
    assert_conflict(&w, AuthWrite::AliasPut(second_place)).await;
    assert_conflict(&w, AuthWrite::AliasPut(alias(4, 4))).await;
    let other = AliasRow { name: "al".into(), ..taken };
    put(&w, vec![AuthWrite::AliasPut(other.clone())]).await;
    for moved in [AliasRow { name: "Bob".into(), ..other.clone() }, AliasRow { entity: "e1".into(), ..other.clone() }] {
        assert_conflict(&w, AuthWrite::AliasPut(AliasRow { version: 2, ..moved })).await;
    }
    let unit = vec![AuthWrite::EntityPut(entity(5)), AuthWrite::AliasPut(alias(1, 5))];
    assert_eq!(w.auth.commit(unit).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(find_identity(&w, by_id(5)).await, None);
}

pub(super) async fn concurrent_logins_of_one_name_create_one_entity(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let login = |n: u32| {
        let alias = AliasRow { id: format!("a{n}"), accessor: "acc".into(), ..alias(n, n) };
        w.auth.commit(vec![AuthWrite::EntityPut(entity(n)), AuthWrite::AliasPut(alias)])
    };
    let stored = join_all((1..=20).map(login)).await;
    assert_eq!(stored.iter().filter(|stored| stored.is_ok()).count(), 1);
    assert!(stored.iter().filter_map(|stored| stored.as_ref().err()).all(|error| error.kind() == Kind::Conflict));
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM entity"), 1);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM entity_alias"), 1);
}

pub(super) async fn entity_is_deleted_with_its_aliases(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put(&w, vec![AuthWrite::EntityPut(entity(1)), AuthWrite::AliasPut(alias(1, 1)), AuthWrite::AliasPut(alias(2, 1))])
        .await;
    put(&w, vec![AuthWrite::EntityPut(entity(2)), AuthWrite::AliasPut(alias(3, 2))]).await;
    assert_eq!(commit_one(&w, AuthWrite::AliasDelete("a2".into())).await, AuthOutcome::Done);
    assert_eq!(commit_one(&w, AuthWrite::AliasDelete("a2".into())).await, AuthOutcome::Absent);
    assert_eq!(find_identity(&w, by_id(1)).await.unwrap().aliases, [alias(1, 1)]);
    assert_eq!(commit_one(&w, AuthWrite::EntityDelete("e1".into())).await, AuthOutcome::Done);
    assert_eq!(commit_one(&w, AuthWrite::EntityDelete("e1".into())).await, AuthOutcome::Absent);
    assert_eq!(find_identity(&w, by_alias("acc1", "Bob")).await, None);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM entity_alias"), 1);
    assert!(find_identity(&w, by_id(2)).await.is_some());
}

pub(super) async fn pages_of_entities_and_aliases_are_complete(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..=5 {
        put(&w, vec![AuthWrite::EntityPut(EntityRow { name: format!("n{}", 9 - n), ..entity(n) })]).await;
    }
    put(&w, vec![AuthWrite::AliasPut(alias(2, 3)), AuthWrite::AliasPut(alias(1, 3)), AuthWrite::AliasPut(alias(3, 4))])
        .await;
    let page = async |by_name, after: &str, limit| {
        let page = EntityPage { by_name, after: after.to_owned(), limit };
        w.auth.entities(page).await.unwrap()
    };
    let ids = |entries: Vec<EntityEntry>| entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!(ids(page(false, "", 10).await), ["e1", "e2", "e3", "e4", "e5"]);
    assert_eq!(ids(page(true, "n5", 2).await), ["e3", "e2"]);
    let entry = |n: u32, of: u32| {
        let AliasRow { id, accessor, name, entity, .. } = alias(n, of);
        AliasEntry { id, accessor, name, entity }
    };
    let third = EntityEntry { id: "e3".into(), name: "n6".into(), aliases: vec![entry(1, 3), entry(2, 3)] };
    assert_eq!(page(false, "e2", 1).await, [third]);
    assert_eq!(w.auth.aliases(String::new(), 2).await.unwrap(), [entry(1, 3), entry(2, 3)]);
    assert_eq!(w.auth.aliases("a2".into(), 2).await.unwrap(), [entry(3, 4)]);
}

pub(super) async fn entity_without_tokens_is_swept_after_its_retention(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let at = |seconds| now() + Duration::from_secs(seconds);
    for (n, kept) in [(1, Some(10)), (2, Some(20)), (3, Some(30)), (4, None), (5, Some(10)), (6, Some(10))] {
        let row = EntityRow { kept_until: kept.map(at), ..entity(n) };
        put(&w, vec![AuthWrite::EntityPut(row), AuthWrite::AliasPut(alias(n, n))]).await;
    }
    // The token of entity 5 expires after 3,600 seconds, and the token of entity 6 never expires.
    let of = |n, entity: &str| AuthWrite::TokenInsert(TokenRow { entity: Some(entity.into()), ..token(n, None) });
    put(&w, vec![of(1, "e5"), of(2, "e6")]).await;
    let sweep = async |now, limit| {
        let step = AuthWrite::EntitySweep { now: at(now), again: at(now + 100), limit };
        commit_one(&w, step).await
    };
    let kept = async |n| find_identity(&w, by_id(n)).await.map(|rows| rows.entity.kept_until);
    assert_eq!(sweep(9, 10).await, AuthOutcome::Swept(0));
    assert_eq!(commit_one(&w, AuthWrite::EntityPostpone { id: "e2".into(), until: at(40) }).await, AuthOutcome::Done);
    assert_eq!(commit_one(&w, AuthWrite::EntityPostpone { id: "e2".into(), until: at(30) }).await, AuthOutcome::Done);
    assert_eq!(commit_one(&w, AuthWrite::EntityPostpone { id: "e4".into(), until: at(30) }).await, AuthOutcome::Done);
    assert_eq!(commit_one(&w, AuthWrite::EntityPostpone { id: "e9".into(), until: at(30) }).await, AuthOutcome::Absent);
    assert_eq!(sweep(30, 2).await, AuthOutcome::Swept(2));
    assert_eq!(sweep(30, 10).await, AuthOutcome::Swept(2));
    assert_eq!(sweep(30, 10).await, AuthOutcome::Swept(0));
    for n in [1, 3] {
        assert_eq!(find_identity(&w, by_id(n)).await, None);
    }
    assert_eq!(kept(2).await, Some(Some(at(40))), "never kept for less");
    assert_eq!(kept(4).await, Some(None), "it stays");
    assert_eq!(kept(5).await, Some(Some(at(3_600))), "until its token ends");
    assert_eq!(kept(6).await, Some(Some(at(130))), "looked at again");
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM entity_alias"), 4);
    commit_one(&w, AuthWrite::TokenRevoke(vec![super::auth::hash(1)])).await;
    assert_eq!(sweep(3_600, 10).await, AuthOutcome::Swept(3));
    assert_eq!(find_identity(&w, by_id(5)).await, None);
}

pub(super) async fn bodies_of_identities_are_sealed_to_their_rows(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    put(&w, vec![AuthWrite::EntityPut(entity(1)), AuthWrite::AliasPut(alias(1, 1))]).await;
    put(&w, vec![AuthWrite::EntityPut(entity(2)), AuthWrite::AliasPut(alias(2, 2))]).await;
    for (_, bytes) in fixture.files() {
        let shows = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!shows(b"plain-policy") && !shows(b"plain-metadata"));
    }
    let own = fixture.query_bytes("SELECT body FROM entity WHERE id = 'e1'");
    for (change, undo) in [
        (
            "UPDATE entity SET body = (SELECT body FROM entity WHERE id = 'e2') WHERE id = 'e1'",
            "UPDATE entity SET body = $1 WHERE id = 'e1'",
        ),
        ("UPDATE entity SET name = 'x' WHERE id = 'e1'", "UPDATE entity SET name = 'name1' WHERE id = 'e1'"),
        (
            "UPDATE entity_alias SET entity = 'e1' WHERE id = 'a2'",
            "UPDATE entity_alias SET entity = 'e2' WHERE id = 'a2'",
        ),
        ("UPDATE entity_alias SET name = 'al' WHERE id = 'a1'", "UPDATE entity_alias SET name = 'Bob' WHERE id = 'a1'"),
    ] {
        assert_eq!(fixture.execute(change, &[]), 1);
        assert!(w.auth.identity(by_id(1)).await.is_err(), "{change}");
        let bytes: &[&[u8]] = if undo.contains("$1") { &[&own] } else { &[] };
        assert_eq!(fixture.execute(undo, bytes), 1);
        assert!(w.auth.identity(by_id(1)).await.is_ok());
    }
    let old = fixture.query_bytes("SELECT body FROM entity WHERE id = 'e1'");
    put(&w, vec![AuthWrite::EntityPut(EntityRow { version: 2, body: b"{}".to_vec(), ..entity(1) })]).await;
    fixture.execute("UPDATE entity SET body = $1 WHERE id = 'e1'", &[&old]);
    assert!(w.auth.identity(by_id(1)).await.is_err(), "an older body under a newer version");
}
