//! Resealing: values sealed with earlier data keys are sealed with the current one, table by table ([`SEALED_TABLES`]).
//!
//! The old values are counted first. Then each step reads a page of rows, reseals the old values, and writes back those
//! that have not changed meanwhile, so no concurrent write is lost. Locked rows are skipped. The step's transaction
//! also updates the progress, a fact, by compare-and-set. So the work survives restarts, and of two nodes with the same
//! page only one succeeds. After the last table, the remaining values are counted again for another pass.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sql::{FromColumn as _, SqlError, SqlRow, SqlSession, SqlValue};
use crate::storage::keys::StoreKeys;
use crate::storage::sealed_tables::{SEALED_TABLES, SealedTable};
use crate::storage::session::StoreSessions;

/// Number of rows that one step of the count reads.
const COUNT_PAGE_ROWS: i64 = 512;

/// Selects the fact that stores the progress of resealing.
const SELECT_PROGRESS: &str = "SELECT value FROM meta WHERE name = 're-seal'";
const INSERT_PROGRESS: &str = "INSERT INTO meta (name, value) VALUES ('re-seal', $1) ON CONFLICT (name) DO NOTHING";
const UPDATE_PROGRESS: &str = "UPDATE meta SET value = $1 WHERE name = 're-seal' AND value = $2";

/// The progress of resealing under the data key of one term.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ResealProgress {
    pub(super) term: u32,
    /// Number of old values that are left; `None` before the first count is complete.
    pub(super) left: Option<u64>,
    /// Number of old values that the current count has found so far; `None` while no count runs.
    #[serde(default)]
    counting: Option<u64>,
    /// Number of values resealed since the last count.
    pub(super) sealed: u64,
    /// Number of values skipped since the last count, because other transactions had locked or changed them.
    #[serde(default)]
    pub(super) passed: u64,
    /// Index of the current table in [`SEALED_TABLES`].
    table: usize,
    /// The primary key of the last processed row of that table; empty at the start of the table.
    after: Vec<ProgressKey>,
}

/// The next step of resealing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResealStep {
    /// No step is left: all values are sealed with the key of the term.
    Nothing,
    Count,
    Seal,
}

/// A column of a primary key, as stored in the progress.
#[derive(Clone, Serialize, Deserialize)]
enum ProgressKey {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl ResealProgress {
    /// Returns the progress before the first count of a term.
    pub(super) fn new(term: u32) -> Self {
        let left = None;
        let counting = Some(0);
        Self { term, left, counting, sealed: 0, passed: 0, table: 0, after: Vec::new() }
    }

    /// Parses the stored progress; an unreadable one counts as missing.
    pub(super) fn read(fact: &[u8]) -> Option<Self> {
        serde_json::from_slice(fact).ok()
    }

    pub(super) fn next_step(&self) -> ResealStep {
        match self.left {
            Some(0) => ResealStep::Nothing,
            // After the last table, only another count can show whether old values are left.
            _ if self.counting.is_some() || self.table >= SEALED_TABLES.len() => ResealStep::Count,
            _ => ResealStep::Seal,
        }
    }

    /// Returns the number of old values that a count has found, if the count is complete.
    pub(super) fn complete_count(&self) -> Option<u64> {
        self.counting.filter(|_| self.table >= SEALED_TABLES.len())
    }

    /// Returns the progress after a complete count: `left` old values remain, and a pass begins at the first table.
    pub(super) fn start_pass(&self, left: u64) -> Self {
        Self { left: Some(left), counting: None, ..Self::new(self.term) }
    }

    /// Returns the progress after a complete count if the `left` remaining values cannot be resealed.
    pub(super) fn give_up(&self, left: u64) -> Self {
        Self { table: SEALED_TABLES.len(), ..self.start_pass(left) }
    }

    /// Moves to the row after the primary key `after`, or to the next table if it is `None`.
    fn advance(&mut self, after: Option<&[SqlValue]>) {
        match after {
            Some(key) => self.after = key.iter().filter_map(ProgressKey::of).collect(),
            None => (self.table, self.after) = (self.table + 1, Vec::new()),
        }
    }
}

/// A row of a page: its primary key and, if the body is sealed with an older key, the body and its associated data. The
/// associated data is `None` if the row has invalid columns.
struct ResealRow {
    key: Vec<SqlValue>,
    body: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A resealed body: the primary key of its row, the body as it was read, and the new body.
struct ResealedBody {
    key: Vec<SqlValue>,
    was: Vec<u8>,
    sealed: Vec<u8>,
}

impl SealedTable {
    /// Returns the query for a page of rows. Its parameters are the term (4 bytes, as at the start of a body), the
    /// primary key to start after, and the limit.
    fn reseal_page_sql(&self, has_start_key: bool) -> String {
        let key = self.key.join(", ");
        let columns = self.columns().join(", ");
        // The subquery limits the rows before the filter, so that a page is read fast even if few of its rows are old.
        let rows = self.page_sql(&format!("{columns}, body"), 2, has_start_key);
        format!("SELECT {columns}, CASE WHEN body < $1 THEN body END FROM ({rows}) AS page ORDER BY {key}")
    }

