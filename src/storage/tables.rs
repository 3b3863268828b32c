//! Reads and writes of tables, with the same code for both engines. `statements` has the SQL.
//!
//! The SQL may contain list parameters and row locks, as in [`crate::sql`]. SQLite runs a statement synchronously, so
//! the futures of its connection are ready on the first poll.

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

/// Returns the rows of a query as `read` decodes them.
async fn map_rows<C: TableConnection, T>(
    db: &C,
    sql: &str,
    values: &[SqlValue],
    read: impl Fn(&mut SqlRow) -> Result<T, SqlError>,
) -> TableResult<C, Vec<T>> {
    let found = db.rows(sql, values).await?;
    Ok(found.into_iter().map(|mut row| read(&mut row)).collect::<Result<_, _>>()?)
}

/// Returns the first row of a query as `read` decodes it; `None` if there is none.
async fn map_row<C: TableConnection, T>(
    db: &C,
    sql: &str,
    values: &[SqlValue],
    read: impl Fn(&mut SqlRow) -> Result<T, SqlError>,
) -> TableResult<C, Option<T>> {
    Ok(row(db, sql, values).await?.as_mut().map(read).transpose()?)
}

/// Returns the first row of a query, if any.
async fn row<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Option<SqlRow>> {
    Ok(db.rows(sql, values).await?.into_iter().next())
}

/// Returns the first column of all rows of a query.
async fn column<C: TableConnection, T: FromColumn>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, Vec<T>> {
    map_rows(db, sql, values, SqlRow::get).await
}

/// Returns `true` if a query finds a row.
async fn exists<C: TableConnection>(db: &C, sql: &str, values: &[SqlValue]) -> TableResult<C, bool> {
    Ok(!db.rows(sql, values).await?.is_empty())
}

/// The outcome of a write to a row that may be absent.
pub(super) fn done_or_absent(found: bool) -> AuthOutcome {
    if found { AuthOutcome::Done } else { AuthOutcome::Absent }
}

fn swept_outcome(rows: u64) -> AuthOutcome {
    AuthOutcome::Swept(count(rows))
}

fn count(rows: u64) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}
