//! A session at work: what rules and rows of this API speak to the store through.

use std::sync::Arc;

use super::refusal::{Outcome, Refusal};
use super::store::TokenSeal;
use crate::clock::Time;
use crate::error::Error;
use crate::sql::{Column, Failure, Row, Session, Value};

/// Rows that belong to what is deleted, as many as one session removes: a million in one would hold up every other.
pub(super) const PARTS_AT_ONCE: i64 = 500;

/// A session at work, at one point in time.
pub struct Tx<'s> {
    session: &'s mut dyn Session,
    seal: Arc<dyn TokenSeal>,
    /// The time that everything in this session happens at.
    pub now: Time,
    holds: bool,
    holds_organization: bool,
    read: usize,
    buried: Option<i64>,
}

impl<'s> Tx<'s> {
    /// Work in `session` at `now`.
    pub(super) fn new(session: &'s mut dyn Session, seal: Arc<dyn TokenSeal>, now: Time) -> Self {
        Self { session, seal, now, holds: false, holds_organization: false, read: 0, buried: None }
    }
}

impl Tx<'_> {
    /// From here on a resource that is looked up to be changed is locked at once, so that what is then read
    /// of it still holds when it is changed. Only in sessions that write.
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// As [`Tx::hold`], and the row of the organization before that of the resource: who takes both takes them in this
    /// order, and whatever is changed under a condition in one organization is changed one after the other.
    pub fn hold_with_organization(&mut self) {
        self.holds = true;
        self.holds_organization = true;
    }

    /// Whether what is looked up is to be locked.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Whether the organization of what is looked up is to be locked before it.
    pub(super) fn holds_organization(&self) -> bool {
        self.holds_organization
    }

    /// Takes a row until the end of the session: whoever else would take or change it waits. What was read of it before
    /// is to be read again.
    ///
    /// # Errors
    /// `NotFound` when it has gone meanwhile.
    pub(super) async fn take(&mut self, table: &str, row: i64) -> Outcome<()> {
        let lock = format!("SELECT id FROM {table} WHERE id = $1 FOR UPDATE");
        self.row(&lock, &[row.into()]).await?.map(drop).ok_or_else(|| Refusal::not_found().into())
    }

    /// Has the texts that follow planned for their values, as lists need it ([`Session::fit`]).
    pub fn fit(&mut self) {
        self.session.fit();
    }

    /// The seal of tokens.
    pub(super) fn token_seal(&self) -> Arc<dyn TokenSeal> {
        Arc::clone(&self.seal)
    }

    /// How many rows this session has read so far.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Says that this session has put what it deleted into an ended organization, whose row this is.
    pub(super) fn buries(&mut self, organization: i64) {
        self.buried = Some(organization);
    }

    /// Where what this session deleted waits to be removed, if it does.
    pub fn buried(&self) -> Option<i64> {
        self.buried
    }

    /// Removes some rows of a table that a condition finds, by their key; how many, and whether there are more.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn remove_some(
        &mut self,
        (table, key): (&str, &str),
        condition: &str,
        values: &[Value],
    ) -> Outcome<(i64, bool)> {
        let delete = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {condition} LIMIT {PARTS_AT_ONCE})"
        );
        let gone = self.execute(&delete, values).await? as i64;
        let more = format!("SELECT 1 FROM {table} WHERE {condition} LIMIT 1");
        // Others may have removed some of the same.
        Ok((gone, gone > 0 && self.row(&more, values).await?.is_some()))
    }

    /// All rows of a text.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rows(&mut self, sql: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        let rows = self.session.query(sql, values).await?;
        self.read += rows.len();
        Ok(rows)
    }

    /// The first column of all rows of a text.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn column<T: Column>(&mut self, sql: &str, values: &[Value]) -> Outcome<Vec<T>> {
        let rows = self.rows(sql, values).await?;
        rows.into_iter().map(|mut row| row.get().map_err(Into::into)).collect()
    }

    /// The first row of a text, if there is one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn row(&mut self, sql: &str, values: &[Value]) -> Outcome<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// The one row of a text that always has one.
    ///
    /// # Errors
    /// Those of the store; `Internal` when there is none.
    pub async fn one(&mut self, sql: &str, values: &[Value]) -> Outcome<Row> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| Failure::Engine(Error::internal("a row is missing that is always there")).into())
    }

    /// Runs a text that gives no rows; how many rows it changed.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn execute(&mut self, sql: &str, values: &[Value]) -> Outcome<u64> {
        Ok(self.session.execute(sql, values).await?)
    }
}

impl From<Time> for Value {
    /// Epoch microseconds, rounded down.
    fn from(at: Time) -> Self {
        // Years up to 9999 are 2.6e17 µs: far inside the range.
        Self::Int(at.unix_timestamp_nanos().div_euclid(1000) as i64)
    }
}

impl Column for Time {
    fn read(value: Value) -> Option<Self> {
        let Value::Int(micros) = value else { return None };
        Self::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
    }
}