    /// Returns the query for a page of the count, with the parameters of [`Self::reseal_page_sql`]. The query returns
    /// primary keys, and for each row whether its body is sealed with an older key. It reads only a prefix of each
    /// body. A missing body does not count as old.
    fn count_page_sql(&self, has_start_key: bool) -> String {
        self.page_sql(&format!("{}, COALESCE(substr(body, 1, 4) < $1, FALSE)", self.key.join(", ")), 2, has_start_key)
    }

    fn read_row(&self, mut row: SqlRow) -> Result<ResealRow, SqlError> {
        let columns = self.columns().iter().map(|_| row.value()).collect::<Result<Vec<_>, _>>()?;
        let body = row.get::<Option<Vec<u8>>>()?.map(|body| (body, self.context(&columns)));
        Ok(ResealRow { key: columns[..self.key.len()].to_vec(), body })
    }

    /// Returns one statement per row, which replaces the body if it is still the one that was read.
    fn update_statements(&self, changes: Vec<ResealedBody>) -> Vec<(String, Vec<SqlValue>)> {
        let is = self.key.iter().zip(3..).map(|(column, n)| format!(" AND {column} = ${n}")).collect::<String>();
        let text = format!("UPDATE {} SET body = $1 WHERE body = $2{is}", self.table);
        let values = |change: ResealedBody| [vec![change.sealed.into(), change.was.into()], change.key].concat();
        changes.into_iter().map(|change| (text.clone(), values(change))).collect()
    }

