//! A running session of the store, with the time and the locking mode of the request.

use std::sync::Arc;

use super::rejection::{ApiRejection, WorkResult};
use super::store::ApiTokenSeal;
use crate::clock::Time;
use crate::error::Error;
use crate::sql::{FromColumn, SqlError, SqlRow, SqlSession, SqlValue};

/// Maximum number of rows that one session removes. A transaction with a million rows would block all other writers.
pub(super) const MAX_ROWS_PER_SESSION: i64 = 500;

/// A running session, at a fixed point in time.
pub struct Tx<'s> {
    session: &'s mut dyn SqlSession,
    seal: Arc<dyn ApiTokenSeal>,
    /// The time at which the session began, used for every time that it stores or compares.
    pub now: Time,
    locks_lookups: bool,
    locks_org: bool,
    rows_read: usize,
    pending_removal: Option<i64>,
}

impl<'s> Tx<'s> {
    pub(super) fn new(session: &'s mut dyn SqlSession, seal: Arc<dyn ApiTokenSeal>, now: Time) -> Self {
        Self { session, seal, now, locks_lookups: false, locks_org: false, rows_read: 0, pending_removal: None }
    }
}

impl Tx<'_> {
    /// Makes later lookups lock the resources that they return, so that the values read are still current when the
    /// session changes the resources. Only for sessions that write.
    pub fn lock_lookups(&mut self) {
        self.locks_lookups = true;
    }

    /// Like [`Tx::lock_lookups`], but lookups lock the organization's row too, before the row of the resource. All
    /// sessions that lock both use this order. The lock serializes changes whose conditions concern several rows of the
    /// organization.
    pub fn lock_lookups_and_organization(&mut self) {
        self.locks_lookups = true;
        self.locks_org = true;
    }

    /// `true` if lookups lock what they return.
    pub fn locks_lookups(&self) -> bool {
        self.locks_lookups
    }

    /// `true` if lookups also lock the organization.
    pub(super) fn locks_organization(&self) -> bool {
        self.locks_org
    }

    /// Locks a row until the end of the session. Values of the row that were read before the lock may be outdated, so
    /// the calling function must read them again.
    ///
    /// # Errors
    /// `NotFound` when the row was deleted concurrently.
    pub(super) async fn lock_row(&mut self, table: &str, row: i64) -> WorkResult<()> {
        let lock = format!("SELECT id FROM {table} WHERE id = $1 FOR UPDATE");
        self.row(&lock, &[row.into()]).await?.map(drop).ok_or_else(|| ApiRejection::not_found().into())
    }

    /// Makes the database plan later statements for their actual parameter values, as lists need
    /// ([`SqlSession::use_custom_plans`]).
    pub fn use_custom_plans(&mut self) {
        self.session.use_custom_plans();
    }

    pub(super) fn token_seal(&self) -> Arc<dyn ApiTokenSeal> {
        Arc::clone(&self.seal)
    }

    /// Number of rows that this session has read so far.
    pub fn rows_read(&self) -> usize {
        self.rows_read
    }

    /// Records that this session moved a deleted resource into the ended organization with this row id.
    pub(super) fn set_pending_removal(&mut self, organization: i64) {
        self.pending_removal = Some(organization);
    }

    /// Row id of the ended organization whose rows still have to be removed, if any.
    pub fn pending_removal(&self) -> Option<i64> {
        self.pending_removal
    }

    /// Removes up to [`MAX_ROWS_PER_SESSION`] rows of a table that match `condition`; `key` are the key columns.
    /// Returns the number of removed rows, and `true` if more rows match.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn remove_some(
        &mut self,
        (table, key): (&str, &str),
        condition: &str,
        values: &[SqlValue],
    ) -> WorkResult<(i64, bool)> {
        let delete = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {condition} LIMIT {MAX_ROWS_PER_SESSION})"
        );
        let gone = self.execute(&delete, values).await? as i64;
        let more = format!("SELECT 1 FROM {table} WHERE {condition} LIMIT 1");
        // If no row was removed, either no row matched or a concurrent session has removed the matching rows.
        Ok((gone, gone > 0 && self.row(&more, values).await?.is_some()))
    }

    /// Returns all rows of a query.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rows(&mut self, sql: &str, values: &[SqlValue]) -> WorkResult<Vec<SqlRow>> {
        let rows = self.session.query(sql, values).await?;
        self.rows_read += rows.len();
        Ok(rows)
    }

    /// Returns the first column of all rows of a query.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn column<T: FromColumn>(&mut self, sql: &str, values: &[SqlValue]) -> WorkResult<Vec<T>> {
        let rows = self.rows(sql, values).await?;
        rows.into_iter().map(|mut row| row.get().map_err(Into::into)).collect()
    }

    /// Returns the first row of a query, if any.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn row(&mut self, sql: &str, values: &[SqlValue]) -> WorkResult<Option<SqlRow>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Returns the row of a query that always yields a row.
    ///
    /// # Errors
    /// Those of the store; `Internal` when there is no row.
    pub async fn one(&mut self, sql: &str, values: &[SqlValue]) -> WorkResult<SqlRow> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| {
            SqlError::Engine(Error::internal(format!("projects: a query that must return a row returned none: {sql}")))
                .into()
        })
    }

    /// Executes a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn execute(&mut self, sql: &str, values: &[SqlValue]) -> WorkResult<u64> {
        Ok(self.session.execute(sql, values).await?)
    }
}
