//! Writes and reads of leases. Each engine implements their insertion itself, together with the certificate.

use super::{TableConnection, TableResult, column, count, map_row, map_rows};
use crate::pki::store::{LeaseRange, LeaseRow};
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::statements::leases as sql;

pub(crate) async fn mark_for_revocation<C: TableConnection>(db: &C, ids: &[String]) -> TableResult<C, u32> {
    db.execute(sql::MARK_ENDING, &[ids.to_vec().into()]).await.map(count)
}

pub(crate) async fn delete<C: TableConnection>(db: &C, ids: &[String]) -> TableResult<C, u32> {
    db.execute(sql::DELETE, &[ids.to_vec().into()]).await.map(count)
}

pub(crate) async fn mark_ended<C: TableConnection>(db: &C, limit: u32) -> TableResult<C, u32> {
    let marked = count(db.execute(sql::MARK_ENDED, &[i64::from(limit).into()]).await?);
    if marked < limit {
        db.execute(sql::FORGET_ENDED, &[]).await?;
    }
    Ok(marked)
}

pub(crate) async fn sweep<C: TableConnection>(db: &C, now: i64, limit: u32) -> TableResult<C, u32> {
    db.execute(sql::SWEEP, &[now.into(), i64::from(limit).into()]).await.map(count)
}

pub(crate) async fn get<C: TableConnection>(db: &C, id: String) -> TableResult<C, Option<LeaseRow>> {
    map_row(db, sql::GET, &[id.into()], read_lease).await
}

pub(crate) async fn ids<C: TableConnection>(db: &C, range: LeaseRange, limit: u32) -> TableResult<C, Vec<String>> {
    let without = range.excluded_mounts_text();
    let values: [SqlValue; 5] =
        [range.after.into(), range.below.into(), range.mount.into(), without.into(), i64::from(limit).into()];
    column(db, sql::IDS, &values).await
}

pub(crate) async fn ending<C: TableConnection>(
    db: &C,
    after: String,
    below: String,
    limit: u32,
) -> TableResult<C, Vec<LeaseRow>> {
    map_rows(db, sql::ENDING, &[after.into(), below.into(), i64::from(limit).into()], read_lease).await
}

fn read_lease(row: &mut SqlRow) -> Result<LeaseRow, SqlError> {
    Ok(LeaseRow {
        id: row.get()?,
        mount: row.get()?,
        serial: row.get()?,
        token: row.get()?,
        issued_at: row.get()?,
        expires_at: row.get()?,
    })
}
