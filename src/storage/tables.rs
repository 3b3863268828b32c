//! Reads and writes of tables, with the same code for both engines. `statements` has the SQL.
//!
//! Lists and row locks in the SQL are as in [`crate::sql`]. SQLite runs a statement at once, so work on its connection
//! never waits.

pub(super) mod cubbyhole;
pub(super) mod documents;
pub(super) mod entities;
pub(super) mod facts;
pub(super) mod secret_ids;

use futures_util::future::BoxFuture;

use crate::auth::store::AuthOutcome;
use crate::error::{Error, Kind};
use crate::sql::{FromColumn, SqlError, SqlRow, SqlValue};

/// The reason why a read or a unit failed. `E` is the error of the engine.
pub(super) enum TableError<E> {
    /// A serial number or an idempotency key is taken.
    SerialTaken,
    /// A precondition of the unit does not hold.
    Conflict(&'static str),
    /// A stored value is invalid.
    Unreadable(&'static str),
    Engine(E),
}

impl<E> From<SqlError> for TableError<E> {
    /// Converts the error of [`SqlRow::get`].
    fn from(_: SqlError) -> Self {
        Self::Unreadable("a stored column")
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> TableError<E> {
    /// Converts to the error for callers; `failed` is its text if the engine failed.
    pub(super) fn into_error(self, failed: &'static str) -> Error {
        match self {
            Self::SerialTaken => Error::new(Kind::Conflict, "storage: the serial is taken"),
            Self::Conflict(text) => Error::new(Kind::Conflict, text),
            Self::Unreadable(what) => Error::unavailable(failed, what),
            Self::Engine(error) => Error::unavailable(failed, error),
        }
    }
}

/// The result of a read or a write on a connection `C`.
pub(super) type TableResult<C, T> = Result<T, TableError<<C as TableConnection>::EngineError>>;

/// A connection of an engine.
pub(super) trait TableConnection: Sized {
    type EngineError;

    /// Runs a query and returns all rows.
    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>>;

    /// Runs a statement and returns the number of changed rows.
    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>>;
}

/// Returns the first row of a query, if any.
async fn row<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Option<SqlRow>> {
    Ok(db.rows(sql, values).await?.into_iter().next())
}

/// Returns the first column of all rows of a query.
async fn column<C: TableConnection, T: FromColumn>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Vec<T>> {
    let found = db.rows(sql, values).await?;
    Ok(found.into_iter().map(|mut row| row.get()).collect::<Result<_, _>>()?)
}

/// Returns `true` if a query finds a row.
async fn exists<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, bool> {
    Ok(!db.rows(sql, values).await?.is_empty())
}

/// The outcome of a write to a row that may be absent.
pub(super) fn done_or_absent(found: bool) -> AuthOutcome {
    if found { AuthOutcome::Done } else { AuthOutcome::Absent }
}

fn swept_outcome(rows: u64) -> AuthOutcome {
    AuthOutcome::Swept(u32::try_from(rows).unwrap_or(u32::MAX))
}
