//! SQL sessions of the store, for domains that write their own SQL.
//!
//! A unit of [`Work`] runs inside one session; the same SQL serves PostgreSQL and SQLite. The embedded engine rewrites
//! `= ANY($n)` over a list, and ignores ` FOR UPDATE`, ` FOR UPDATE OF table` and ` FOR SHARE` at the end of a
//! statement, because it has only one writer. Work on a writing session is one transaction. It may run several times
//! after serialization conflicts, so it must have no effect outside of its session.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use crate::error::Error;

/// A value of a row or a statement parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A boolean; rows of SQLite return it as [`Value::Int`].
    Bool(bool),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of integers, for `= ANY($n)`; never in a row.
    Ints(Vec<i64>),
    /// A list of texts, for `= ANY($n)`; never in a row.
    Texts(Vec<String>),
    /// A list of byte strings, for PostgreSQL only; never in a row.
    Octets(Vec<Vec<u8>>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl From<Vec<i64>> for Value {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row, read from left to right.
#[derive(Debug)]
pub struct Row(std::vec::IntoIter<Value>);

impl Row {
    /// Creates a row with these values.
    pub fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// Reads the next column as a raw value.
    ///
    /// # Errors
    /// `Engine` when there are no more columns.
    pub fn value(&mut self) -> Result<Value, Failure> {
        self.0.next().ok_or_else(|| unreadable("a column is missing"))
    }

    /// Reads the next column as `T`.
    ///
    /// # Errors
    /// `Engine` when there are no more columns, or the column has another type.
    pub fn get<T: Column>(&mut self) -> Result<T, Failure> {
        T::read(self.value()?).ok_or_else(|| unreadable("a column is of another kind"))
    }
}

fn unreadable(what: &'static str) -> Failure {
    Failure::Engine(Error::internal(what))
}

/// A type that columns can be read as.
pub trait Column: Sized {
    /// Converts a value; `None` if it has another type.
    fn read(value: Value) -> Option<Self>;
}

impl Column for i64 {
    fn read(value: Value) -> Option<Self> {
        if let Value::Int(value) = value { Some(value) } else { None }
    }
}

impl Column for bool {
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(value),
            Value::Int(value) => Some(value != 0),
            _ => None,
        }
    }
}

impl Column for String {
    fn read(value: Value) -> Option<Self> {
        if let Value::Text(value) = value { Some(value) } else { None }
    }
}

impl Column for Vec<u8> {
    fn read(value: Value) -> Option<Self> {
        if let Value::Bytes(value) = value { Some(value) } else { None }
    }
}

impl<T: Column> Column for Option<T> {
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}

/// The reason why work on a session ended early.
#[derive(Debug)]
pub enum Failure {
    /// The work itself rejected the request and recorded the reason. Nothing is stored.
    Refused,
    /// A violated constraint, by its name in the schema, or `foreign_key` where the engine does not name it.
    Constraint(String),
    /// A statement that exceeded its time limit.
    TooLong,
    /// A serialization conflict that persisted after the store's retries.
    Clash,
    /// A failed or unreachable engine.
    Engine(Error),
}

/// A session of the store.
pub trait Session {
    /// Runs a query and returns all rows.
    fn query<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<Vec<Row>, Failure>>;

    /// Plans the session's later statements for their actual values instead of once for all values. Worth it for lists,
    /// whose selectivity differs by orders of magnitude.
    fn fit(&mut self);

    /// Runs a statement and returns the number of changed rows.
    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<u64, Failure>>;
}

/// A unit of work for one session.
pub type Work = Arc<dyn for<'s> Fn(&'s mut dyn Session) -> LocalBoxFuture<'s, Result<(), Failure>> + Send + Sync>;
