//! The installation's own facts: its id and its wrapped data keys.

use rusqlite::{Connection, params};

use super::query::{Failure, prepared};
use crate::storage::backend::Fact;
use crate::storage::statements::{conflict, meta as sql};

pub(super) fn insert(db: &Connection, name: &str, value: &[u8]) -> Result<(), Failure> {
    let mut insert = prepared(db, sql::INSERT)?;
    match insert.execute(params![name, value])? {
        0 => Err(Failure::Conflict(conflict::DATA_KEYS_CHANGED)),
        _ => Ok(()),
    }
}

pub(super) fn all(db: &Connection) -> rusqlite::Result<Vec<Fact>> {
    prepared(db, sql::LIST)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
