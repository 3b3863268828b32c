//! Writes and reads of cubbyholes, the private entries of each token.

use super::{TableConnection, TableError, TableResult, column, exists, row};
use crate::auth::store::{AuthOutcome, CubbyholeRow, TokenHash};
use crate::storage::statements::{conflict, cubbyhole as sql};

pub(crate) async fn put<C: TableConnection>(db: &C, new: &CubbyholeRow) -> TableResult<C, AuthOutcome> {
    let CubbyholeRow { token, path, body } = new.clone();
    if !exists(db, sql::LOCK_TOKEN, &[token.to_vec().into()]).await? {
        return Err(TableError::Conflict(conflict::TOKEN_GONE));
    }
    let Some(mut size) = row(db, sql::SIZE, &[token.to_vec().into(), path.clone().into()]).await? else {
        return Err(TableError::Unreadable("the query for the size of a cubbyhole returned no row"));
    };
    if new.exceeds_limit((size.get()?, size.get()?)) {
        return Err(TableError::Conflict(conflict::CUBBYHOLE_FULL));
    }
    db.execute(sql::PUT, &[token.to_vec().into(), path.into(), body.into()]).await?;
    Ok(AuthOutcome::Done)
}

pub(crate) async fn delete<C: TableConnection>(db: &C, token: &TokenHash, path: &str) -> TableResult<C, AuthOutcome> {
    db.execute(sql::DELETE, &[token.to_vec().into(), path.into()]).await?;
    Ok(AuthOutcome::Done)
}

pub(crate) async fn get<C: TableConnection>(
    db: &C,
    token: TokenHash,
    path: String,
) -> TableResult<C, Option<CubbyholeRow>> {
    let found = row(db, sql::GET, &[token.to_vec().into(), path.clone().into()]).await?;
    let Some(mut found) = found else { return Ok(None) };
    Ok(Some(CubbyholeRow { token, path, body: found.get()? }))
}

pub(crate) async fn paths<C: TableConnection>(db: &C, token: TokenHash) -> TableResult<C, Vec<String>> {
    column(db, sql::PATHS, &[token.to_vec().into()]).await
}
