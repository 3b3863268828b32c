//! SQL of issued certificates.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{SqliteError, page, prepare, serial};
use super::revocations;
use crate::documents::MountId;
use crate::pki::store::{CertificateRow, KnownSerial, SerialStatus, StoredCertificate};
use crate::storage::statements::certificates as sql;
use crate::x509::serial::Serial;

const INSERT: &str = "INSERT INTO certificate
    (mount, serial, issuer, role, common_name, not_before, not_after, issued_at, requester, der)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (mount, serial) DO NOTHING";

const SELECT_KNOWN: &str = "SELECT c.issuer, c.not_after, r.issuer
    FROM (SELECT id FROM mount WHERE id = $1) m
        LEFT JOIN certificate c ON c.mount = m.id AND c.serial = $2
        LEFT JOIN revocation r ON r.mount = m.id AND r.serial = $2";

pub(super) fn insert(db: &Connection, row: &CertificateRow) -> Result<(), SqliteError> {
    let stored = prepare(db, INSERT)?.execute(params![
        row.mount.0,
        row.serial.octets(),
        row.issuer,
        row.role,
        row.common_name,
        row.not_before,
        row.not_after,
        row.issued_at,
        row.requester,
        row.der,
    ])?;
    if stored == 0 { Err(SqliteError::SerialTaken) } else { Ok(()) }
}

pub(super) fn get(db: &Connection, mount: MountId, serial: Serial) -> rusqlite::Result<Option<StoredCertificate>> {
    let read = |row: &Row<'_>| {
        let certificate = CertificateRow {
            mount,
            serial,
            issuer: row.get(0)?,
            role: row.get(1)?,
            common_name: row.get(2)?,
            not_before: row.get(3)?,
            not_after: row.get(4)?,
            issued_at: row.get(5)?,
            requester: row.get(6)?,
            der: row.get(7)?,
        };
        let revoked = row.get::<_, Option<i64>>(8)?.is_some();
        let revocation = if revoked { Some(revocations::read(mount, row, 8)?) } else { None };
        Ok(StoredCertificate { row: certificate, revocation })
    };
    prepare(db, sql::GET)?.query_row(params![mount.0, serial.octets()], read).optional()
}

pub(super) fn status(db: &Connection, mount: MountId, serial: Serial) -> rusqlite::Result<SerialStatus> {
    let read = |row: &Row<'_>| {
        let revoked = row.get::<_, Option<i64>>(1)?.is_some();
        let revocation = if revoked { Some(revocations::read(mount, row, 1)?) } else { None };
        Ok(SerialStatus { issuer: row.get(0)?, revocation })
    };
    let found = prepare(db, sql::STATUS)?.query_row(params![mount.0, serial.octets()], read).optional()?;
    Ok(found.unwrap_or_default())
}

pub(super) fn known_serials(db: &Connection, mount: MountId, serials: &[Serial]) -> rusqlite::Result<Vec<KnownSerial>> {
    let mut statement = prepare(db, SELECT_KNOWN)?;
    let read = |row: &Row<'_>| {
        let certificate = row.get::<_, Option<String>>(0)?.zip(row.get::<_, Option<i64>>(1)?);
        Ok(KnownSerial { certificate, revocation: row.get(2)? })
    };
    let mut one = |serial: &Serial| statement.query_row(params![mount.0, serial.octets()], read).optional();
    serials.iter().map(|serial| Ok(one(serial)?.unwrap_or_default())).collect()
}

pub(super) fn serials(
    db: &Connection,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> rusqlite::Result<Vec<Serial>> {
    page(db, sql::SERIALS, mount, after, limit)
}

pub(super) fn with_der(
    db: &Connection,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> rusqlite::Result<Vec<(Serial, Vec<u8>)>> {
    let after = after.as_ref().map_or(&[][..], Serial::octets);
    prepare(db, sql::PAGE)?
        .query_map(params![mount.0, after, limit], |row| Ok((serial(row, 0)?, row.get(1)?)))?
        .collect()
}

pub(super) fn ending(
    db: &Connection,
    mount: MountId,
    from: i64,
    limit: u32,
) -> rusqlite::Result<Vec<(Serial, Vec<u8>)>> {
    prepare(db, sql::ENDING)?
        .query_map(params![mount.0, from, limit], |row| Ok((serial(row, 0)?, row.get(1)?)))?
        .collect()
}
