//! Helpers for the SQL of this engine: statements, failures, and column types.

use futures_util::FutureExt as _;
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, StatementStatus};

use crate::clock::Time;
use crate::error::Kind;
use crate::storage::backend::from_micros;
use crate::storage::engine::TableError;
use crate::x509::serial::Serial;

pub(super) type SqliteError = TableError<rusqlite::Error>;

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

/// Returns the result of a future of this engine. All of these futures are ready on the first poll.
pub(super) fn resolve_ready<T>(work: impl Future<Output = Result<T, SqliteError>>) -> Result<T, SqliteError> {
    work.now_or_never()
        .unwrap_or(Err(SqliteError::Unreadable("defect: work on a SQLite table waited for something else")))
}

pub(super) fn prepare<'c>(db: &'c Connection, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
    let statement = db.prepare_cached(sql)?;
    // SQLite numbers `$n` by its first appearance in the statement, PostgreSQL by `n`. Both agree only if the
    // parameters first appear in ascending order.
    debug_assert!(
        (1..=statement.parameter_count()).all(|i| statement.parameter_name(i) == Some(&format!("${i}"))),
        "parameters out of order: {sql}"
    );
    debug_assert_eq!(
        statement.get_status(StatementStatus::RePrepare),
        0,
        "SQLite prepares this statement again at each run: {sql}"
    );
    Ok(statement)
}

pub(super) fn read_serial(row: &Row<'_>, column: usize) -> rusqlite::Result<Serial> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Serial::from_octets(bytes).map_err(|e| {
        debug_assert_eq!(e.kind(), Kind::Invalid);
        rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(e))
    })
}

/// Reads a time from a column of epoch microseconds.
pub(super) fn read_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
    let micros = row.get(column)?;
    from_micros(micros).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, "a stored time is out of range".into())
    })
}
