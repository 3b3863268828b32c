//! Resealing: values sealed with earlier data keys are sealed with the current one, table by table ([`TABLES`]).
//!
//! The old values are counted first. A page then reads some rows, reseals the old ones, and writes those whose body is
//! unchanged, so no concurrent write is lost. Locked rows are skipped. The progress is a fact that each page updates by
//! compare-and-set in its own transaction. So the work survives restarts, and of two nodes with the same page only one
//! succeeds. After the last table, another pass reseals the remaining values.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sql::{Failure, Row, Session, Value};
use crate::storage::keys::Keys;
use crate::storage::sealed::{Sealed, TABLES};
use crate::storage::session::Sessions;

/// Rows per page of the count.
const COUNTED: i64 = 512;

/// Statements for the fact with the progress.
const READ: &str = "SELECT value FROM meta WHERE name = 're-seal'";
const BEGIN: &str = "INSERT INTO meta (name, value) VALUES ('re-seal', $1) ON CONFLICT (name) DO NOTHING";
const MOVE: &str = "UPDATE meta SET value = $1 WHERE name = 're-seal' AND value = $2";

/// The progress of resealing with the key of a term.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) term: u32,
    /// Number of values that are left; `None` before they were counted.
    pub(super) left: Option<u64>,
    /// Number of values found by the count in progress.
    #[serde(default)]
    counting: Option<u64>,
    /// Number of values resealed since the count.
    pub(super) sealed: u64,
    /// Number of values skipped since the count, because others had locked or changed them.
    #[serde(default)]
    pub(super) passed: u64,
    /// Index of the current table in [`TABLES`].
    table: usize,
    /// The last primary key that was processed in that table.
    after: Vec<Mark>,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: all values are sealed with the key of the term.
    Nothing,
    Count,
    Seal,
}

/// A primary key value in the stored progress.
#[derive(Clone, Serialize, Deserialize)]
enum Mark {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Progress {
    /// The state before the count for a term.
    pub(super) fn new(term: u32) -> Self {
        let (left, counting) = (None, Some(0));
        Self { term, left, counting, sealed: 0, passed: 0, table: 0, after: Vec::new() }
    }

    /// Parses the stored fact; an unreadable one counts as missing.
    pub(super) fn read(fact: &[u8]) -> Option<Self> {
        serde_json::from_slice(fact).ok()
    }

    pub(super) fn next(&self) -> Next {
        match self.left {
            Some(0) => Next::Nothing,
            // After the last table, only the count can show whether anything is left.
            _ if self.counting.is_some() || self.table >= TABLES.len() => Next::Count,
            _ => Next::Seal,
        }
    }

    /// The number of counted values, once the count is complete.
    pub(super) fn counted(&self) -> Option<u64> {
        self.counting.filter(|_| self.table >= TABLES.len())
    }

    /// The state after the count: `left` values remain, and resealing begins at the first table.
    pub(super) fn begun(&self, left: u64) -> Self {
        Self { left: Some(left), counting: None, ..Self::new(self.term) }
    }

    /// The state after the count if the `left` remaining values cannot be resealed.
    pub(super) fn ended(&self, left: u64) -> Self {
        Self { table: TABLES.len(), ..self.begun(left) }
    }

    /// Continues after this key, or with the next table.
    fn go_on(&mut self, after: Option<&[Value]>) {
        match after {
            Some(key) => self.after = key.iter().filter_map(Mark::of).collect(),
            None => (self.table, self.after) = (self.table + 1, Vec::new()),
        }
    }
}

/// A row of a page: its primary key and, if the body is sealed with an earlier key, the body and its associated data.
/// The associated data is `None` if the columns are invalid.
struct Old {
    key: Vec<Value>,
    body: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A resealed body: the primary key of its row, the body that was read, and the new one.
struct Change {
    key: Vec<Value>,
    was: Vec<u8>,
    sealed: Vec<u8>,
}

impl Sealed {
    /// The query for a page. Parameters: the first bytes of bodies of the term, the key to start after, the limit.
    fn page(&self, goes_on: bool) -> String {
        let (key, columns) = (self.key.join(", "), self.columns().join(", "));
        // The subquery limits the rows before the filter, so that a page is short even if few of them are old.
        let rows = self.rows(&format!("{columns}, body"), 2, goes_on);
        format!("SELECT {columns}, CASE WHEN body < $1 THEN body END FROM ({rows}) AS page ORDER BY {key}")
    }

    /// The query for a page of the count, with the same parameters: keys, and whether the body is old. It reads only a
    /// prefix of each body; a missing body is not old.
    fn counted(&self, goes_on: bool) -> String {
        self.rows(&format!("{}, COALESCE(substr(body, 1, 4) < $1, FALSE)", self.key.join(", ")), 2, goes_on)
    }

    fn old(&self, mut row: Row) -> Result<Old, Failure> {
        let columns = self.columns().iter().map(|_| row.value()).collect::<Result<Vec<_>, _>>()?;
        let body = row.get::<Option<Vec<u8>>>()?.map(|body| (body, self.context(&columns)));
        Ok(Old { key: columns[..self.key.len()].to_vec(), body })
    }

