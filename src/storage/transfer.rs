//! Copy of an embedded store into a PostgreSQL database. Every row of every table is copied unchanged, sealed with the
//! same keys.
//!
//! The source is a store that no server uses, opened with [`verify`](super::verify). Tables and columns are read from
//! its schema, so none is forgotten, and a column that the target lacks is an error. The target counts as restored at
//! the time of the copy. So CRL numbers of the target are above those of a server that continues on the source by
//! mistake.

use std::collections::HashMap;
use std::time::Duration;

use super::postgres::PostgresUrl;
use super::postgres::copy_target::{self, CommitOutcome, CopyTarget, TargetColumn};
use super::{ProgressCounters, Storage, scan};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::projects::store::ProjectStore;
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::restore_facts::{COPIED_FACT, MOVED_FACT};

/// Number of rows per INSERT. The widest table has some twenty columns, and a statement at most 65,535 parameters.
const ROWS_PER_STATEMENT: usize = 250;
const SELECT_TABLES: &str =
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
const SELECT_COLUMNS: &str = "SELECT name FROM pragma_table_info($1) ORDER BY cid";
/// Selects the highest id ever assigned in each table. The row with that id may have been removed.
const SELECT_SEQUENCES: &str = "SELECT name, seq FROM sqlite_sequence";
/// Name of the table of installation facts. Some facts describe the database itself and are not copied.
const FACTS_TABLE: &str = "meta";
/// Selects the column by which a table is read in order: the primary key of a table without rowids, else the rowid.
const SELECT_KEY_COLUMN: &str =
    "SELECT CASE wr WHEN 1 THEN (SELECT name FROM pragma_table_info($1) WHERE pk = 1) ELSE 'rowid' END
    FROM pragma_table_list WHERE schema = 'main' AND name = $1";

/// Maximum number of queries for the unknown outcome of a copy. A query may fail because the database is restarting.
const MAX_OUTCOME_QUERIES: u32 = 5;
/// Interval between two queries for the outcome of a copy.
const OUTCOME_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of a copy.
pub enum TransferOutcome {
    /// The database contains all rows.
    Complete,
    /// The database contains all rows or none: the connection was lost during the commit, and the database could not be
    /// reached after that.
    Unknown(Error),
}

/// Copies a complete store into an empty database, after creating the schema there. Calls `report_table` with each
/// table and its number of rows.
///
/// # Errors
/// `Conflict` when the database is not empty; `Invalid` when this machine's clock is behind the source; `Unavailable`
/// when one of the two stores fails. After an error the database contains no rows.
pub async fn copy(
    source: &Storage,
    to: &PostgresUrl,
    now: Time,
    progress: &ProgressCounters,
    mut report_table: impl FnMut(&str, i64),
) -> Result<TransferOutcome> {
    let store = &*source.stores.projects;
    let (name, value) = source.new_restore_fact(now).await?;
    let target = CopyTarget::begin(to).await?;
    let sequences = read_sequences(store).await?;
    for table in query_texts(store, SELECT_TABLES, Vec::new()).await? {
        let known = target.columns(&table).await?;
        let names = query_texts(store, SELECT_COLUMNS, vec![table.as_str().into()]).await?;
        let columns = names.iter().map(|name| {
            let target_column = known.iter().find(|column| column.name == *name);
            target_column.ok_or_else(|| Error::internal(format!("the database has no column {table}.{name}")))
        });
        let columns: Vec<&TargetColumn> = columns.collect::<Result<_>>()?;
        let rows = copy_rows(store, &target, &table, &columns, progress).await?;
        require_row_count(&target, &table, rows).await?;
        target.set_sequence(&table, &columns, sequences.get(&table).copied().unwrap_or(0)).await?;
        report_table(&table, rows);
    }
    let columns = target.columns(FACTS_TABLE).await?;
    let columns: Vec<&TargetColumn> =
        ["name", "value"].iter().filter_map(|name| columns.iter().find(|column| column.name == *name)).collect();
    target.insert(FACTS_TABLE, &columns, vec![vec![name.as_str().into(), value.into()]]).await?;
    match target.commit().await? {
        CommitOutcome::Stored => Ok(TransferOutcome::Complete),
        CommitOutcome::Unknown(lost) => determine_outcome(to, &name, lost).await,
    }
}

/// Determines the outcome of a COMMIT without a response: the database has the fact `fact` only if the copy succeeded.
async fn determine_outcome(to: &PostgresUrl, fact: &str, lost: Error) -> Result<TransferOutcome> {
    for _ in 0..MAX_OUTCOME_QUERIES {
        match copy_target::has_fact(to, fact).await {
            Ok(true) => return Ok(TransferOutcome::Complete),
            Ok(false) => {
                return Err(Error::unavailable(format!("{lost}; nothing was copied into the database"), lost));
            }
            Err(_) => tokio::time::sleep(OUTCOME_QUERY_INTERVAL).await,
        }
    }
    Ok(TransferOutcome::Unknown(lost))
}

/// Copies the rows of a table and returns their number.
async fn copy_rows(
    store: &dyn ProjectStore,
    target: &CopyTarget,
    table: &str,
    columns: &[&TargetColumn],
    progress: &ProgressCounters,
) -> Result<i64> {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let key = query_texts(store, SELECT_KEY_COLUMN, vec![table.into()]).await?;
    let key = key.first().ok_or_else(|| Error::internal(format!("table {table} of the source has no key")))?;
    let text = format!("SELECT {key}, {} FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2", names.join(", "));
    // The smallest integer sorts before all keys, because integers sort before all other types.
    let mut after = SqlValue::from(i64::MIN);
    let mut copied = 0;
    loop {
        let found = scan::query_rows(store, &text, vec![after, (ROWS_PER_STATEMENT as i64).into()]).await?;
        let full = found.len() == ROWS_PER_STATEMENT;
        let mut page = Vec::with_capacity(found.len());
        let mut last = SqlValue::Null;
        for mut row in found {
            last = row.value().map_err(scan::query_error)?;
            let values: Vec<SqlValue> =
                columns.iter().map(|_| row.value()).collect::<Result<_, _>>().map_err(scan::query_error)?;
            page.extend((!is_database_fact(table, &values)).then_some(values));
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

/// Returns `true` for a fact about the database itself (its schema version, or that it is a copy or was moved). Such
/// facts are not copied.
fn is_database_fact(table: &str, values: &[SqlValue]) -> bool {
    let of = |name: &str| matches!(values.first(), Some(SqlValue::Text(fact)) if fact == name);
    table == FACTS_TABLE && (of("schema") || of(COPIED_FACT) || of(MOVED_FACT))
}

async fn require_row_count(target: &CopyTarget, table: &str, copied: i64) -> Result<()> {
    let stored = target.count_rows(table).await? - i64::from(table == FACTS_TABLE);
    if stored == copied {
        return Ok(());
    }
    Err(Error::internal(format!("table {table}: {copied} rows were copied, but the database has {stored}")))
}

async fn query_texts(store: &dyn ProjectStore, text: &str, values: Vec<SqlValue>) -> Result<Vec<String>> {
    let found = scan::query_rows(store, text, values).await?;
    found.into_iter().map(|mut row| row.get()).collect::<Result<_, _>>().map_err(scan::query_error)
}

async fn read_sequences(store: &dyn ProjectStore) -> Result<HashMap<String, i64>> {
    let one = |mut row: SqlRow| Ok::<_, SqlError>((row.get()?, row.get()?));
    let found = scan::query_rows(store, SELECT_SEQUENCES, Vec::new()).await?;
    found.into_iter().map(one).collect::<Result<_, _>>().map_err(scan::query_error)
}
