//! Contract tests of sealing that inspect and change the stored tables and files.

use super::auth::{hash, token};
use super::*;

pub(super) async fn bit_flip_in_any_byte_of_a_sealed_body_is_an_error(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    w.put(vec![PkiWrite::Document(document(w.mount, "a", 0, Some("{\"secret\":1}")))]).await;
    w.auth.commit(vec![AuthWrite::TokenInsert(token(1, None))]).await.unwrap();
    for table in ["document", "token"] {
        let sealed = fixture.query_bytes(&format!("SELECT body FROM {table}"));
        let set = |body: &[u8]| fixture.execute(&format!("UPDATE {table} SET body = $1"), &[body]);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << (at % 8);
            set(&changed);
            let failed = match table {
                "document" => w.pki.documents(w.mount).await.is_err(),
                _ => w.auth.token(hash(1)).await.is_err(),
            };
            assert!(failed, "{table}: octet {at}");
        }
        let mut version = sealed.clone();
        version[4] = 2;
        set(&version);
        assert!(w.pki.documents(w.mount).await.is_err() || w.auth.token(hash(1)).await.is_err(), "version octet");
        set(&sealed);
    }
    assert!(w.pki.documents(w.mount).await.is_ok() && w.auth.token(hash(1)).await.is_ok());
}

pub(super) async fn swapped_or_rolled_back_rows_are_an_error(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![
        PkiWrite::Document(document(m, "a", 0, Some("of a"))),
        PkiWrite::Document(document(m, "b", 0, Some("of b"))),
    ])
    .await;
    let body = |name| fixture.query_bytes(&format!("SELECT body FROM document WHERE name = '{name}'"));
    let set =
        |name, body: &[u8]| fixture.execute(&format!("UPDATE document SET body = $1 WHERE name = '{name}'"), &[body]);
    let a = body("a");
    let b = body("b");
    set("a", &b);
    set("b", &a);
    assert!(w.pki.documents(m).await.is_err(), "swapped");
    set("a", &a);
    set("b", &b);
    assert_eq!(w.pki.documents(m).await.unwrap().len(), 2);
    w.put(vec![PkiWrite::Document(document(m, "a", 1, Some("newer")))]).await;
    set("a", &a);
    assert!(w.pki.documents(m).await.is_err(), "an older body under a newer version");
    w.auth.commit(vec![AuthWrite::TokenInsert(token(1, None)), AuthWrite::TokenInsert(token(3, None))]).await.unwrap();
    fixture.execute(
        "UPDATE token SET body = (SELECT body FROM token WHERE hash = $1) WHERE hash = $2",
        &[&hash(3), &hash(1)],
    );
    assert!(w.auth.token(hash(1)).await.is_err());
    assert!(w.auth.token(hash(3)).await.is_ok());
}

pub(super) async fn token_row_with_a_prolonged_expiry_is_an_error(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    w.auth.commit(vec![AuthWrite::TokenInsert(token(1, None))]).await.unwrap();
    fixture.execute("UPDATE token SET expires_at_micros = expires_at_micros + 1 WHERE hash = $1", &[&hash(1)]);
    assert!(w.auth.token(hash(1)).await.is_err());
    fixture.execute("UPDATE token SET expires_at_micros = NULL WHERE hash = $1", &[&hash(1)]);
    assert!(w.auth.token(hash(1)).await.is_err());
}

pub(super) async fn data_files_contain_no_secret_plaintext(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let canary = "canary-of-a-private-key";
    w.put(vec![PkiWrite::Document(document(w.mount, "name-in-clear", 0, Some(canary)))]).await;
    w.auth.commit(vec![AuthWrite::TokenInsert(token(1, None))]).await.unwrap();
    let found = |what: &str| {
        let files = fixture.files();
        assert!(!files.is_empty());
        files.iter().any(|(_, content)| content.windows(what.len()).any(|part| part == what.as_bytes()))
    };
    for _ in 0..2 {
        assert!(found("name-in-clear"), "the files are the right ones");
        assert!(!found(canary) && !found("plain-accessor"));
        w.storage.shutdown().await.unwrap();
    }
}

pub(super) async fn rotation_keeps_old_bodies_readable(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![PkiWrite::Document(document(m, "a", 0, Some("old")))]).await;
    assert_eq!(w.storage.keyring().rotate(1).await.unwrap(), 2);
    w.put(vec![PkiWrite::Document(document(m, "b", 0, Some("new")))]).await;
    let term = |name| fixture.query_bytes(&format!("SELECT body FROM document WHERE name = '{name}'"))[..4].to_vec();
    assert_eq!((term("a"), term("b")), (vec![0, 0, 0, 1], vec![0, 0, 0, 2]));
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, m).await;
    let bodies: Vec<_> = w.pki.documents(m).await.unwrap().into_iter().map(|d| d.body).collect();
    assert!(bodies == [b"old".to_vec(), b"new".to_vec()]);
    assert_eq!(w.storage.keyring().rotate(2).await.unwrap(), 3);
}

pub(super) async fn current_data_key_is_reported_with_its_creation_time(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let reported_key = async |w: &ContractStore| {
        let key = w.storage.keyring().status().await.unwrap();
        (key.term, key.created_at)
    };
    let minute = std::time::Duration::from_secs(60);
    assert_eq!(reported_key(&w).await, (1, now()));
    fixture.clock().advance(minute);
    assert_eq!((w.storage.keyring().rotate(1).await.unwrap(), reported_key(&w).await), (2, (2, now() + minute)));
    w.storage.shutdown().await.unwrap();
    fixture.clock().advance(minute);
    let w = ContractStore::reopen(fixture, w.mount).await;
    assert_eq!(reported_key(&w).await, (2, now() + minute));
    // If the creation time of a data key was never recorded, the current time is recorded once.
    fixture.execute("DELETE FROM meta WHERE name LIKE 'data-key-made/%'", &[]);
    assert_eq!(reported_key(&w).await, (2, now() + 2 * minute));
    fixture.clock().advance(minute);
    assert_eq!(reported_key(&w).await, (2, now() + 2 * minute));
}

pub(super) async fn wrong_seal_key_is_rejected_and_releases_the_store(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    w.storage.shutdown().await.unwrap();
    let error = fixture.open_with(SealKey::random(), 10).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("seal key"), "{error}");
    ContractStore::reopen(fixture, w.mount).await;
}
