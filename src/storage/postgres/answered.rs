//! SQL of requests that may be sent again.

use super::query::{Failure, Session, count, execute, row, serial};
use crate::pki::store::AnsweredRow;
use crate::storage::statements::answered as sql;

/// Another node's row of the same key is waited for.
const INSERT: &str = "INSERT INTO answered_request (key, request, serial, lease, expires_at)
    SELECT UNNEST($1::BYTEA[]), UNNEST($2::BYTEA[]), UNNEST($3::BYTEA[]), UNNEST($4::TEXT[]), UNNEST($5::BIGINT[])
    ON CONFLICT (key) DO UPDATE SET request = excluded.request, serial = excluded.serial, lease = excluded.lease,
        expires_at = excluded.expires_at
    WHERE answered_request.expires_at <= $6";

/// Stores all of them in one statement, or says that a key is taken, perhaps by another one of them: then the caller
/// must undo the transaction, or the part of it behind a savepoint.
pub(super) async fn insert_all(db: &Session, all: &[&AnsweredRow]) -> Result<(), Failure> {
    fn column<'a, T>(all: &[&'a AnsweredRow], of: impl Fn(&'a AnsweredRow) -> T) -> Vec<T> {
        all.iter().map(|row| of(row)).collect()
    }
    // In one order everywhere, so that two nodes do not wait for each other.
    let mut all = all.to_vec();
    all.sort_unstable_by_key(|row| row.key);
    if all.windows(2).any(|pair| pair[0].key == pair[1].key) {
        return Err(Failure::SerialTaken);
    }
    let answered_at = all.iter().map(|row| row.answered_at()).min();
    let stored = execute(
        db,
        INSERT,
        &[
            &column(&all, |row| &row.key[..]),
            &column(&all, |row| &row.request[..]),
            &column(&all, |row| row.serial.octets()),
            &column(&all, |row| row.lease.as_deref()),
            &column(&all, |row| row.expires_at),
            &answered_at,
        ],
    )
    .await?;
    if stored < all.len() as u64 { Err(Failure::SerialTaken) } else { Ok(()) }
}

pub(super) async fn sweep(db: &Session, now: i64, limit: u32) -> Result<u32, Failure> {
    execute(db, sql::SWEEP, &[&now, &i64::from(limit)]).await.map(count)
}

pub(super) async fn get(db: &Session, key: [u8; 32]) -> Result<Option<AnsweredRow>, Failure> {
    let Some(found) = row(db, sql::GET, &[&&key[..]]).await? else { return Ok(None) };
    let request: &[u8] = found.try_get(0)?;
    let request = request.try_into().map_err(|_| Failure::Unreadable("the hash of a stored request"))?;
    let (lease, expires_at) = (found.try_get(2)?, found.try_get(3)?);
    Ok(Some(AnsweredRow { key, request, serial: serial(&found, 1)?, lease, expires_at }))
}
