//! Reads of a store as a whole, for its check and its copy into another store. Each query has its own session.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;

use crate::error::{Error, Kind, Result};
use crate::projects::store::{ProjectStore, SERVER_CALLER};
use crate::sql::{SqlError, SqlRow, SqlValue, SqlWork};

/// Returns all rows of a query.
///
/// # Errors
/// `Unavailable` when the store cannot be read; `Internal` for an invalid query.
pub(super) async fn rows(store: &dyn ProjectStore, sql: &str, values: Vec<SqlValue>) -> Result<Vec<SqlRow>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let slot = Arc::clone(&found);
    let sql = sql.to_owned();
    let work: SqlWork = Arc::new(move |session| {
        let slot = Arc::clone(&slot);
        let sql = sql.clone();
        let values = values.clone();
        async move {
            let rows = session.query(&sql, &values).await?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = rows;
            Ok(())
        }
        .boxed_local()
    });
    store.read("scan", SERVER_CALLER, work).await.map_err(error)?;
    Ok(std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner)))
}

pub(super) fn error(failure: SqlError) -> Error {
    match failure {
        SqlError::Engine(error) => error,
        SqlError::Constraint(name) => Error::unavailable("storage: the read failed", format!("constraint {name}")),
        SqlError::Timeout => Error::new(Kind::Unavailable, "storage: the read took too long"),
        SqlError::SerializationConflict => {
            Error::new(Kind::Unavailable, "storage: the read conflicted with other transactions")
        }
        SqlError::Rejected => Error::internal("a read that refused"),
    }
}
