//! Contract tests of sealing the API tokens of versions before schema 14.

use std::time::Duration;

use super::*;

const USER: &str = "INSERT INTO users (ext_id, username, username_lc, email, email_lc, created_at)
    VALUES ('user-1', 'one', 'one', 'one@a.test', 'one@a.test', 0)";

/// Inserts an API token without a seal, as a version before schema 14 or a database writer may do.
fn insert_unsealed(fixture: &impl Fixture, name: &str) {
    let sql = format!(
        "INSERT INTO api_tokens (ext_id, lookup, secret_sha256, user_id, created_by, created_at)
        SELECT 'at-{name}', '{name}', $1, id, 'users/x', 0 FROM users"
    );
    assert_eq!(fixture.execute(&sql, &[&[7; 32]]), 1);
}

fn count_unsealed(fixture: &impl Fixture) -> i64 {
    fixture.query_number("SELECT COUNT(*) FROM api_tokens WHERE body IS NULL")
}

async fn reopened(w: ContractStore, fixture: &impl Fixture) -> ContractStore {
    w.storage.shutdown().await.unwrap();
    ContractStore::reopen(fixture, w.mount).await
}

/// Removes all installation facts except those without which a store does not open.
fn remove_facts(fixture: &impl Fixture) {
    let sql = "DELETE FROM meta WHERE name NOT IN ('schema', 'installation') AND name NOT LIKE 'data-key/%'";
    fixture.execute(sql, &[]);
}

pub(super) async fn api_tokens_of_an_earlier_version_are_sealed_once(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    w.storage.keys.begin_token_upgrade().await.unwrap();
    fixture.execute(USER, &[]);
    insert_unsealed(fixture, "one");
    let w = reopened(w, fixture).await;
    assert_eq!(count_unsealed(fixture), 0, "sealed at the start");
    // Only on a shared store, nodes of the earlier version may still run and create unsealed tokens.
    let shared = w.storage.changes().is_some();
    insert_unsealed(fixture, "two");
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    assert_eq!(count_unsealed(fixture) == 0, shared);
    fixture.clock().advance(Duration::from_secs(3601));
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    fixture.execute("UPDATE api_tokens SET body = NULL", &[]);
    remove_facts(fixture);
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    let w = reopened(w, fixture).await;
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    assert_eq!(count_unsealed(fixture), 2, "the upgrade has ended, whatever a database writer removes");
    // A new data key and another seal key must not reopen the upgrade.
    w.storage.keyring().rotate(1).await.unwrap();
    fixture.clock().advance(Duration::from_secs(61));
    let next = SealKey::random();
    w.storage.change_seal(&next).await.unwrap();
    w.storage.shutdown().await.unwrap();
    let storage = fixture.open_with(next, 1000).await.unwrap();
    storage.token_seal().seal_unsealed_tokens().await.unwrap();
    assert_eq!(count_unsealed(fixture), 2);
}

pub(super) async fn new_store_seals_no_api_tokens_of_a_database_writer(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    fixture.execute(USER, &[]);
    insert_unsealed(fixture, "forged");
    remove_facts(fixture);
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    let w = reopened(w, fixture).await;
    w.storage.token_seal().seal_unsealed_tokens().await.unwrap();
    assert_eq!(count_unsealed(fixture), 1);
}
