//! SQL of leases, and of ended tokens with leases.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{SqliteError, count, prepare, serial};
use crate::auth::store::TokenHash;
use crate::documents::MountId;
use crate::pki::store::{LeaseRange, LeaseRow};
use crate::storage::statements::{conflict, leases as sql};

const SELECT_LIVE_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 AND (uses IS NULL OR uses > 0)";
const INSERT: &str = "INSERT INTO lease (id, mount, serial, token, issued_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
const MARK_ENDING: &str = "UPDATE lease SET ending = 1 WHERE id = $1 AND ending = 0";
const DELETE: &str = "DELETE FROM lease WHERE id = $1";
const INSERT_ENDED_TOKEN: &str = "INSERT INTO ended_token (hash)
    SELECT $1 WHERE EXISTS (SELECT 1 FROM lease WHERE lease.token = $1 AND lease.ending = 0)
    ON CONFLICT (hash) DO NOTHING";

pub(super) fn insert(db: &Connection, row: &LeaseRow) -> Result<(), SqliteError> {
    // A lease created while its token is revoked would never be revoked.
    if !prepare(db, SELECT_LIVE_TOKEN)?.exists([row.token])? {
        return Err(SqliteError::Conflict(conflict::TOKEN_GONE));
    }
    let values = params![row.id, row.mount.0, row.serial.octets(), row.token, row.issued_at, row.expires_at];
    if prepare(db, INSERT)?.execute(values)? == 0 { Err(SqliteError::SerialTaken) } else { Ok(()) }
}

pub(super) fn mark(db: &Connection, ids: &[String]) -> rusqlite::Result<u32> {
    execute_each(db, MARK_ENDING, ids)
}

pub(super) fn delete(db: &Connection, ids: &[String]) -> rusqlite::Result<u32> {
    execute_each(db, DELETE, ids)
}

fn execute_each(db: &Connection, sql: &str, ids: &[String]) -> rusqlite::Result<u32> {
    let mut statement = prepare(db, sql)?;
    let mut changed = 0;
    for id in ids {
        changed += count(statement.execute([id])?);
    }
    Ok(changed)
}

/// Records a token that ended while it had leases.
pub(super) fn record_ended_token(db: &Connection, hash: &TokenHash) -> rusqlite::Result<()> {
    prepare(db, INSERT_ENDED_TOKEN)?.execute([hash]).map(drop)
}

pub(super) fn mark_ended(db: &Connection, limit: u32) -> rusqlite::Result<u32> {
    let marked = count(prepare(db, sql::MARK_ENDED)?.execute([limit])?);
    if marked < limit {
        prepare(db, sql::FORGET_ENDED)?.execute([])?;
    }
    Ok(marked)
}

pub(super) fn sweep(db: &Connection, now: i64, limit: u32) -> rusqlite::Result<u32> {
    prepare(db, sql::SWEEP)?.execute(params![now, limit]).map(count)
}

pub(super) fn get(db: &Connection, id: &str) -> rusqlite::Result<Option<LeaseRow>> {
    prepare(db, sql::GET)?.query_row([id], read).optional()
}

pub(super) fn ids(db: &Connection, range: &LeaseRange, limit: u32) -> rusqlite::Result<Vec<String>> {
    let mount = range.mount.map(|mount| mount.0);
    prepare(db, sql::IDS)?
        .query_map(params![range.after, range.below, mount, range.without_text(), limit], |row| row.get(0))?
        .collect()
}

pub(super) fn ending(db: &Connection, after: &str, below: &str, limit: u32) -> rusqlite::Result<Vec<LeaseRow>> {
    prepare(db, sql::ENDING)?.query_map(params![after, below, limit], read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<LeaseRow> {
    Ok(LeaseRow {
        id: row.get(0)?,
        mount: MountId(row.get(1)?),
        serial: serial(row, 2)?,
        token: row.get(3)?,
        issued_at: row.get(4)?,
        expires_at: row.get(5)?,
    })
}
