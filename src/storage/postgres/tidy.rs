//! SQL of tidy: mutual exclusion of runs, and the removal of expired rows in steps of limited size.
//!
//! Every statement uses an index: rows are found in the order of their expiry and deleted by their key.

use super::query::{PostgresClient, PostgresError, count, execute, exists, row, rows, serial};
use crate::documents::MountId;
use crate::pki::store::{RemovableRevocations, Removal, RemovalResult, TidyRow};
use crate::storage::statements::{conflict, tidy as sql};
use crate::x509::serial::Serial;

const DELETE_CERTIFICATES: &str = "DELETE FROM certificate WHERE mount = $1 AND serial = ANY($2) AND not_after < $3";
const DELETE_REVOCATIONS: &str = "DELETE FROM revocation WHERE mount = $1 AND serial = ANY($2)";
const DELETE_REVOKED_CERTIFICATES: &str = "DELETE FROM certificate WHERE mount = $1 AND serial = ANY($2) AND NOT EXISTS
    (SELECT 1 FROM revocation WHERE revocation.mount = certificate.mount AND revocation.serial = certificate.serial
        AND revocation.not_after >= $3)";

pub(super) async fn get(db: &PostgresClient, mount: MountId) -> Result<Option<TidyRow>, PostgresError> {
    let Some(found) = row(db, sql::GET, &[&mount.0]).await? else { return Ok(None) };
    let run = found.try_get(0)?;
    let valid_until = found.try_get(1)?;
    let cancelled = found.try_get::<_, i64>(2)? != 0;
    Ok(Some(TidyRow { mount, run, valid_until, cancelled, report: found.try_get(3)? }))
}

pub(super) async fn begin(db: &PostgresClient, row: &TidyRow, seen: i64, now: i64) -> Result<u32, PostgresError> {
    let TidyRow { mount, run, valid_until, report, .. } = row;
    execute(db, sql::BEGIN, &[&mount.0, run, valid_until, report, &now, &seen]).await.map(count)
}

/// Extends a run; returns `true` if it was cancelled.
pub(super) async fn extend(
    db: &PostgresClient,
    mount: MountId,
    run: i64,
    valid_until: i64,
    report: &[u8],
) -> Result<bool, PostgresError> {
    let kept = row(db, sql::KEEP, &[&valid_until, &report, &mount.0, &run]).await?;
    let kept = kept.ok_or(PostgresError::Conflict(conflict::TIDY_TAKEN))?;
    Ok(kept.try_get::<_, i64>(0)? != 0)
}

pub(super) async fn cancel(db: &PostgresClient, mount: MountId, now: i64) -> Result<u32, PostgresError> {
    execute(db, sql::CANCEL, &[&mount.0, &now]).await.map(count)
}

pub(super) async fn remove(
    db: &PostgresClient,
    mount: MountId,
    what: &Removal,
    limit: u32,
) -> Result<RemovalResult, PostgresError> {
    match what {
        Removal::Certificates { before, revoked_before, after } => {
            remove_certificates(db, mount, *before, *revoked_before, *after, limit).await
        }
        Removal::Revocations(listed) => remove_revocations(db, mount, *listed, limit).await,
        Removal::Metadata { before } => {
            let metadata = count(execute(db, sql::DELETE_METADATA, &[&mount.0, before, &i64::from(limit)]).await?);
            Ok(RemovalResult { metadata, visited: metadata, ..RemovalResult::default() })
        }
        Removal::Named { serials, revoked_before } => {
            let bytes: Vec<&[u8]> = serials.iter().map(Serial::octets).collect();
            let certificates =
                count(execute(db, DELETE_REVOKED_CERTIFICATES, &[&mount.0, &bytes, revoked_before]).await?);
            Ok(RemovalResult { certificates, visited: count(serials.len() as u64), ..RemovalResult::default() })
        }
    }
}

async fn remove_certificates(
    db: &PostgresClient,
    mount: MountId,
    before: i64,
    revoked_before: i64,
    after: Option<(i64, Serial)>,
    limit: u32,
) -> Result<RemovalResult, PostgresError> {
    let (end, key) = after.as_ref().map_or((i64::MIN, &[][..]), |(end, serial)| (*end, serial.octets()));
    let page = rows(db, sql::EXPIRED_CERTIFICATES, &[&mount.0, &before, &end, &key, &i64::from(limit)]).await?;
    let mut going: Vec<&[u8]> = Vec::with_capacity(page.len());
    for found in &page {
        let (end, revoked): (i64, i64) = (found.try_get(1)?, found.try_get(2)?);
        if revoked == 0 || end < revoked_before {
            going.push(found.try_get(0)?);
        }
    }
    let certificates = count(execute(db, DELETE_CERTIFICATES, &[&mount.0, &going, &before]).await?);
    let last = page.last().map(|found| Ok::<_, PostgresError>((found.try_get(1)?, serial(found, 0)?))).transpose()?;
    Ok(RemovalResult { certificates, visited: count(page.len() as u64), last, ..RemovalResult::default() })
}

/// Returns `true` if a revocation of a certificate that expired before `before` is missing on a CRL that must list it.
pub(super) async fn unlisted(
    db: &PostgresClient,
    mount: MountId,
    before: i64,
    listed: RemovableRevocations,
) -> Result<bool, PostgresError> {
    exists(db, sql::UNLISTED_REVOCATION, &[&mount.0, &before, &listed.before, &listed.last()]).await
}

async fn remove_revocations(
    db: &PostgresClient,
    mount: MountId,
    listed: RemovableRevocations,
    limit: u32,
) -> Result<RemovalResult, PostgresError> {
    let page =
        rows(db, sql::EXPIRED_REVOCATIONS, &[&mount.0, &listed.before, &listed.last(), &i64::from(limit)]).await?;
    let going = page.iter().map(|found| found.try_get(0)).collect::<Result<Vec<&[u8]>, _>>()?;
    let certificates = count(execute(db, DELETE_CERTIFICATES, &[&mount.0, &going, &listed.before]).await?);
    let revocations = count(execute(db, DELETE_REVOCATIONS, &[&mount.0, &going]).await?);
    Ok(RemovalResult { certificates, revocations, visited: count(page.len() as u64), ..RemovalResult::default() })
}
