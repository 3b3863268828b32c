//! The PostgreSQL engine: any number of nodes on one database, all of them active for writes.
//!
//! One connection writes, driven by the commit actor's own runtime; a small pool reads, driven by the
//! runtime that opened the store. Batches of certificates and revocations are single statements over
//! UNNEST, which stands in the select list: in FROM the server would first fill a store of its own with
//! every column.
//!
//! Nodes agree by locks inside their transactions: a shared advisory lock per mount keeps it from being
//! dropped under a batch, the mount's row gives out revocation numbers, a token's row keeps its children
//! from outliving it. They follow each other's changes by a log (`changes`). Every connection has statement
//! and lock timeouts, and every use of one has a deadline, so that a server that is gone or hangs is
//! `Unavailable` and never a wait without end; the next write or read connects again.
//!
//! Refuses: a server whose durability is off, a read-only one, a schema of a newer program, TLS (not
//! supported yet), and an unencrypted connection off this machine that was not asked for.

mod batch;
mod certificates;
mod changes;
mod connect;
mod crls;
mod documents;
#[cfg(test)]
mod fixture;
mod leases;
mod meta;
mod metadata;
mod mounts;
mod reader;
mod revocations;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod tidy;
mod tokens;
mod writer;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::error::{Error, Kind, Result};
pub use connect::PostgresUrl;
#[cfg(test)]
pub(super) use fixture::Postgres;
pub(super) use reader::Pool;
pub(super) use writer::Writer;

/// A connection with its prepared statements.
type Session = ClientWrapper;

/// Checks the server, brings its schema up to date, and returns the database's writer and its readers.
/// Reads are driven by the runtime that this is called on.
pub(super) async fn open(url: PostgresUrl) -> Result<(Writer, Pool)> {
    let mut session = connect::session(&url).await?;
    schema::migrate(&mut session).await?;
    let dropped_mounts = mounts::any_dropped(&session).await.map_err(|e| e.of_read())?;
    let node = node_id();
    let reader = Pool::new(&url, node)?;
    Ok((Writer::new(url, node, dropped_mounts), reader))
}

/// Another number for every process that opens a database, never 0: the change log names writers by it.
fn node_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}

/// Why something was not stored or read.
enum Failure {
    /// A certificate's serial is taken.
    SerialTaken,
    /// What the unit builds on has changed.
    Conflict(&'static str),
    /// A stored value is not one of ours.
    Unreadable(&'static str),
    /// The engine failed.
    Engine(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    fn code(&self) -> Option<&SqlState> {
        if let Self::Engine(error) = self { error.code() } else { None }
    }

    /// Two transactions got in each other's way: the same again will do.
    fn is_clash(&self) -> bool {
        matches!(self.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
    }

    /// The connection is gone.
    fn is_gone(&self) -> bool {
        let Self::Engine(error) = self else { return false };
        match error.as_db_error() {
            Some(answer) => ends_connection(answer.code()),
            None => {
                error.is_closed() || std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
            }
        }
    }

    /// It came of what one unit holds, so that other units may fare better without it: a condition that
    /// does not hold, a value that the engine does not take (classes 22, 23 and 54), a lock that another
    /// node keeps.
    fn is_of_one_unit(&self) -> bool {
        match self {
            Self::SerialTaken | Self::Conflict(_) => true,
            Self::Unreadable(_) => false,
            Self::Engine(_) => self.code().is_some_and(|code| {
                is_value(code) || code.code().starts_with("23") || *code == SqlState::LOCK_NOT_AVAILABLE
            }),
        }
    }

    fn of_read(self) -> Error {
        self.public("storage: the read failed")
    }

    fn of_write(self) -> Error {
        self.public("storage: the write failed")
    }

    fn public(self, text: &'static str) -> Error {
        match self {
            Self::SerialTaken => Error::new(Kind::Conflict, "storage: the serial is taken"),
            Self::Conflict(text) => Error::new(Kind::Conflict, text),
            Self::Unreadable(what) => Error::unavailable(text, what),
            Self::Engine(error) if error.code().is_some_and(is_value) => {
                Error::invalid("storage: a value is too long, or holds a character that the database cannot keep")
            }
            Self::Engine(error) => Error::unavailable(text, error),
        }
    }
}

/// Classes 22 (data exception, such as NUL in a text) and 54 (program limit exceeded).
fn is_value(code: &SqlState) -> bool {
    code.code().starts_with("22") || code.code().starts_with("54")
}

/// Classes 08 (connection exception) and 57P (the server ends the session), and a transaction that was
/// left open for too long.
fn ends_connection(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || code.code().starts_with("57P")
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

async fn execute(db: &Session, sql: &str, parameters: Parameters<'_>) -> Result<u64, Failure> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.execute(&statement, parameters).await?)
}

/// Inserts rows of which none may be there yet. A plain INSERT: with ON CONFLICT every row would be looked
/// for first and logged twice, and what is taken is as good as never.
async fn insert(db: &Session, sql: &str, parameters: Parameters<'_>) -> Result<(), Failure> {
    match execute(db, sql, parameters).await {
        Err(failure) if failure.code() == Some(&SqlState::UNIQUE_VIOLATION) => Err(Failure::SerialTaken),
        result => result.map(drop),
    }
}

async fn rows(db: &Session, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Failure> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.query(&statement, parameters).await?)
}

async fn row(db: &Session, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, Failure> {
    let statement = db.prepare_cached(sql).await?;
    Ok(db.query_opt(&statement, parameters).await?)
}

async fn exists(db: &Session, sql: &str, parameters: Parameters<'_>) -> Result<bool, Failure> {
    Ok(row(db, sql, parameters).await?.is_some())
}
