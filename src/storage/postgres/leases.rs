//! SQL of leases, and of ended tokens with leases.

use tokio_postgres::Row;

use super::query::{PostgresClient, PostgresError, count, execute, exists, insert, row, rows, serial};
use crate::auth::store::TokenHash;
use crate::documents::MountId;
use crate::pki::store::{LeaseRange, LeaseRow};
use crate::storage::statements::leases as sql;

/// Locks a live token until its lease is committed: a concurrent revocation or last use waits and finds the lease.
const LOCK_LIVE_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 AND (uses IS NULL OR uses > 0) FOR SHARE";
const INSERT: &str = "INSERT INTO lease (id, mount, serial, token, issued_at, expires_at)
    SELECT UNNEST($1::TEXT[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[]), UNNEST($4::BYTEA[]), UNNEST($5::BIGINT[]),
        UNNEST($6::BIGINT[])";
const MARK_ENDING: &str = "UPDATE lease SET ending = 1 WHERE id = ANY($1) AND ending = 0";
const DELETE: &str = "DELETE FROM lease WHERE id = ANY($1)";
const INSERT_ENDED_TOKENS: &str = "INSERT INTO ended_token (hash)
    SELECT gone.hash FROM UNNEST($1::BYTEA[]) AS gone (hash)
    WHERE EXISTS (SELECT 1 FROM lease WHERE lease.token = gone.hash AND lease.ending = 0)
    ON CONFLICT (hash) DO NOTHING";

/// Returns `true` if a token is live, and locks it until the end of the transaction.
pub(super) async fn lock_live_token(db: &PostgresClient, token: &TokenHash) -> Result<bool, PostgresError> {
    exists(db, LOCK_LIVE_TOKEN, &[&&token[..]]).await
}

/// Inserts all rows in one statement. `SerialTaken` if a serial is taken; the caller must then roll back to its
/// savepoint or the whole transaction. The tokens must be locked.
pub(super) async fn insert_all(db: &PostgresClient, all: &[&LeaseRow]) -> Result<(), PostgresError> {
    fn column<'a, T>(all: &[&'a LeaseRow], of: impl Fn(&'a LeaseRow) -> T) -> Vec<T> {
        all.iter().map(|row| of(row)).collect()
    }
    insert(
        db,
        INSERT,
        &[
            &column(all, |row| row.id.as_str()),
            &column(all, |row| row.mount.0),
            &column(all, |row| row.serial.octets()),
            &column(all, |row| &row.token[..]),
            &column(all, |row| row.issued_at),
            &column(all, |row| row.expires_at),
        ],
    )
    .await
}

pub(super) async fn mark(db: &PostgresClient, ids: &[String]) -> Result<u32, PostgresError> {
    execute(db, MARK_ENDING, &[&ids]).await.map(count)
}

pub(super) async fn delete(db: &PostgresClient, ids: &[String]) -> Result<u32, PostgresError> {
    execute(db, DELETE, &[&ids]).await.map(count)
}

/// Records those of these tokens that ended while they had leases.
pub(super) async fn record_ended_tokens(db: &PostgresClient, hashes: &[&[u8]]) -> Result<(), PostgresError> {
    execute(db, INSERT_ENDED_TOKENS, &[&hashes]).await.map(drop)
}

pub(super) async fn mark_ended(db: &PostgresClient, limit: u32) -> Result<u32, PostgresError> {
    let marked = count(execute(db, sql::MARK_ENDED, &[&i64::from(limit)]).await?);
    if marked < limit {
        execute(db, sql::FORGET_ENDED, &[]).await?;
    }
    Ok(marked)
}

pub(super) async fn sweep(db: &PostgresClient, now: i64, limit: u32) -> Result<u32, PostgresError> {
    execute(db, sql::SWEEP, &[&now, &i64::from(limit)]).await.map(count)
}

pub(super) async fn get(db: &PostgresClient, id: &str) -> Result<Option<LeaseRow>, PostgresError> {
    row(db, sql::GET, &[&id]).await?.as_ref().map(read).transpose()
}

pub(super) async fn ids(db: &PostgresClient, range: &LeaseRange, limit: u32) -> Result<Vec<String>, PostgresError> {
    let mount = range.mount.map(|mount| mount.0);
    let without = range.without_text();
    let found = rows(db, sql::IDS, &[&range.after, &range.below, &mount, &without, &i64::from(limit)]).await?;
    found.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn ending(
    db: &PostgresClient,
    after: &str,
    below: &str,
    limit: u32,
) -> Result<Vec<LeaseRow>, PostgresError> {
    rows(db, sql::ENDING, &[&after, &below, &i64::from(limit)]).await?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<LeaseRow, PostgresError> {
    let token = row.try_get::<_, &[u8]>(3)?.try_into().map_err(|_| PostgresError::Unreadable("a stored token hash"))?;
    Ok(LeaseRow {
        id: row.try_get(0)?,
        mount: MountId(row.try_get(1)?),
        serial: serial(row, 2)?,
        token,
        issued_at: row.try_get(4)?,
        expires_at: row.try_get(5)?,
    })
}