    /// As [`Self::update_statements`], for a store with concurrent writers: returns one statement for all rows, which
    /// skips locked rows.
    fn bulk_update_statement(&self, changes: Vec<ResealedBody>) -> (String, Vec<SqlValue>) {
        let mut keys = vec![Vec::new(); self.key.len()];
        let mut was = Vec::new();
        let mut sealed = Vec::new();
        for change in changes {
            keys.iter_mut().zip(change.key).for_each(|(column, value)| column.push(value));
            was.push(change.was);
            sealed.push(change.sealed);
        }
        let (kinds, mut values): (Vec<_>, Vec<_>) = keys.into_iter().map(list_parameter).unzip();
        values.extend([SqlValue::ByteStrings(was), SqlValue::ByteStrings(sealed)]);
        let lists: Vec<_> =
            kinds.into_iter().chain(["BYTEA[]"; 2]).zip(1..).map(|(kind, n)| format!("${n}::{kind}")).collect();
        let of = |table: &str| self.key.iter().map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ");
        let table = self.table;
        let key = self.key.join(", ");
        let text = format!(
            "WITH page AS (SELECT * FROM UNNEST({lists}) AS page ({key}, was, sealed)),
                free AS (SELECT {stored}, page.was, page.sealed FROM {table} AS stored
                    JOIN page ON ({stored}) = ({paged}) AND stored.body = page.was
                    FOR NO KEY UPDATE OF stored SKIP LOCKED)
            UPDATE {table} AS stored SET body = free.sealed FROM free
            WHERE ({stored}) = ({freed}) AND stored.body = free.was",
            lists = lists.join(", "),
            stored = of("stored"),
            paged = of("page"),
            freed = of("free"),
        );
        (text, values)
    }
}

/// Converts the values of a column to a list parameter, and returns its SQL type. Primary keys have only these types.
fn list_parameter(column: Vec<SqlValue>) -> (&'static str, SqlValue) {
    match column.first() {
        Some(SqlValue::Int(_)) => ("BIGINT[]", SqlValue::Ints(column.into_iter().filter_map(i64::read).collect())),
        Some(SqlValue::Bytes(_)) => {
            ("BYTEA[]", SqlValue::ByteStrings(column.into_iter().filter_map(Vec::<u8>::read).collect()))
        }
        _ => ("TEXT[]", SqlValue::Texts(column.into_iter().filter_map(String::read).collect())),
    }
}

/// Reads the stored progress, without parsing it.
pub(super) async fn read_progress(sessions: &StoreSessions) -> Result<Option<Vec<u8>>> {
    let read = sessions.read("re_seal", |session| {
        async move { session.query(SELECT_PROGRESS, &[]).await?.into_iter().next().map(|mut row| row.get()).transpose() }
            .boxed_local()
    });
    read.await
}

/// Replaces the stored progress by compare-and-set.
///
/// # Errors
/// `Conflict` for a concurrent change.
pub(super) async fn store_progress(
    sessions: &StoreSessions,
    stored: Option<Vec<u8>>,
    progress: ResealProgress,
) -> Result<()> {
    let fact = serde_json::to_vec(&progress).map_err(Error::internal)?;
    sessions.write("re_seal", move |session| write_progress(session, stored.clone(), fact.clone())).await
}

fn write_progress(
    session: &mut dyn SqlSession,
    stored: Option<Vec<u8>>,
    fact: Vec<u8>,
) -> LocalBoxFuture<'_, Result<(), SqlError>> {
    async move {
        let changed = match stored {
            None => session.execute(INSERT_PROGRESS, &[fact.into()]).await?,
            Some(stored) => session.execute(UPDATE_PROGRESS, &[fact.into(), stored.into()]).await?,
        };
        if changed == 1 { Ok(()) } else { Err(SqlError::Rejected) }
    }
    .boxed_local()
}

/// Counts the values that are sealed with keys before `term`, page by page. Values written during the count may be
/// counted or not.
///
/// # Errors
/// The errors of the store.
pub(super) async fn count_old_values(sessions: &StoreSessions, term: u32) -> Result<u64> {
    let mut progress = ResealProgress::new(term);
    loop {
        progress = count_page(sessions, progress).await?;
        if let Some(counted) = progress.complete_count() {
            return Ok(counted);
        }
    }
}

/// Counts the old values of one page. Starts at the first table if no count is in progress.
///
/// # Errors
/// The errors of the store.
pub(super) async fn count_page(sessions: &StoreSessions, mut progress: ResealProgress) -> Result<ResealProgress> {
    if progress.counting.is_none() {
        (progress.table, progress.after) = (0, Vec::new());
    }
    let mut found = progress.counting.unwrap_or(0);
    let Some(table) = SEALED_TABLES.get(progress.table) else { return Ok(progress) };
    let sql = table.count_page_sql(!progress.after.is_empty());
    let values = page_parameters(&progress, COUNT_PAGE_ROWS);
    let read = sessions.read("re_seal", move |session| {
        let sql = sql.clone();
        let values = values.clone();
        async move {
            let rows = session.query(&sql, &values).await?.into_iter();
            rows.map(|mut row| Ok((read_key(table, &mut row)?, row.get()?))).collect::<Result<Vec<_>, SqlError>>()
        }
        .boxed_local()
    });
    let rows: Vec<(Vec<SqlValue>, bool)> = read.await?;
    found += rows.iter().filter(|(_, is_old)| *is_old).count() as u64;
    let is_full = rows.len() as i64 == COUNT_PAGE_ROWS;
    progress.advance(rows.last().map(|(key, _)| &key[..]).filter(|_| is_full));
    Ok(ResealProgress { counting: Some(found), ..progress })
}

/// Reseals the old values of one page, and replaces the stored progress, which must still be `stored`. Returns the
/// number of resealed values. `shared` is `true` if several nodes may write to the store.
///
/// # Errors
/// `Conflict` when another node has processed the page first; the errors of the store.
pub(super) async fn reseal_page(
    keys: &Arc<StoreKeys>,
    sessions: &StoreSessions,
    shared: bool,
    mut progress: ResealProgress,
    stored: Vec<u8>,
) -> Result<u64> {
    let Some(table) = SEALED_TABLES.get(progress.table) else { return Ok(0) };
    let rows = read_page(sessions, table, &progress).await?;
    let is_full = rows.len() as i64 == table.page_rows;
    progress.advance(rows.last().map(|row| &row.key[..]).filter(|_| is_full));
    let changes = reseal_rows(keys, table, rows).await?;
    let tried = changes.len() as u64;
    let updates = match (changes.is_empty(), shared) {
        (true, _) => Vec::new(),
        (_, true) => vec![table.bulk_update_statement(changes)],
        (_, false) => table.update_statements(changes),
    };
    let updates = Arc::new(updates);
    let progress = Arc::new(progress);
    let written = sessions.write("re_seal", move |session| {
        let updates = Arc::clone(&updates);
        let stored = stored.clone();
        let progress = ResealProgress::clone(&progress);
        async move {
            let mut changed = 0;
            for (text, values) in updates.iter() {
                changed += session.execute(text, values).await?;
            }
            // The number must not become 0 here, because 0 means that resealing is complete. Only a count may determine
            // that.
            let left = progress.left.map(|left| left.saturating_sub(changed).max(1));
            let sealed = progress.sealed + changed;
            let passed = progress.passed + tried.saturating_sub(changed);
            let fact = serde_json::to_vec(&ResealProgress { left, sealed, passed, ..progress });
            write_progress(session, Some(stored), fact.map_err(|e| SqlError::Engine(Error::internal(e)))?).await?;
            Ok(changed)
        }
        .boxed_local()
    });
    written.await
}

fn page_parameters(progress: &ResealProgress, rows: i64) -> Vec<SqlValue> {
    let after = progress.after.iter().cloned().map(SqlValue::from);
    let first = SqlValue::from(progress.term.to_be_bytes().to_vec());
    std::iter::once(first).chain(after).chain([rows.into()]).collect()
}

async fn read_page(
    sessions: &StoreSessions,
    table: &'static SealedTable,
    progress: &ResealProgress,
) -> Result<Vec<ResealRow>> {
    let sql = table.reseal_page_sql(!progress.after.is_empty());
    let values = page_parameters(progress, table.page_rows);
    let read = sessions.read("re_seal", move |session| {
        let sql = sql.clone();
        let values = values.clone();
        async move { session.query(&sql, &values).await?.into_iter().map(|row| table.read_row(row)).collect() }
            .boxed_local()
    });
    read.await
}

fn read_key(table: &SealedTable, row: &mut SqlRow) -> Result<Vec<SqlValue>, SqlError> {
    table.key.iter().map(|_| row.value()).collect()
}

/// Opens old values and seals them with the current key. Skips values that do not decrypt.
async fn reseal_rows(keys: &Arc<StoreKeys>, table: &SealedTable, rows: Vec<ResealRow>) -> Result<Vec<ResealedBody>> {
    keys.load_missing_keys(rows.iter().filter_map(|row| row.body.as_ref()).map(|(body, _)| &body[..])).await?;
    let mut changes = Vec::new();
    for ResealRow { key, body } in rows {
        let Some((was, context)) = body else { continue };
        let plain = context.and_then(|context| Some((keys.open(&context, &was).ok()?, context)));
        let Some((plain, context)) = plain else {
            tracing::warn!(
                table = table.table,
                "a stored value cannot be decrypted and stays sealed with an earlier data key"
            );
            continue;
        };
        changes.push(ResealedBody { key, was, sealed: keys.seal(&context, plain)? });
    }
    Ok(changes)
}

impl ProgressKey {
    fn of(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Int(number) => Some(Self::Int(*number)),
            SqlValue::Text(text) => Some(Self::Text(text.clone())),
            SqlValue::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            _ => None,
        }
    }
}

