//! Installation facts: the installation id, the wrapped keys, and their usage.

use rusqlite::{Connection, params};

use super::query::{SqliteError, prepare};
use crate::storage::backend::{Fact, FactWrite};
use crate::storage::statements::{conflict, meta as sql};

pub(super) fn write(db: &Connection, fact: &FactWrite) -> Result<(), SqliteError> {
    let FactWrite { name, expected, value } = fact;
    let holds = match (expected, value.as_ref().or(expected.as_ref())) {
        (None, Some(value)) => prepare(db, sql::INSERT)?.execute(params![name, value])? == 1,
        (Some(expected), Some(value)) => prepare(db, sql::UPDATE)?.execute(params![value, name, expected])? == 1,
        (_, None) => !prepare(db, sql::EXISTS)?.exists(params![name])?,
    };
    if holds { Ok(()) } else { Err(SqliteError::Conflict(conflict::DATA_KEYS_CHANGED)) }
}

pub(super) fn all(db: &Connection) -> rusqlite::Result<Vec<Fact>> {
    prepare(db, sql::LIST)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
