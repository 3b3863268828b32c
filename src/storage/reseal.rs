//! Sealing again what earlier data keys sealed: every table with sealed bodies ([`TABLES`]), in pages by primary key.
//!
//! What there is to do is counted first. Then a page reads a few rows beside everything else, seals the old ones of them
//! with the key in use, and writes those whose body is still the one that was read, so that no newer write is lost. A row
//! that another transaction holds is passed over, so that nobody waits here while others wait for him. How far the count
//! and the sealing have come is a fact of the store that each page compares and sets in the same transaction: a process
//! that ends in the middle leaves the rest to the next one, and of two nodes with the same page one is too late. After
//! the last table what is left is counted, and as long as that is something, begun again.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sql::{Failure, Row, Session, Value};
use crate::storage::keys::Keys;
use crate::storage::sealed::{Sealed, TABLES};
use crate::storage::session::Sessions;

/// Rows that are counted at a time.
const COUNTED: i64 = 512;

/// How far it has come: the fact.
const READ: &str = "SELECT value FROM meta WHERE name = 're-seal'";
const BEGIN: &str = "INSERT INTO meta (name, value) VALUES ('re-seal', $1) ON CONFLICT (name) DO NOTHING";
const MOVE: &str = "UPDATE meta SET value = $1 WHERE name = 're-seal' AND value = $2";

/// How far sealing with the key of a term has come.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The term of the key.
    pub(super) term: u32,
    /// How many values are left, as they were counted and sealed again since; `None` before they were counted.
    pub(super) left: Option<u64>,
    /// While it counts, how many it has found.
    #[serde(default)]
    counting: Option<u64>,
    /// How many were sealed again since they were counted.
    pub(super) sealed: u64,
    /// How many others were at since they were counted.
    #[serde(default)]
    pub(super) passed: u64,
    /// The table it is at, by its place.
    table: usize,
    /// The primary key it has come to there.
    after: Vec<Mark>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: all is sealed with the key of the term.
    Nothing,
    /// A page of the count.
    Count,
    /// A page of sealing.
    Seal,
}

/// A value of a primary key, as it is noted.
#[derive(Clone, Serialize, Deserialize)]
enum Mark {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Progress {
    /// Before the count for a term.
    pub(super) fn new(term: u32) -> Self {
        let (left, counting) = (None, Some(0));
        Self { term, left, counting, sealed: 0, passed: 0, table: 0, after: Vec::new() }
    }

    /// Of the stored fact; what does not read is as if it were not there.
    pub(super) fn read(fact: &[u8]) -> Option<Self> {
        serde_json::from_slice(fact).ok()
    }

    /// What comes next.
    pub(super) fn next(&self) -> Next {
        match self.left {
            Some(0) => Next::Nothing,
            // Behind the last table there is only the count that tells whether anything is left.
            _ if self.counting.is_some() || self.table >= TABLES.len() => Next::Count,
            _ => Next::Seal,
        }
    }

    /// How many were counted, when that has come to its end.
    pub(super) fn counted(&self) -> Option<u64> {
        self.counting.filter(|_| self.table >= TABLES.len())
    }

    /// After the count: that so many are left, and sealing begins at the first table.
    pub(super) fn begun(&self, left: u64) -> Self {
        Self { left: Some(left), counting: None, ..Self::new(self.term) }
    }

    /// After the count: that so many are left, and nothing is to be done about it.
    pub(super) fn ended(&self, left: u64) -> Self {
        Self { table: TABLES.len(), ..self.begun(left) }
    }

    /// To the row behind this key, or to the next table.
    fn go_on(&mut self, after: Option<&[Value]>) {
        match after {
            Some(key) => self.after = key.iter().filter_map(Mark::of).collect(),
            None => (self.table, self.after) = (self.table + 1, Vec::new()),
        }
    }
}

/// A row of a page: its primary key, and if its body is sealed with an earlier key, that and what it is sealed to, as far
/// as its columns tell.
struct Old {
    key: Vec<Value>,
    body: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A body that was sealed again: the primary key of its row, the body as it was read, and the new one.
struct Change {
    key: Vec<Value>,
    was: Vec<u8>,
    sealed: Vec<u8>,
}

impl Sealed {
    /// The text of a page of rows; `$1` is the first octets of the bodies of the term, then the key to go on after, then
    /// how many rows.
    fn page(&self, goes_on: bool) -> String {
        let (key, columns) = (self.key.join(", "), self.columns().join(", "));
        // The rows first, whatever they are sealed with: so a page is short however few of them are old.
        let rows = self.rows(&format!("{columns}, body"), 2, goes_on);
        format!("SELECT {columns}, CASE WHEN body < $1 THEN body END FROM ({rows}) AS page ORDER BY {key}")
    }

    /// The text of a page of the count, asked with as the other: keys, and whether the body is an old one. No body is
    /// read whole. One that is not there is none.
    fn counted(&self, goes_on: bool) -> String {
        self.rows(&format!("{}, COALESCE(substr(body, 1, 4) < $1, FALSE)", self.key.join(", ")), 2, goes_on)
    }

    fn old(&self, mut row: Row) -> Result<Old, Failure> {
        let columns = self.columns().iter().map(|_| row.value()).collect::<Result<Vec<_>, _>>()?;
        let body = row.get::<Option<Vec<u8>>>()?.map(|body| (body, self.context(&columns)));
        Ok(Old { key: columns[..self.key.len()].to_vec(), body })
    }

    /// What writes new bodies over the ones that were read: for each row a text.
    fn updates(&self, changes: Vec<Change>) -> Vec<(String, Vec<Value>)> {
        let is = self.key.iter().zip(3..).map(|(column, n)| format!(" AND {column} = ${n}")).collect::<String>();
        let text = format!("UPDATE {} SET body = $1 WHERE body = $2{is}", self.table);
        let values = |change: Change| [vec![change.sealed.into(), change.was.into()], change.key].concat();
        changes.into_iter().map(|change| (text.clone(), values(change))).collect()
    }

    /// The same where several transactions write at a time: one text for all rows, which passes over those that others
    /// hold.
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

/// A column of values as a list, and what the engine calls that. Primary keys are of these kinds.
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

/// The fact that says how far it has come, as it is stored.
pub(super) async fn progress(sessions: &Sessions) -> Result<Option<Vec<u8>>> {
    let read = sessions.read("re_seal", |session| {
        async move { session.query(READ, &[]).await?.into_iter().next().map(|mut row| row.get()).transpose() }
            .boxed_local()
    });
    read.await
}

/// Notes how far it has come, over what was read of that.
///
/// # Errors
/// `Conflict` when somebody else was faster.
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

/// How many values are sealed with keys before that of `term`, page by page: a value that is written meanwhile is
/// counted or not.
///
/// # Errors
/// Those of the store.
pub(super) async fn count(sessions: &Sessions, term: u32) -> Result<u64> {
    let mut progress = Progress::new(term);
    loop {
        progress = count_page(sessions, progress).await?;
        if let Some(counted) = progress.counted() {
            return Ok(counted);
        }
    }
}

/// Counts one page. The count begins at the first table if it has not yet.
///
/// # Errors
/// Those of the store.
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

/// One page: seals its old values again and moves `progress` on, over what is `stored` of it. Returns how many
/// values it was. `shared` says whether others write to the store at the same time.
///
/// # Errors
/// `Conflict` when another node was faster; those of the store.
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
            // 0 is for what was counted: it is not said before.
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

/// What a page is asked with.
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

/// The old values that open, sealed with the key in use.
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
