//! Reads and writes of tables, with the same code for both engines. `statements` has the SQL.
//!
//! The SQL may contain list parameters and row locks, as in [`crate::sql`]. SQLite runs statements synchronously, so
//! the futures of its connections are ready on the first poll.

pub(super) mod certificates;
pub(super) mod crls;
pub(super) mod cubbyhole;
pub(super) mod documents;
pub(super) mod entities;
pub(super) mod facts;
pub(super) mod leases;
pub(super) mod metadata;
pub(super) mod mounts;
pub(super) mod recorded_responses;
pub(super) mod revocations;
pub(super) mod secret_ids;
pub(super) mod tidy;
pub(super) mod tokens;

use crate::auth::store::AuthOutcome;
use crate::documents::MountId;
use crate::sql::{FromColumn, SqlError, SqlRow, SqlValue};
use crate::storage::engine::{TableConnection, TableError, TableResult};
use crate::x509::serial::Serial;

impl From<MountId> for SqlValue {
    fn from(mount: MountId) -> Self {
        Self::Int(mount.0)
    }
}

impl From<Serial> for SqlValue {
    fn from(serial: Serial) -> Self {
        Self::Bytes(serial.octets().to_vec())
    }
}

fn serial_list(serials: &[Serial]) -> SqlValue {
    SqlValue::ByteStrings(serials.iter().map(|serial| serial.octets().to_vec()).collect())
}

impl FromColumn for MountId {
    fn read(value: SqlValue) -> Option<Self> {
        i64::read(value).map(Self)
    }
}

impl FromColumn for Serial {
    fn read(value: SqlValue) -> Option<Self> {
        Self::from_octets(&Vec::read(value)?).ok()
    }
}

/// Runs a query and returns its rows, decoded with `read`.
async fn map_rows<C: TableConnection, T>(
    db: &C,
    sql: &str,
    values: &[SqlValue],
    read: impl Fn(&mut SqlRow) -> Result<T, SqlError>,
) -> TableResult<C, Vec<T>> {
    let found = db.rows(sql, values).await?;
    Ok(found.into_iter().map(|mut row| read(&mut row)).collect::<Result<_, _>>()?)
}

/// Runs a query and returns its first row, decoded with `read`; `None` if it finds no row.
async fn map_row<C: TableConnection, T>(
    db: &C,
    sql: &str,
    values: &[SqlValue],
    read: impl Fn(&mut SqlRow) -> Result<T, SqlError>,
) -> TableResult<C, Option<T>> {
    Ok(row(db, sql, values).await?.as_mut().map(read).transpose()?)
}

/// Runs a query and returns its first row, if there is one.
async fn row<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Option<SqlRow>> {
    Ok(db.rows(sql, values).await?.into_iter().next())
}

/// Runs a query and returns the first column of all rows.
async fn column<C: TableConnection, T: FromColumn>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Vec<T>> {
    map_rows(db, sql, values, SqlRow::get).await
}

/// Runs a query and returns `true` if it finds a row.
async fn exists<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, bool> {
    Ok(!db.rows(sql, values).await?.is_empty())
}

/// Returns the outcome of a write to a single row: done if the row was found, else absent.
pub(super) fn done_or_absent(found: bool) -> AuthOutcome {
    if found { AuthOutcome::Done } else { AuthOutcome::Absent }
}

fn swept_outcome(rows: u64) -> AuthOutcome {
    AuthOutcome::Swept(count(rows))
}

fn count(rows: u64) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}
