//! Contract tests of cubbyholes.

use super::auth::{hash, token};
use super::*;
use crate::auth::store::{CubbyholeRow, TokenRow};

fn row(n: u32, path: &str, body: &[u8]) -> CubbyholeRow {
    CubbyholeRow { token: hash(n), path: path.to_owned(), body: body.to_vec() }
}

async fn put(w: &ContractStore, row: CubbyholeRow) -> Result<()> {
    w.auth.commit(vec![AuthWrite::CubbyholePut(row)]).await.map(drop)
}

async fn read_body(w: &ContractStore, n: u32, path: &str) -> Option<Vec<u8>> {
    w.auth.cubbyhole(hash(n), path.to_owned()).await.unwrap().map(|row| row.body)
}

pub(super) async fn token_reads_only_its_own_cubbyhole_entries(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        w.auth.commit(vec![AuthWrite::TokenInsert(token(n, None))]).await.unwrap();
    }
    for (path, body) in [("b", "1"), ("a/é", "2"), ("", "wrapped"), ("b", "3")] {
        put(&w, row(1, path, body.as_bytes())).await.unwrap();
    }
    put(&w, row(2, "b", b"other")).await.unwrap();
    assert_eq!(w.auth.cubbyhole_paths(hash(1)).await.unwrap(), ["a/é", "b"]);
    assert_eq!(read_body(&w, 1, "b").await.unwrap(), b"3");
    assert_eq!(read_body(&w, 1, "").await.unwrap(), b"wrapped");
    assert_eq!(read_body(&w, 2, "b").await.unwrap(), b"other");
    assert!(read_body(&w, 2, "a/é").await.is_none());
    let delete = |path: &str| AuthWrite::CubbyholeDelete { token: hash(1), path: path.to_owned() };
    w.auth.commit(vec![delete("b"), delete("absent")]).await.unwrap();
    assert!(read_body(&w, 1, "b").await.is_none() && read_body(&w, 2, "b").await.is_some());
}

pub(super) async fn cubbyhole_entries_are_removed_with_their_token(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let expires = TokenRow { expires_at: Some(now()), ..token(4, None) };
    for row in [token(1, None), token(2, Some(1)), TokenRow { uses: Some(1), ..token(3, None) }, expires] {
        w.auth.commit(vec![AuthWrite::TokenInsert(row)]).await.unwrap();
    }
    for n in 1..5 {
        put(&w, row(n, "a", b"1")).await.unwrap();
        put(&w, row(n, "b", b"1")).await.unwrap();
    }
    let left = || fixture.query_number("SELECT COUNT(*) FROM cubbyhole");
    assert_eq!(left(), 8);
    w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(1)])]).await.unwrap();
    assert_eq!(left(), 4, "a descendant's too");
    w.auth.commit(vec![AuthWrite::TokenTake(hash(3))]).await.unwrap();
    assert_eq!(left(), 2);
    assert_eq!(w.auth.sweep_tokens(now(), 10).await.unwrap().gone.len(), 1);
    assert_eq!(left(), 0);
    assert_eq!(put(&w, row(1, "a", b"1")).await.unwrap_err().kind(), Kind::Conflict, "the token is gone");
}

pub(super) async fn token_is_taken_once_and_only_with_a_remaining_use(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for (n, uses) in [(1, Some(1)), (2, None), (3, Some(0))] {
        w.auth.commit(vec![AuthWrite::TokenInsert(TokenRow { uses, ..token(n, None) })]).await.unwrap();
    }
    let take = |n| w.auth.commit(vec![AuthWrite::TokenTake(hash(n))]);
    let attempts = futures_util::future::join_all((0..20).map(|_| take(1))).await;
    let taken: Vec<_> = attempts.iter().filter(|attempt| attempt.is_ok()).collect();
    assert_eq!(taken.len(), 1);
    assert!(attempts.iter().filter_map(|a| a.as_ref().err()).all(|error| error.kind() == Kind::Conflict));
    for n in [1, 2, 3, 4] {
        assert_eq!(take(n).await.unwrap_err().kind(), Kind::Conflict, "{n}");
    }
    let unit = vec![AuthWrite::TokenTake(hash(1)), AuthWrite::TokenInsert(token(9, None))];
    assert!(w.auth.commit(unit).await.is_err());
    assert!(w.auth.token(hash(9)).await.unwrap().is_none() && w.auth.token(hash(2)).await.unwrap().is_some());
}

pub(super) async fn cubbyhole_entries_and_bytes_are_limited(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        w.auth.commit(vec![AuthWrite::TokenInsert(token(n, None))]).await.unwrap();
    }
    let (entries, bytes) = CubbyholeRow::LIMITS;
    for n in 0..entries {
        put(&w, row(1, &n.to_string(), b"1")).await.unwrap();
    }
    assert_eq!(put(&w, row(1, "more", b"1")).await.unwrap_err().kind(), Kind::Conflict);
    put(&w, row(1, "0", b"another")).await.unwrap();
    assert!(read_body(&w, 1, "more").await.is_none() && read_body(&w, 1, "0").await.unwrap() == b"another");
    let half = vec![7; usize::try_from(bytes / 2).unwrap() - 100];
    put(&w, row(2, "a", &half)).await.unwrap();
    put(&w, row(2, "b", &half)).await.unwrap();
    assert_eq!(put(&w, row(2, "c", &[7; 300])).await.unwrap_err().kind(), Kind::Conflict);
}

pub(super) async fn cubbyhole_entry_is_sealed_to_its_token_and_path(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 1..3 {
        w.auth.commit(vec![AuthWrite::TokenInsert(token(n, None))]).await.unwrap();
        put(&w, row(n, "a", format!("a-plain-secret-{n}").as_bytes())).await.unwrap();
    }
    put(&w, row(1, "b", b"a-plain-secret-3")).await.unwrap();
    for (name, bytes) in fixture.files() {
        assert!(!bytes.windows(14).any(|part| part == b"a-plain-secret"), "{name}");
    }
    let moved = "UPDATE cubbyhole SET body = (SELECT other.body FROM cubbyhole other WHERE other.token = $1
        AND other.path = 'a') WHERE token = $2 AND path = 'a'";
    assert_eq!(fixture.execute(moved, &[&hash(2), &hash(1)]), 1);
    assert_eq!(w.auth.cubbyhole(hash(1), "a".to_owned()).await.err().unwrap().kind(), Kind::Internal);
    assert_eq!(read_body(&w, 1, "b").await.unwrap(), b"a-plain-secret-3");
}
