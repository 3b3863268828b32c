//! SQL of cubbyholes.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{SqliteError, prepare};
use crate::auth::store::{CubbyholeRow, TokenHash};
use crate::storage::statements::{conflict, cubbyhole as sql};

const SELECT_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1";

pub(super) fn put(db: &Connection, row: &CubbyholeRow) -> Result<(), SqliteError> {
    if !prepare(db, SELECT_TOKEN)?.exists([row.token])? {
        return Err(SqliteError::Conflict(conflict::TOKEN_GONE));
    }
    let size = |size: &Row<'_>| Ok((size.get(0)?, size.get(1)?));
    if row.exceeds_limit(prepare(db, sql::SIZE)?.query_row(params![row.token, row.path], size)?) {
        return Err(SqliteError::Conflict(conflict::CUBBYHOLE_FULL));
    }
    prepare(db, sql::PUT)?.execute(params![row.token, row.path, row.body])?;
    Ok(())
}

pub(super) fn delete(db: &Connection, token: &TokenHash, path: &str) -> rusqlite::Result<()> {
    prepare(db, sql::DELETE)?.execute(params![token, path]).map(drop)
}

pub(super) fn get(db: &Connection, token: TokenHash, path: String) -> rusqlite::Result<Option<CubbyholeRow>> {
    let body = prepare(db, sql::GET)?.query_row(params![token, path], |row| row.get(0)).optional()?;
    Ok(body.map(|body| CubbyholeRow { token, path, body }))
}

pub(super) fn paths(db: &Connection, token: &TokenHash) -> rusqlite::Result<Vec<String>> {
    prepare(db, sql::PATHS)?.query_map([token], |row| row.get(0))?.collect()
}
