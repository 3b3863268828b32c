//! SQL of published CRLs.

use rusqlite::{Connection, params};

use super::query::{SqliteError, prepare};
use crate::documents::MountId;
use crate::pki::store::CrlRow;
use crate::storage::statements::{conflict, crls as sql};

pub(super) fn publish(db: &Connection, row: &CrlRow) -> Result<(), SqliteError> {
    let stored = prepare(db, sql::PUBLISH)?.execute(params![
        row.mount.0,
        row.group,
        row.number as i64,
        row.covers as i64,
        row.this_update,
        row.next_update,
        row.signature,
    ])?;
    if stored == 0 { Err(SqliteError::Conflict(conflict::CRL_PUBLISHED)) } else { Ok(()) }
}

pub(super) fn list(db: &Connection, mount: MountId) -> rusqlite::Result<Vec<CrlRow>> {
    prepare(db, sql::LIST)?
        .query_map([mount.0], |row| {
            Ok(CrlRow {
                mount,
                group: row.get(0)?,
                number: row.get::<_, i64>(1)? as u64,
                covers: row.get::<_, i64>(2)? as u64,
                this_update: row.get(3)?,
                next_update: row.get(4)?,
                signature: row.get(5)?,
            })
        })?
        .collect()
}
