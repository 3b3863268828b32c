//! Writes and reads of published CRLs.

use super::{TableConnection, TableError, TableResult, map_rows};
use crate::documents::MountId;
use crate::pki::store::CrlRow;
use crate::sql::SqlValue;
use crate::storage::statements::{conflict, crls as sql};

pub(crate) async fn publish<C: TableConnection>(db: &C, row: &CrlRow) -> TableResult<C, ()> {
    let CrlRow { mount, group, number, covers, this_update, next_update, signature } = row.clone();
    let values: [SqlValue; 7] = [
        mount.into(),
        group.into(),
        (number as i64).into(),
        (covers as i64).into(),
        this_update.into(),
        next_update.into(),
        signature.into(),
    ];
    match db.execute(sql::PUBLISH, &values).await? {
        0 => Err(TableError::Conflict(conflict::CRL_PUBLISHED)),
        _ => Ok(()),
    }
}

pub(crate) async fn list<C: TableConnection>(db: &C, mount: MountId) -> TableResult<C, Vec<CrlRow>> {
    map_rows(db, sql::LIST, &[mount.into()], |row| {
        Ok(CrlRow {
            mount,
            group: row.get()?,
            number: row.get::<i64>()? as u64,
            covers: row.get::<i64>()? as u64,
            this_update: row.get()?,
            next_update: row.get()?,
            signature: row.get()?,
        })
    })
    .await
}
