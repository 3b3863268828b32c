//! Helpers for the SQL of this engine: statements, failures, and column types.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::ToSql;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::storage::backend::from_micros;
use crate::storage::engine::TableError;
use crate::x509::serial::Serial;

/// A connection with a cache of its prepared statements.
pub(super) type PostgresClient = ClientWrapper;

pub(super) type PostgresError = TableError<tokio_postgres::Error>;

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Engine(error)
    }
}

impl PostgresError {
    /// Returns the SQLSTATE code, if the server reported the failure.
    pub(super) fn code(&self) -> Option<&SqlState> {
        if let Self::Engine(error) = self { error.code() } else { None }
    }

    /// Returns the server's error report, if the server reported the failure.
    pub(super) fn server_error(&self) -> Option<&DbError> {
        if let Self::Engine(error) = self { error.as_db_error() } else { None }
    }

    /// Returns `true` for a conflict between transactions, after which the transaction can be retried.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
    }

    /// Returns `true` if the failure means that the connection is lost.
    pub(super) fn is_connection_lost(&self) -> bool {
        let Self::Engine(error) = self else { return false };
        match error.as_db_error() {
            Some(answer) => ends_connection(answer.code()),
            None => {
                error.is_closed() || std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
            }
        }
    }

    /// Returns `true` if one unit caused the failure, so that the other units may succeed without it: a violated
    /// condition, an invalid value (classes 22, 23 and 54), or a lock that another node holds. With pipelining, the
    /// failure of a later statement of the same unit may be reported first.
    pub(super) fn concerns_one_unit(&self) -> bool {
        match self {
            Self::SerialTaken | Self::Conflict(_) => true,
            Self::Unreadable(_) => false,
            Self::Engine(_) => self.code().is_some_and(|code| {
                is_value_error(code)
                    || code.code().starts_with("23")
                    || matches!(*code, SqlState::LOCK_NOT_AVAILABLE | SqlState::IN_FAILED_SQL_TRANSACTION)
            }),
        }
    }

    pub(super) fn into_read_error(self) -> Error {
        self.into_public_error("storage: the read failed")
    }

    pub(super) fn into_write_error(self) -> Error {
        self.into_public_error("storage: the write failed")
    }

    pub(super) fn into_public_error(self, text: &'static str) -> Error {
        if self.code().is_some_and(is_value_error) {
            return Error::invalid(
                "storage: a value is too long, or contains a character that the database cannot store",
            );
        }
        self.into_error(text)
    }
}

/// Returns the server's message, if the server reported the error. Omits the detail of the report, which contains
/// values.
pub(crate) fn server_message<'e>(cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e str> {
    cause.downcast_ref::<DbError>().map(DbError::message)
}

/// Returns `true` for codes of classes 22 (data exception, such as NUL in a text) and 54 (program limit exceeded).
fn is_value_error(code: &SqlState) -> bool {
    code.code().starts_with("22") || code.code().starts_with("54")
}

/// Returns `true` for codes after which the connection cannot be used: classes 08 (connection exception) and 57P (the
/// server ends the session), a timeout of an idle transaction, and a server that no longer accepts writes.
fn ends_connection(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || code.code().starts_with("57P")
        || matches!(*code, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT | SqlState::READ_ONLY_SQL_TRANSACTION)
}

pub(super) type SqlParameters<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) async fn execute(
    db: &PostgresClient,
    sql: &str,
    parameters: SqlParameters<'_>,
) -> Result<u64, PostgresError> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.execute(&statement, parameters).await?)
}

/// Inserts rows that must be new. The SQL has no ON CONFLICT clause, because conflicts are rare. With the clause, the
/// server would look up every row first and write it to the log twice.
pub(super) async fn insert(db: &PostgresClient, sql: &str, parameters: SqlParameters<'_>) -> Result<(), PostgresError> {
    match execute(db, sql, parameters).await {
        Err(failure) if failure.code() == Some(&SqlState::UNIQUE_VIOLATION) => Err(PostgresError::SerialTaken),
        result => result.map(drop),
    }
}

pub(super) async fn rows(
    db: &PostgresClient,
    sql: &str,
    parameters: SqlParameters<'_>,
) -> Result<Vec<Row>, PostgresError> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.query(&statement, parameters).await?)
}

pub(super) async fn row(
    db: &PostgresClient,
    sql: &str,
    parameters: SqlParameters<'_>,
) -> Result<Option<Row>, PostgresError> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.query_opt(&statement, parameters).await?)
}

pub(super) async fn exists(
    db: &PostgresClient,
    sql: &str,
    parameters: SqlParameters<'_>,
) -> Result<bool, PostgresError> {
    Ok(row(db, sql, parameters).await?.is_some())
}

/// Returns one value of each row, as an array parameter for UNNEST.
pub(super) fn column<'a, R, T>(all: &[&'a R], of: impl Fn(&'a R) -> T) -> Vec<T> {
    all.iter().map(|row| of(row)).collect()
}

pub(super) fn read_serial(row: &Row, column: usize) -> Result<Serial, PostgresError> {
    Serial::from_octets(row.try_get(column)?)
        .map_err(|_| PostgresError::Unreadable("a stored serial number is invalid"))
}

pub(super) fn read_time(micros: i64) -> Result<Time, PostgresError> {
    from_micros(micros).ok_or(PostgresError::Unreadable("a stored time is out of range"))
}
