//! A session of a relational store: SQL for both engines, spoken by a domain's own rules.
//!
//! A piece of [`Work`] runs inside one session of the store and speaks SQL to it, for domains whose rules and
//! rows belong together; one text serves both engines. What a text may use is what PostgreSQL and
//! SQLite share (`$1` numbered by first use, RETURNING, ON CONFLICT, `IS NOT DISTINCT FROM`), and two
//! forms that the embedded engine reads its own way: `= ANY($n)` over a list, and ` FOR UPDATE` at the end
//! of a text, or ` FOR UPDATE OF` and one of its tables, or ` FOR SHARE`, which mean nothing where there is one writer.
//! `CAST(sum(…) AS bigint)` for sums.
//!
//! Work on a writing session is one transaction: it is stored whole when it ends well, and not at all
//! otherwise. It may run more than once (two transactions got in each other's way), so it changes nothing
//! but its session.
//!
//! Named by the domains that work this way and by `storage`, which implements [`Session`]; refuses nothing by
//! itself.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use crate::error::Error;

/// A value of a row, or one that a text asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// A truth value; rows give it as 0 or 1.
    Bool(bool),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of whole numbers, for `= ANY($n)`; never in a row.
    Ints(Vec<i64>),
    /// A list of texts, for `= ANY($n)`; never in a row.
    Texts(Vec<String>),
    /// A list of bytes; never in a row, and for PostgreSQL alone.
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

/// One row, read from left to right.
#[derive(Debug)]
pub struct Row(std::vec::IntoIter<Value>);

impl Row {
    /// A row of these values.
    pub fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// The next column, of whatever kind.
    ///
    /// # Errors
    /// `Engine` when there is none.
    pub fn value(&mut self) -> Result<Value, Failure> {
        self.0.next().ok_or_else(|| unreadable("a column is missing"))
    }

    /// The next column as any type that reads it.
    ///
    /// # Errors
    /// `Engine` when there is none, or one of another kind.
    pub fn get<T: Column>(&mut self) -> Result<T, Failure> {
        T::read(self.value()?).ok_or_else(|| unreadable("a column is of another kind"))
    }
}

fn unreadable(what: &'static str) -> Failure {
    Failure::Engine(Error::internal(what))
}

/// What a column reads as.
pub trait Column: Sized {
    /// The value, when it is of this kind.
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

/// Why work on a session ended early.
#[derive(Debug)]
pub enum Failure {
    /// The work itself refused, and keeps the reason. Nothing of it is stored.
    Refused,
    /// A constraint does not hold: the name it has in the schema, `foreign_key` where the engine does not
    /// tell which one.
    Constraint(String),
    /// A statement ran out of time.
    TooLong,
    /// Two transactions got in each other's way; the store has tried again in vain.
    Clash,
    /// The engine failed, or is out of reach.
    Engine(Error),
}

/// One session of the store.
pub trait Session {
    /// All rows of a text.
    fn query<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<Vec<Row>, Failure>>;

    /// From here on the session's texts are planned for their values, where the engine would otherwise plan
    /// once for all values: worth it for lists, whose values differ by orders of magnitude.
    fn fit(&mut self);

    /// How many rows a text changed.
    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<u64, Failure>>;
}

/// Work for one session.
pub type Work = Arc<dyn for<'s> Fn(&'s mut dyn Session) -> LocalBoxFuture<'s, Result<(), Failure>> + Send + Sync>;
