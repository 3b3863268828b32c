//! SQL of cubbyholes.

use super::query::{PostgresClient, PostgresError, execute, exists, row, rows};
use crate::auth::store::{CubbyholeRow, TokenHash};
use crate::storage::statements::{conflict, cubbyhole as sql};

/// Locks the token, so that it cannot end, and the size includes concurrent writes of other nodes.
const LOCK_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 FOR NO KEY UPDATE";

pub(super) async fn put(db: &PostgresClient, new: &CubbyholeRow) -> Result<(), PostgresError> {
    let token = &new.token[..];
    if !exists(db, LOCK_TOKEN, &[&token]).await? {
        return Err(PostgresError::Conflict(conflict::TOKEN_GONE));
    }
    let size =
        row(db, sql::SIZE, &[&token, &new.path]).await?.ok_or(PostgresError::Unreadable("the size of a cubbyhole"))?;
    if new.exceeds_limit((size.try_get(0)?, size.try_get(1)?)) {
        return Err(PostgresError::Conflict(conflict::CUBBYHOLE_FULL));
    }
    execute(db, sql::PUT, &[&token, &new.path, &new.body]).await.map(drop)
}

pub(super) async fn delete(db: &PostgresClient, token: &TokenHash, path: &str) -> Result<(), PostgresError> {
    execute(db, sql::DELETE, &[&&token[..], &path]).await.map(drop)
}

pub(super) async fn get(
    db: &PostgresClient,
    token: TokenHash,
    path: String,
) -> Result<Option<CubbyholeRow>, PostgresError> {
    let Some(found) = row(db, sql::GET, &[&&token[..], &path]).await? else { return Ok(None) };
    Ok(Some(CubbyholeRow { token, path, body: found.try_get(0)? }))
}

pub(super) async fn paths(db: &PostgresClient, token: TokenHash) -> Result<Vec<String>, PostgresError> {
    let found = rows(db, sql::PATHS, &[&&token[..]]).await?;
    found.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
