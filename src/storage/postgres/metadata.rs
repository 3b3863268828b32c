//! SQL of certificate metadata.

use super::query::{PostgresClient, PostgresError, insert, page, row};
use crate::documents::MountId;
use crate::pki::store::MetadataRow;
use crate::storage::statements::metadata as sql;
use crate::x509::serial::Serial;

const INSERT: &str = "INSERT INTO certificate_metadata (mount, serial, not_after, body)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BYTEA[]), UNNEST($3::BIGINT[]), UNNEST($4::BYTEA[])";

/// Inserts all rows in one statement. `SerialTaken` if a serial is taken; the caller must then roll back to its
/// savepoint or the whole transaction.
pub(super) async fn insert_all(db: &PostgresClient, all: &[&MetadataRow]) -> Result<(), PostgresError> {
    fn column<'a, T>(all: &[&'a MetadataRow], of: impl Fn(&'a MetadataRow) -> T) -> Vec<T> {
        all.iter().map(|row| of(row)).collect()
    }
    insert(
        db,
        INSERT,
        &[
            &column(all, |row| row.mount.0),
            &column(all, |row| row.serial.octets()),
            &column(all, |row| row.not_after),
            &column(all, |row| row.body.as_slice()),
        ],
    )
    .await
}

pub(super) async fn get(
    db: &PostgresClient,
    mount: MountId,
    serial: Serial,
) -> Result<Option<MetadataRow>, PostgresError> {
    let Some(found) = row(db, sql::GET, &[&mount.0, &serial.octets()]).await? else { return Ok(None) };
    Ok(Some(MetadataRow { mount, serial, not_after: found.try_get(0)?, body: found.try_get(1)? }))
}

pub(super) async fn serials(
    db: &PostgresClient,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> Result<Vec<Serial>, PostgresError> {
    page(db, sql::SERIALS, mount, after, limit).await
}
