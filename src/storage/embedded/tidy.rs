//! SQL of tidy: mutual exclusion of runs, and the removal of expired rows in steps of limited size.
//!
//! Every statement uses an index: rows are found in the order of their expiry and deleted by their key.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::query::{SqliteError, count, prepare, serial};
use crate::documents::MountId;
use crate::pki::store::{RemovableRevocations, Removal, RemovalResult, TidyRow};
use crate::storage::statements::{conflict, tidy as sql};
use crate::x509::serial::Serial;

const DELETE_CERTIFICATE: &str = "DELETE FROM certificate WHERE mount = $1 AND serial = $2 AND not_after < $3";
const DELETE_REVOCATION: &str = "DELETE FROM revocation WHERE mount = $1 AND serial = $2";
const DELETE_REVOKED_CERTIFICATE: &str = "DELETE FROM certificate WHERE mount = $1 AND serial = $2 AND NOT EXISTS
    (SELECT 1 FROM revocation WHERE revocation.mount = certificate.mount AND revocation.serial = certificate.serial
        AND revocation.not_after >= $3)";
const END_ALL_RUNS: &str = "UPDATE tidy SET valid_until = 0";

/// Ends all runs when the store opens. No other process can own one.
pub(super) fn end_all_runs(db: &Connection) -> rusqlite::Result<()> {
    db.execute(END_ALL_RUNS, []).map(drop)
}

pub(super) fn get(db: &Connection, mount: MountId) -> rusqlite::Result<Option<TidyRow>> {
    let mut statement = prepare(db, sql::GET)?;
    let found = statement.query_row([mount.0], |row| {
        let run = row.get(0)?;
        let valid_until = row.get(1)?;
        let cancelled = row.get::<_, i64>(2)? != 0;
        Ok(TidyRow { mount, run, valid_until, cancelled, report: row.get(3)? })
    });
    found.optional()
}

pub(super) fn begin(db: &Connection, row: &TidyRow, seen: i64, now: i64) -> rusqlite::Result<u32> {
    let values = params![row.mount.0, row.run, row.valid_until, row.report, now, seen];
    prepare(db, sql::BEGIN)?.execute(values).map(count)
}

/// Extends a run; returns `true` if it was cancelled.
pub(super) fn extend(
    db: &Connection,
    mount: MountId,
    run: i64,
    valid_until: i64,
    report: &[u8],
) -> Result<bool, SqliteError> {
    let values = params![valid_until, report, mount.0, run];
    let cancelled = prepare(db, sql::KEEP)?.query_row(values, |row| row.get::<_, i64>(0)).optional()?;
    let cancelled = cancelled.ok_or(SqliteError::Conflict(conflict::TIDY_TAKEN))?;
    Ok(cancelled != 0)
}

pub(super) fn cancel(db: &Connection, mount: MountId, now: i64) -> rusqlite::Result<u32> {
    prepare(db, sql::CANCEL)?.execute(params![mount.0, now]).map(count)
}

pub(super) fn remove(db: &Connection, mount: MountId, what: &Removal, limit: u32) -> rusqlite::Result<RemovalResult> {
    match what {
        Removal::Certificates { before, revoked_before, after } => {
            remove_certificates(db, mount, *before, *revoked_before, *after, limit)
        }
        Removal::Revocations(listed) => remove_revocations(db, mount, *listed, limit),
        Removal::Metadata { before } => {
            let metadata = count(prepare(db, sql::DELETE_METADATA)?.execute(params![mount.0, before, limit])?);
            Ok(RemovalResult { metadata, visited: metadata, ..RemovalResult::default() })
        }
        Removal::Named { serials, revoked_before } => {
            let certificates = delete_each(db, DELETE_REVOKED_CERTIFICATE, mount, serials, *revoked_before)?;
            Ok(RemovalResult { certificates, visited: count(serials.len()), ..RemovalResult::default() })
        }
    }
}

fn remove_certificates(
    db: &Connection,
    mount: MountId,
    before: i64,
    revoked_before: i64,
    after: Option<(i64, Serial)>,
    limit: u32,
) -> rusqlite::Result<RemovalResult> {
    let (end, key) = after.as_ref().map_or((i64::MIN, &[][..]), |(end, serial)| (*end, serial.octets()));
    let page: Vec<(Serial, i64, i64)> = prepare(db, sql::EXPIRED_CERTIFICATES)?
        .query_map(params![mount.0, before, end, key, limit], |row| Ok((serial(row, 0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let goes = |(_, end, revoked): &&(Serial, i64, i64)| *revoked == 0 || *end < revoked_before;
    let serials: Vec<Serial> = page.iter().filter(goes).map(|(serial, ..)| *serial).collect();
    let certificates = delete_each(db, DELETE_CERTIFICATE, mount, &serials, before)?;
    let last = page.last().map(|(serial, end, _)| (*end, *serial));
    Ok(RemovalResult { certificates, visited: count(page.len()), last, ..RemovalResult::default() })
}

/// Returns `true` if a revocation of a certificate that expired before `before` is missing on a CRL that must list it.
pub(super) fn unlisted(
    db: &Connection,
    mount: MountId,
    before: i64,
    listed: RemovableRevocations,
) -> rusqlite::Result<bool> {
    prepare(db, sql::UNLISTED_REVOCATION)?.exists(params![mount.0, before, listed.before, listed.last()])
}

fn remove_revocations(
    db: &Connection,
    mount: MountId,
    listed: RemovableRevocations,
    limit: u32,
) -> rusqlite::Result<RemovalResult> {
    let serials: Vec<Serial> = prepare(db, sql::EXPIRED_REVOCATIONS)?
        .query_map(params![mount.0, listed.before, listed.last(), limit], |row| serial(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let certificates = delete_each(db, DELETE_CERTIFICATE, mount, &serials, listed.before)?;
    let mut statement = prepare(db, DELETE_REVOCATION)?;
    let mut revocations = 0;
    for serial in &serials {
        revocations += count(statement.execute(params![mount.0, serial.octets()])?);
    }
    Ok(RemovalResult { certificates, revocations, visited: count(serials.len()), ..RemovalResult::default() })
}

/// Runs a removal for each serial; returns the number of removed rows.
fn delete_each(db: &Connection, sql: &str, mount: MountId, serials: &[Serial], before: i64) -> rusqlite::Result<u32> {
    let mut statement = prepare(db, sql)?;
    let mut gone = 0;
    for serial in serials {
        gone += count(statement.execute(params![mount.0, serial.octets(), before])?);
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_rows_are_found_by_an_index_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let (_writer, _pool) = super::super::open(dir.path(), crate::clock::Time::UNIX_EPOCH).unwrap();
        let db = Connection::open(dir.path().join("signet.db")).unwrap();
        for (sql, index) in [
            (sql::EXPIRED_CERTIFICATES, "certificate_end (mount=? AND (not_after,serial)>(?,?) AND not_after<?)"),
            (sql::EXPIRED_REVOCATIONS, "revocation_end (mount=? AND not_after<?)"),
            (sql::UNLISTED_REVOCATION, "revocation_end (mount=? AND not_after>? AND not_after<?)"),
            (sql::UNLISTED_REVOCATION, "revocation_seq (mount=? AND seq>?)"),
            (sql::DELETE_METADATA, "certificate_metadata_end (mount=? AND not_after<?)"),
            (crate::storage::statements::certificates::ENDING, "certificate_end (mount=? AND not_after>?)"),
        ] {
            let plan = super::super::fixture::plan(&db, sql).join("\n");
            assert!(plan.contains(index), "{plan}");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}