impl From<ProgressKey> for SqlValue {
    fn from(mark: ProgressKey) -> Self {
        match mark {
            ProgressKey::Int(number) => Self::Int(number),
            ProgressKey::Text(text) => Self::Text(text),
            ProgressKey::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reseal_count_reads_no_bodies() {
        for table in &SEALED_TABLES {
            for has_start_key in [false, true] {
                let text = table.count_page_sql(has_start_key);
                assert_eq!(text.matches("body").count(), 1, "{text}");
                assert!(text.contains(", COALESCE(substr(body, 1, 4) < $1, FALSE) FROM"), "{text}");
            }
        }
    }

    #[test]
    fn progress_of_the_previous_version_is_continued() {
        let counted = br#"{"term":2,"left":7,"sealed":3,"table":1,"after":[{"Bytes":[1]}]}"#;
        let progress = ResealProgress::read(counted).unwrap();
        assert_eq!((progress.left, progress.next_step(), progress.complete_count()), (Some(7), ResealStep::Seal, None));
        let behind = ResealProgress { table: SEALED_TABLES.len(), ..progress };
        assert_eq!((behind.next_step(), behind.complete_count()), (ResealStep::Count, None));
        assert_eq!(behind.start_pass(0).next_step(), ResealStep::Nothing);
    }
}
