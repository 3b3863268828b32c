//! The installation's own facts: its id and its wrapped data keys.

use rusqlite::{Connection, params};

use super::{Failure, prepared};
use crate::storage::backend::{Fact, Outcome};
use crate::storage::sql::{conflict, meta as sql};

pub(super) fn insert(db: &Connection, name: &str, value: &[u8]) -> Result<Outcome, Failure> {
    let mut insert = prepared(db, sql::INSERT)?;
    match insert.execute(params![name, value])? {
        0 => Err(Failure::Conflict(conflict::DATA_KEYS_CHANGED)),
        _ => Ok(Outcome::Done),
    }
}

pub(super) fn all(db: &Connection) -> rusqlite::Result<Vec<Fact>> {
    prepared(db, sql::LIST)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
