//! SQL of cubbyholes.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{Failure, prepared};
use crate::auth::store::{CubbyholeRow, TokenHash};
use crate::storage::statements::{conflict, cubbyhole as sql};

const TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1";

pub(super) fn put(db: &Connection, row: &CubbyholeRow) -> Result<(), Failure> {
    if !prepared(db, TOKEN)?.exists([row.token])? {
        return Err(Failure::Conflict(conflict::TOKEN_GONE));
    }
    let size = |size: &Row<'_>| Ok((size.get(0)?, size.get(1)?));
    if row.is_too_much(prepared(db, sql::SIZE)?.query_row(params![row.token, row.path], size)?) {
        return Err(Failure::Conflict(conflict::CUBBYHOLE_FULL));
    }
    prepared(db, sql::PUT)?.execute(params![row.token, row.path, row.body])?;
    Ok(())
}

pub(super) fn delete(db: &Connection, token: &TokenHash, path: &str) -> rusqlite::Result<()> {
    prepared(db, sql::DELETE)?.execute(params![token, path]).map(drop)
}

pub(super) fn get(db: &Connection, token: TokenHash, path: String) -> rusqlite::Result<Option<CubbyholeRow>> {
    let body = prepared(db, sql::GET)?.query_row(params![token, path], |row| row.get(0)).optional()?;
    Ok(body.map(|body| CubbyholeRow { token, path, body }))
}

pub(super) fn paths(db: &Connection, token: &TokenHash) -> rusqlite::Result<Vec<String>> {
    prepared(db, sql::PATHS)?.query_map([token], |row| row.get(0))?.collect()
}
