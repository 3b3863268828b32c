//! The count of tokens that never expire. Each engine implements all other reads and writes of tokens itself.

use super::{TableConnection, TableError, TableResult, map_row};
use crate::sql::SqlRow;
use crate::storage::statements::tokens as sql;

pub(crate) async fn count_never_expiring<C: TableConnection>(db: &C) -> TableResult<C, u64> {
    map_row(db, sql::COUNT_NEVER_EXPIRING, &[], SqlRow::get)
        .await?
        .ok_or(TableError::Unreadable("the query for the number of tokens without expiry returned no row"))
}
