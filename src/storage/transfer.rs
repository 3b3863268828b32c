//! Carrying an embedded store over to PostgreSQL: every row of every table as it is, sealed under the same keys.
//!
//! The source is a store that nobody works on, opened as [`verify`](super::verify) opens one. Tables and columns are
//! those that the source says it has: a table that is added later comes along, and one that the target lacks is an
//! error. The target counts as restored at the time of the copy, so that its CRL numbers are above those of a server
//! that went on with the source by mistake.

use std::collections::HashMap;
use std::time::Duration;

use super::postgres::PostgresUrl;
use super::postgres::filling::{self, Column, Committed, Filling};
use super::{Progress, Storage, scan};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::projects::store::ProjectStore;
use crate::sql::{Failure, Row, Value};
use crate::storage::restored::{COPIED, MOVED};

/// Rows at a time. The widest table has some twenty columns, and a statement 65,535 places.
const PAGE: usize = 250;
const TABLES: &str = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
const COLUMNS: &str = "SELECT name FROM pragma_table_info($1) ORDER BY cid";
/// The last number that was given out in each table, of rows that are gone too.
const SEQUENCES: &str = "SELECT name, seq FROM sqlite_sequence";
/// Where an installation's own facts are; some of them are of the database and not of what it holds.
const FACTS: &str = "meta";
/// What the rows of a table are in the order of: a table without rowids has its key.
const KEY: &str = "SELECT CASE wr WHEN 1 THEN (SELECT name FROM pragma_table_info($1) WHERE pk = 1) ELSE 'rowid' END
    FROM pragma_table_list WHERE schema = 'main' AND name = $1";

/// How often a database is asked what became of a copy, and how long apart: one that starts again takes its time.
const QUESTIONS: u32 = 5;
const APART: Duration = Duration::from_secs(1);

/// What became of a copy.
pub enum Outcome {
    /// The database has all of it.
    Whole,
    /// The database has all of it or nothing: the connection was lost at the last step, and nobody could be asked since.
    Unknown(Error),
}

/// Copies all of a store into an empty database, which is up to date afterwards. `told` hears of each table that is
/// whole, with the number of its rows.
///
/// # Errors
/// `Conflict` when the database is not empty; `Invalid` when this machine's clock is behind what the source has seen;
/// `Unavailable` when one of them fails: the database stays empty then.
pub async fn copy(
    source: &Storage,
    to: &PostgresUrl,
    now: Time,
    progress: &Progress,
    mut told: impl FnMut(&str, i64),
) -> Result<Outcome> {
    let store = &*source.stores.projects;
    let (name, value) = source.restored(now).await?;
    let target = Filling::begin(to).await?;
    let sequences = sequences(store).await?;
    for table in texts(store, TABLES, Vec::new()).await? {
        let known = target.columns(&table).await?;
        let names = texts(store, COLUMNS, vec![table.as_str().into()]).await?;
        let columns = names.iter().map(|name| {
            let here = known.iter().find(|column| column.name == *name);
            here.ok_or_else(|| Error::internal(format!("the database has no column {table}.{name}")))
        });
        let columns: Vec<&Column> = columns.collect::<Result<_>>()?;
        let rows = rows(store, &target, &table, &columns, progress).await?;
        require_all(&target, &table, rows).await?;
        target.go_on_above(&table, &columns, sequences.get(&table).copied().unwrap_or(0)).await?;
        told(&table, rows);
    }
    let columns = target.columns(FACTS).await?;
    let columns: Vec<&Column> =
        ["name", "value"].iter().filter_map(|name| columns.iter().find(|column| column.name == *name)).collect();
    target.insert(FACTS, &columns, vec![vec![name.as_str().into(), value.into()]]).await?;
    match target.commit().await? {
        Committed::Yes => Ok(Outcome::Whole),
        Committed::Unknown(lost) => settled(to, &name, lost).await,
    }
}

/// What became of a copy whose last step was not answered: the database, which was empty, has this fact by it, or not.
async fn settled(to: &PostgresUrl, fact: &str, lost: Error) -> Result<Outcome> {
    for _ in 0..QUESTIONS {
        match filling::has(to, fact).await {
            Ok(true) => return Ok(Outcome::Whole),
            Ok(false) => {
                return Err(Error::unavailable(format!("{lost}; the database is as empty as before"), lost));
            }
            Err(_) => tokio::time::sleep(APART).await,
        }
    }
    Ok(Outcome::Unknown(lost))
}

/// Copies the rows of a table; how many there are.
async fn rows(
    store: &dyn ProjectStore,
    target: &Filling,
    table: &str,
    columns: &[&Column],
    progress: &Progress,
) -> Result<i64> {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let key = texts(store, KEY, vec![table.into()]).await?;
    let key = key.first().ok_or_else(|| Error::internal(format!("{table} has no key")))?;
    let text = format!("SELECT {key}, {} FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2", names.join(", "));
    // Numbers come before everything else that a key may be.
    let (mut after, mut copied) = (Value::from(i64::MIN), 0);
    loop {
        let found = scan::rows(store, &text, vec![after, (PAGE as i64).into()]).await?;
        let full = found.len() == PAGE;
        let mut page = Vec::with_capacity(found.len());
        let mut last = Value::Null;
        for mut row in found {
            last = row.value().map_err(scan::error)?;
            let values: Vec<Value> =
                columns.iter().map(|_| row.value()).collect::<Result<_, _>>().map_err(scan::error)?;
            page.extend((!is_of_the_database(table, &values)).then_some(values));
        }
        copied += page.len() as i64;
        progress.add(page.len() as u64);
        if !page.is_empty() {
            target.insert(table, columns, page).await?;
        }
        if !full {
            return Ok(copied);
        }
        after = last;
    }
}

/// The version of its schema, that it is a copy, and that it was carried over before: the target has its own.
fn is_of_the_database(table: &str, values: &[Value]) -> bool {
    let of = |name: &str| matches!(values.first(), Some(Value::Text(fact)) if fact == name);
    table == FACTS && (of("schema") || of(COPIED) || of(MOVED))
}

/// That the target has them all.
async fn require_all(target: &Filling, table: &str, copied: i64) -> Result<()> {
    let there = target.count(table).await? - i64::from(table == FACTS);
    if there == copied {
        return Ok(());
    }
    Err(Error::internal(format!("{table}: {copied} rows were copied, and {there} are there")))
}

async fn texts(store: &dyn ProjectStore, text: &str, values: Vec<Value>) -> Result<Vec<String>> {
    let found = scan::rows(store, text, values).await?;
    found.into_iter().map(|mut row| row.get()).collect::<Result<_, _>>().map_err(scan::error)
}

async fn sequences(store: &dyn ProjectStore) -> Result<HashMap<String, i64>> {
    let one = |mut row: Row| Ok::<_, Failure>((row.get()?, row.get()?));
    let found = scan::rows(store, SEQUENCES, Vec::new()).await?;
    found.into_iter().map(one).collect::<Result<_, _>>().map_err(scan::error)
}
