//! Queries for tasks that read a whole store: its check (`verify`), and its copy into another store (`transfer`). Each
//! query runs in its own session.

use futures_util::FutureExt as _;

use crate::error::{Error, Kind, Result};
use crate::projects::store::{ProjectStore, SERVER_CALLER, SessionAccess};
use crate::sql::{SessionEnd, SqlError, SqlRow, SqlValue, capture_result};

/// Runs a query and returns all rows.
///
/// # Errors
/// `Unavailable` when the store cannot be read; `Internal` for an invalid query.
pub(super) async fn query_rows(store: &dyn ProjectStore, sql: &str, values: Vec<SqlValue>) -> Result<Vec<SqlRow>> {
    let sql = sql.to_owned();
    let (work, found) = capture_result(move |session| {
        let sql = sql.clone();
        let values = values.clone();
        async move { session.query(&sql, &values).await.map(SessionEnd::Commit) }.boxed_local()
    });
    store.run("scan", SessionAccess::Read(SERVER_CALLER), work).await.map_err(query_error)?;
    found.take()
}

pub(super) fn query_error(failure: SqlError) -> Error {
    match failure {
        SqlError::Engine(error) => error,
        SqlError::Constraint(name) => Error::unavailable("storage: the read failed", format!("constraint {name}")),
        SqlError::Timeout => Error::new(Kind::Unavailable, "storage: a query exceeded its time limit"),
        SqlError::SerializationConflict => {
            Error::new(Kind::Unavailable, "storage: a query conflicted with other transactions")
        }
        SqlError::Rejected => Error::internal("defect: a read-only query rejected its request"),
    }
}
