//! SQL of published CRLs.

use super::query::{PostgresClient, PostgresError, execute, rows};
use crate::documents::MountId;
use crate::pki::store::CrlRow;
use crate::storage::statements::{conflict, crls as sql};

pub(super) async fn publish(db: &PostgresClient, row: &CrlRow) -> Result<(), PostgresError> {
    let number = row.number as i64;
    let covers = row.covers as i64;
    let CrlRow { mount, group, this_update, next_update, signature, .. } = row;
    match execute(db, sql::PUBLISH, &[&mount.0, group, &number, &covers, this_update, next_update, signature]).await? {
        0 => Err(PostgresError::Conflict(conflict::CRL_PUBLISHED)),
        _ => Ok(()),
    }
}

pub(super) async fn list(db: &PostgresClient, mount: MountId) -> Result<Vec<CrlRow>, PostgresError> {
    let read = |row: &tokio_postgres::Row| {
        Ok(CrlRow {
            mount,
            group: row.try_get(0)?,
            number: row.try_get::<_, i64>(1)? as u64,
            covers: row.try_get::<_, i64>(2)? as u64,
            this_update: row.try_get(3)?,
            next_update: row.try_get(4)?,
            signature: row.try_get(5)?,
        })
    };
    rows(db, sql::LIST, &[&mount.0]).await?.iter().map(read).collect()
}
