//! The installation's own facts: its id and its wrapped data keys.

use rusqlite::{Connection, params};

use super::{Failure, prepared};
use crate::storage::backend::{Fact, Outcome};

pub(super) fn insert(db: &Connection, name: &str, value: &[u8]) -> Result<Outcome, Failure> {
    let mut insert = prepared(db, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")?;
    match insert.execute(params![name, value])? {
        0 => Err(Failure::Conflict("storage: another process changed the data keys first")),
        _ => Ok(Outcome::Done),
    }
}

pub(super) fn all(db: &Connection) -> rusqlite::Result<Vec<Fact>> {
    prepared(db, "SELECT name, value FROM meta ORDER BY name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}
