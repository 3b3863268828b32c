//! SQL sessions of the store, for domains that write their own SQL.
//!
//! [`SqlWork`] is a function that runs inside one session. The same SQL serves PostgreSQL and SQLite: the embedded
//! engine rewrites `= ANY($n)` over a list, and ignores a row lock at the end of a statement (such as ` FOR KEY
//! SHARE`), because it has only one writer. Work on a writing session is one transaction. It may run several times
//! after serialization conflicts, so it must have no effect outside of its session.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::error::Error;

/// A column value of a row, or a parameter of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A boolean; rows of SQLite return it as [`SqlValue::Int`].
    Bool(bool),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of integers, as a parameter for `= ANY($n)`; never a column value.
    Ints(Vec<i64>),
    /// A list of texts, as a parameter for `= ANY($n)`; never a column value.
    Texts(Vec<String>),
    /// A list of byte strings, as a parameter for `= ANY($n)`; never a column value. The statement must not order,
    /// limit or aggregate, because SQLite runs it once for each byte string.
    ByteStrings(Vec<Vec<u8>>),
}

impl From<i64> for SqlValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for SqlValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for SqlValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for SqlValue {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl<const N: usize> From<[u8; N]> for SqlValue {
    fn from(value: [u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl From<Vec<i64>> for SqlValue {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<String>> for SqlValue {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl From<Time> for SqlValue {
    /// Converts a time to microseconds since the epoch, rounded down.
    fn from(at: Time) -> Self {
        // Years up to 9999 are at most 2.6e17 µs, within the range of i64.
        Self::Int(at.unix_timestamp_nanos().div_euclid(1000) as i64)
    }
}

impl<T: Into<Self>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a query result. Its columns are read from left to right.
#[derive(Debug)]
pub struct SqlRow(std::vec::IntoIter<SqlValue>);

impl SqlRow {
    /// Creates a row with these values.
    pub fn new(values: Vec<SqlValue>) -> Self {
        Self(values.into_iter())
    }

    /// Reads the next column as a raw value.
    ///
    /// # Errors
    /// `Engine` when there are no more columns.
    pub fn value(&mut self) -> Result<SqlValue, SqlError> {
        self.0.next().ok_or_else(|| unreadable_column_error("a database row has fewer columns than expected"))
    }

    /// Reads the next column as `T`.
    ///
    /// # Errors
    /// `Engine` when there are no more columns, or the column has another type.
    pub fn get<T: FromColumn>(&mut self) -> Result<T, SqlError> {
        T::read(self.value()?).ok_or_else(|| unreadable_column_error("a database column has an unexpected type"))
    }
}

fn unreadable_column_error(what: &'static str) -> SqlError {
    SqlError::Engine(Error::internal(what))
}

/// A type to which a column value converts.
pub trait FromColumn: Sized {
    /// Converts a value; `None` if it has another type.
    fn read(value: SqlValue) -> Option<Self>;
}

impl FromColumn for i64 {
    fn read(value: SqlValue) -> Option<Self> {
        if let SqlValue::Int(value) = value { Some(value) } else { None }
    }
}

impl FromColumn for bool {
    fn read(value: SqlValue) -> Option<Self> {
        match value {
            SqlValue::Bool(value) => Some(value),
            SqlValue::Int(value) => Some(value != 0),
            _ => None,
        }
    }
}

impl FromColumn for String {
    fn read(value: SqlValue) -> Option<Self> {
        if let SqlValue::Text(value) = value { Some(value) } else { None }
    }
}

impl FromColumn for Vec<u8> {
    fn read(value: SqlValue) -> Option<Self> {
        if let SqlValue::Bytes(value) = value { Some(value) } else { None }
    }
}

impl FromColumn for u32 {
    fn read(value: SqlValue) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl FromColumn for u64 {
    fn read(value: SqlValue) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl<const N: usize> FromColumn for [u8; N] {
    fn read(value: SqlValue) -> Option<Self> {
        Vec::<u8>::read(value)?.try_into().ok()
    }
}

impl FromColumn for Time {
    fn read(value: SqlValue) -> Option<Self> {
        Self::from_unix_timestamp_nanos(i128::from(i64::read(value)?) * 1000).ok()
    }
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn read(value: SqlValue) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}

/// The reason why the work of a session failed.
#[derive(Debug)]
pub enum SqlError {
    /// The work rejected the request and recorded the reason itself. The transaction is rolled back.
    Rejected,
    /// A constraint was violated. The text is the constraint's name in the schema, or `foreign_key` if the engine does
    /// not report the name.
    Constraint(String),
    /// A statement exceeded its time limit.
    Timeout,
    /// A serialization conflict with other transactions persisted after all retries.
    SerializationConflict,
    /// The database engine failed or cannot be reached.
    Engine(Error),
}

/// A connection on which the work of a domain runs its statements.
pub trait SqlSession {
    /// Runs a query and returns all rows.
    fn query<'s>(
        &'s mut self,
        sql: &'s str,
        values: &'s [SqlValue],
    ) -> LocalBoxFuture<'s, Result<Vec<SqlRow>, SqlError>>;

    /// Makes the database plan later statements of this session for their actual parameter values, instead of once for
    /// all values. This speeds up list queries, because the selectivity of their values differs by orders of magnitude.
    fn use_custom_plans(&mut self);

    /// Runs a statement and returns the number of changed rows.
    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [SqlValue]) -> LocalBoxFuture<'s, Result<u64, SqlError>>;
}

/// A function that runs statements in a session. It may run several times.
pub type SqlWork =
    Arc<dyn for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<(), SqlError>> + Send + Sync>;

/// The result of the work of a session, with the way in which its transaction ends.
pub enum SessionEnd<T> {
    /// The transaction is committed.
    Commit(T),
    /// The transaction is rolled back, and the session ends with [`SqlError::Rejected`].
    RollBack(T),
}

/// Receives the result of [`SqlWork`], because the function itself returns no result.
pub struct SessionResult<T>(Arc<Mutex<Option<T>>>);

impl<T> SessionResult<T> {
    /// Returns the result of the last run of the work.
    ///
    /// # Errors
    /// `Internal` if the work did not run.
    pub fn take(&self) -> Result<T, Error> {
        let result = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.ok_or_else(|| Error::internal("defect: the work of a SQL session did not run"))
    }
}

/// Wraps a function as [`SqlWork`]. Returns the work, and the object that will receive its result.
pub fn capture_result<T: Send + 'static>(
    work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<SessionEnd<T>, SqlError>>
    + Send
    + Sync
    + 'static,
) -> (SqlWork, SessionResult<T>) {
    let slot = Arc::new(Mutex::new(None));
    let result = SessionResult(Arc::clone(&slot));
    let captured: SqlWork = Arc::new(move |session| {
        let work = work(session);
        let slot = Arc::clone(&slot);
        async move {
            let (result, end) = match work.await? {
                SessionEnd::Commit(result) => (result, Ok(())),
                SessionEnd::RollBack(result) => (result, Err(SqlError::Rejected)),
            };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            end
        }
        .boxed_local()
    });
    (captured, result)
}