    /// The statements that replace bodies that are still unchanged, one per row.
    fn updates(&self, changes: Vec<Change>) -> Vec<(String, Vec<Value>)> {
        let is = self.key.iter().zip(3..).map(|(column, n)| format!(" AND {column} = ${n}")).collect::<String>();
        let text = format!("UPDATE {} SET body = $1 WHERE body = $2{is}", self.table);
        let values = |change: Change| [vec![change.sealed.into(), change.was.into()], change.key].concat();
        changes.into_iter().map(|change| (text.clone(), values(change))).collect()
    }

    /// As [`Self::updates`], for concurrent writers: one statement for all rows, which skips locked ones.
    fn update_of_all(&self, changes: Vec<Change>) -> (String, Vec<Value>) {
        let (mut keys, mut was, mut sealed) = (vec![Vec::new(); self.key.len()], Vec::new(), Vec::new());
        for change in changes {
            keys.iter_mut().zip(change.key).for_each(|(column, value)| column.push(value));
            was.push(change.was);
            sealed.push(change.sealed);
        }
        let (kinds, mut values): (Vec<_>, Vec<_>) = keys.into_iter().map(list).unzip();
        values.extend([Value::Octets(was), Value::Octets(sealed)]);
        let lists: Vec<_> =
            kinds.into_iter().chain(["BYTEA[]"; 2]).zip(1..).map(|(kind, n)| format!("${n}::{kind}")).collect();
        let of = |table: &str| self.key.iter().map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ");
        let (table, key) = (self.table, self.key.join(", "));
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

/// Converts a column to a list parameter, and names its SQL type. Primary keys have only these types.
fn list(column: Vec<Value>) -> (&'static str, Value) {
    match column.first() {
        Some(Value::Int(_)) => {
            let int = |value| if let Value::Int(value) = value { Some(value) } else { None };
            ("BIGINT[]", Value::Ints(column.into_iter().filter_map(int).collect()))
        }
        Some(Value::Bytes(_)) => {
            let octets = |value| if let Value::Bytes(value) = value { Some(value) } else { None };
            ("BYTEA[]", Value::Octets(column.into_iter().filter_map(octets).collect()))
        }
        _ => {
            let text = |value| if let Value::Text(value) = value { Some(value) } else { None };
            ("TEXT[]", Value::Texts(column.into_iter().filter_map(text).collect()))
        }
    }
}

/// Reads the fact with the progress, as stored.
pub(super) async fn progress(sessions: &Sessions) -> Result<Option<Vec<u8>>> {
    let read = sessions.read("re_seal", |session| {
        async move { session.query(READ, &[]).await?.into_iter().next().map(|mut row| row.get()).transpose() }
            .boxed_local()
    });
    read.await
}

/// Replaces the stored progress by compare-and-set.
///
/// # Errors
/// `Conflict` for a concurrent change.
pub(super) async fn store(sessions: &Sessions, stored: Option<Vec<u8>>, progress: Progress) -> Result<()> {
    let fact = serde_json::to_vec(&progress).map_err(Error::internal)?;
    sessions.write("re_seal", move |session| note(session, stored.clone(), fact.clone())).await
}

fn note(session: &mut dyn Session, stored: Option<Vec<u8>>, fact: Vec<u8>) -> LocalBoxFuture<'_, Result<(), Failure>> {
    async move {
        let changed = match stored {
            None => session.execute(BEGIN, &[fact.into()]).await?,
            Some(stored) => session.execute(MOVE, &[fact.into(), stored.into()]).await?,
        };
        if changed == 1 { Ok(()) } else { Err(Failure::Refused) }
    }
    .boxed_local()
}

/// Counts the values that are sealed with keys before `term`, page by page. A concurrent write may be counted or not.
///
/// # Errors
/// The errors of the store.
pub(super) async fn count(sessions: &Sessions, term: u32) -> Result<u64> {
    let mut progress = Progress::new(term);
    loop {
        progress = count_page(sessions, progress).await?;
        if let Some(counted) = progress.counted() {
            return Ok(counted);
        }
    }
}

/// Counts one page; starts at the first table if no count is in progress.
///
/// # Errors
/// The errors of the store.
pub(super) async fn count_page(sessions: &Sessions, mut progress: Progress) -> Result<Progress> {
    if progress.counting.is_none() {
        (progress.table, progress.after) = (0, Vec::new());
    }
    let mut found = progress.counting.unwrap_or(0);
    let Some(table) = TABLES.get(progress.table) else { return Ok(progress) };
    let sql = table.counted(!progress.after.is_empty());
    let values = values(&progress, COUNTED);
    let read = sessions.read("re_seal", move |session| {
        let (sql, values) = (sql.clone(), values.clone());
        async move {
            let rows = session.query(&sql, &values).await?.into_iter();
            rows.map(|mut row| Ok((key(table, &mut row)?, row.get()?))).collect::<Result<Vec<_>, Failure>>()
        }
        .boxed_local()
    });
    let rows: Vec<(Vec<Value>, bool)> = read.await?;
    found += rows.iter().filter(|(_, is_old)| *is_old).count() as u64;
    let is_full = rows.len() as i64 == COUNTED;
    progress.go_on(rows.last().map(|(key, _)| &key[..]).filter(|_| is_full));
    Ok(Progress { counting: Some(found), ..progress })
}

/// Reseals the old values of one page, replaces the `stored` progress, and returns the number of values. `shared` is
/// `true` if others write to the store concurrently.
///
/// # Errors
/// `Conflict` when another node was faster; the errors of the store.
pub(super) async fn page(
    keys: &Arc<Keys>,
    sessions: &Sessions,
    shared: bool,
    mut progress: Progress,
    stored: Vec<u8>,
) -> Result<u64> {
    let Some(table) = TABLES.get(progress.table) else { return Ok(0) };
    let rows = read_page(sessions, table, &progress).await?;
    let is_full = rows.len() as i64 == table.few;
    progress.go_on(rows.last().map(|row| &row.key[..]).filter(|_| is_full));
    let changes = sealed_again(keys, table, rows).await?;
    let tried = changes.len() as u64;
    let updates = match (changes.is_empty(), shared) {
        (true, _) => Vec::new(),
        (_, true) => vec![table.update_of_all(changes)],
        (_, false) => table.updates(changes),
    };
    let (updates, progress) = (Arc::new(updates), Arc::new(progress));
    let written = sessions.write("re_seal", move |session| {
        let (updates, stored, progress) = (Arc::clone(&updates), stored.clone(), Progress::clone(&progress));
        async move {
            let mut changed = 0;
            for (text, values) in updates.iter() {
                changed += session.execute(text, values).await?;
            }
            // Only a count may set 0.
            let left = progress.left.map(|left| left.saturating_sub(changed).max(1));
            let (sealed, passed) = (progress.sealed + changed, progress.passed + tried.saturating_sub(changed));
            let fact = serde_json::to_vec(&Progress { left, sealed, passed, ..progress });
            note(session, Some(stored), fact.map_err(|e| Failure::Engine(Error::internal(e)))?).await?;
            Ok(changed)
        }
        .boxed_local()
    });
    written.await
}

fn values(progress: &Progress, rows: i64) -> Vec<Value> {
    let after = progress.after.iter().cloned().map(Value::from);
    let first = Value::from(progress.term.to_be_bytes().to_vec());
    std::iter::once(first).chain(after).chain([rows.into()]).collect()
}

async fn read_page(sessions: &Sessions, table: &'static Sealed, progress: &Progress) -> Result<Vec<Old>> {
    let (sql, values) = (table.page(!progress.after.is_empty()), values(progress, table.few));
    let read = sessions.read("re_seal", move |session| {
        let (sql, values) = (sql.clone(), values.clone());
        async move { session.query(&sql, &values).await?.into_iter().map(|row| table.old(row)).collect() }.boxed_local()
    });
    read.await
}

fn key(table: &Sealed, row: &mut Row) -> Result<Vec<Value>, Failure> {
    table.key.iter().map(|_| row.value()).collect()
}

/// Opens the old values and seals them with the current key. Skips values that do not open.
async fn sealed_again(keys: &Arc<Keys>, table: &Sealed, rows: Vec<Old>) -> Result<Vec<Change>> {
    keys.follow(rows.iter().filter_map(|row| row.body.as_ref()).map(|(body, _)| &body[..])).await?;
    let mut changes = Vec::new();
    for Old { key, body } in rows {
        let Some((was, context)) = body else { continue };
        let plain = context.and_then(|context| Some((keys.open(&context, &was).ok()?, context)));
        let Some((plain, context)) = plain else {
            tracing::warn!(table = table.table, "a stored value does not open, and stays as it is");
            continue;
        };
        changes.push(Change { key, was, sealed: keys.seal(&context, plain)? });
    }
    Ok(changes)
}

impl Mark {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Text(text) => Some(Self::Text(text.clone())),
            Value::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            _ => None,
        }
    }
}

impl From<Mark> for Value {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Int(number) => Self::Int(number),
            Mark::Text(text) => Self::Text(text),
            Mark::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_reads_no_body() {
        for table in &TABLES {
            for goes_on in [false, true] {
                let text = table.counted(goes_on);
                assert_eq!(text.matches("body").count(), 1, "{text}");
                assert!(text.contains(", COALESCE(substr(body, 1, 4) < $1, FALSE) FROM"), "{text}");
            }
        }
    }

    #[test]
    fn progress_of_the_program_before_reads_on() {
        let counted = br#"{"term":2,"left":7,"sealed":3,"table":1,"after":[{"Bytes":[1]}]}"#;
        let progress = Progress::read(counted).unwrap();
        assert_eq!((progress.left, progress.next(), progress.counted()), (Some(7), Next::Seal, None));
        let behind = Progress { table: TABLES.len(), ..progress };
        assert_eq!((behind.next(), behind.counted()), (Next::Count, None));
        assert_eq!(behind.begun(0).next(), Next::Nothing);
    }
}
