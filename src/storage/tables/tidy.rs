//! Tidy, the cleanup of expired rows: at most one run per mount at a time, and the removal of rows in steps of limited
//! size.
//!
//! Every statement uses an index: rows are found in the order of their expiry and deleted by their key.

use super::{TableConnection, TableError, TableResult, column, count, exists, map_row, map_rows, row, serial_list};
use crate::documents::MountId;
use crate::pki::store::{RemovableRevocations, Removal, RemovalResult, TidyRow};
use crate::sql::SqlValue;
use crate::storage::statements::{conflict, tidy as sql};
use crate::x509::serial::Serial;

pub(crate) async fn get<C: TableConnection>(db: &C, mount: MountId) -> TableResult<C, Option<TidyRow>> {
    map_row(db, sql::GET, &[mount.into()], |row| {
        let run = row.get()?;
        let valid_until = row.get()?;
        Ok(TidyRow { mount, run, valid_until, cancelled: row.get()?, report: row.get()? })
    })
    .await
}

pub(crate) async fn begin<C: TableConnection>(db: &C, row: &TidyRow, seen: i64, now: i64) -> TableResult<C, u32> {
    let TidyRow { mount, run, valid_until, report, .. } = row.clone();
    let values: [SqlValue; 6] = [mount.into(), run.into(), valid_until.into(), report.into(), now.into(), seen.into()];
    db.execute(sql::BEGIN, &values).await.map(count)
}

/// Extends the validity of a tidy run and stores its report. Returns `true` if the run was cancelled.
pub(crate) async fn extend<C: TableConnection>(
    db: &C,
    mount: MountId,
    run: i64,
    valid_until: i64,
    report: &[u8],
) -> TableResult<C, bool> {
    let values: [SqlValue; 4] = [valid_until.into(), report.to_vec().into(), mount.into(), run.into()];
    let mut extended =
        row(db, sql::EXTEND_RUN, &values).await?.ok_or(TableError::Conflict(conflict::TIDY_RUN_REPLACED))?;
    Ok(extended.get()?)
}

pub(crate) async fn cancel<C: TableConnection>(db: &C, mount: MountId, now: i64) -> TableResult<C, u32> {
    db.execute(sql::CANCEL, &[mount.into(), now.into()]).await.map(count)
}

pub(crate) async fn remove<C: TableConnection>(
    db: &C,
    mount: MountId,
    what: &Removal,
    limit: u32,
) -> TableResult<C, RemovalResult> {
    match what {
        Removal::Certificates { before, revoked_before, after } => {
            remove_certificates(db, mount, *before, *revoked_before, *after, limit).await
        }
        Removal::Revocations(listed) => remove_revocations(db, mount, *listed, limit).await,
        Removal::Metadata { before } => {
            let metadata = count(
                db.execute(sql::DELETE_METADATA, &[mount.into(), (*before).into(), i64::from(limit).into()]).await?,
            );
            Ok(RemovalResult { metadata, visited: metadata, ..RemovalResult::default() })
        }
        Removal::Named { serials, revoked_before } => {
            let values: [SqlValue; 3] = [mount.into(), serial_list(serials), (*revoked_before).into()];
            let certificates = count(db.execute(sql::DELETE_REVOKED_CERTIFICATES, &values).await?);
            Ok(RemovalResult { certificates, visited: count(serials.len() as u64), ..RemovalResult::default() })
        }
    }
}

async fn remove_certificates<C: TableConnection>(
    db: &C,
    mount: MountId,
    before: i64,
    revoked_before: i64,
    after: Option<(i64, Serial)>,
    limit: u32,
) -> TableResult<C, RemovalResult> {
    let (end, key) = after.as_ref().map_or((i64::MIN, &[][..]), |(end, serial)| (*end, serial.octets()));
    let values: [SqlValue; 5] = [mount.into(), before.into(), end.into(), key.to_vec().into(), i64::from(limit).into()];
    let page: Vec<(Serial, i64, bool)> =
        map_rows(db, sql::EXPIRED_CERTIFICATES, &values, |row| Ok((row.get()?, row.get()?, row.get()?))).await?;
    let is_removable = |(_, end, revoked): &&(Serial, i64, bool)| !revoked || *end < revoked_before;
    let serials: Vec<Serial> = page.iter().filter(is_removable).map(|(serial, ..)| *serial).collect();
    let certificates = delete_certificates(db, mount, &serials, before).await?;
    let last = page.last().map(|(serial, end, _)| (*end, *serial));
    Ok(RemovalResult { certificates, visited: count(page.len() as u64), last, ..RemovalResult::default() })
}

async fn delete_certificates<C: TableConnection>(
    db: &C,
    mount: MountId,
    serials: &[Serial],
    before: i64,
) -> TableResult<C, u32> {
    let values: [SqlValue; 3] = [mount.into(), serial_list(serials), before.into()];
    db.execute(sql::DELETE_CERTIFICATES, &values).await.map(count)
}

/// Returns `true` if a CRL may lack the revocation of a certificate that expired before `before`, according to
/// `listed`.
pub(crate) async fn has_unlisted_revocation<C: TableConnection>(
    db: &C,
    mount: MountId,
    before: i64,
    listed: RemovableRevocations,
) -> TableResult<C, bool> {
    let values: [SqlValue; 4] = [mount.into(), before.into(), listed.before.into(), listed.up_to_sql().into()];
    exists(db, sql::UNLISTED_REVOCATION, &values).await
}

async fn remove_revocations<C: TableConnection>(
    db: &C,
    mount: MountId,
    listed: RemovableRevocations,
    limit: u32,
) -> TableResult<C, RemovalResult> {
    let values: [SqlValue; 4] =
        [mount.into(), listed.before.into(), listed.up_to_sql().into(), i64::from(limit).into()];
    let serials: Vec<Serial> = column(db, sql::EXPIRED_REVOCATIONS, &values).await?;
    let certificates = delete_certificates(db, mount, &serials, listed.before).await?;
    let revocations = count(db.execute(sql::DELETE_REVOCATIONS, &[mount.into(), serial_list(&serials)]).await?);
    let visited = count(serials.len() as u64);
    Ok(RemovalResult { certificates, revocations, visited, ..RemovalResult::default() })
}
