//! SQL of issued certificates, and of the rows that are stored with them: leases, metadata and recorded responses.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::query::{SqliteError, prepare};
use super::revocations;
use crate::documents::MountId;
use crate::pki::store::{CertificateRow, LeaseRow, MetadataRow, RecordedResponseRow, SerialStatus, StoredCertificate};
use crate::storage::statements::{certificates as sql, conflict};
use crate::x509::serial::Serial;

const INSERT: &str = "INSERT INTO certificate
    (mount, serial, issuer, role, common_name, not_before, not_after, issued_at, requester, der)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (mount, serial) DO NOTHING";

const SELECT_LIVE_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 AND (uses IS NULL OR uses > 0)";
const INSERT_LEASE: &str = "INSERT INTO lease (id, mount, serial, token, issued_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

const INSERT_METADATA: &str = "INSERT INTO certificate_metadata (mount, serial, not_after, body)
    VALUES ($1, $2, $3, $4) ON CONFLICT (mount, serial) DO NOTHING";

const INSERT_RECORDED_RESPONSE: &str =
    "INSERT INTO answered_request (key, request, serial, lease, expires_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (key) DO UPDATE SET request = excluded.request, serial = excluded.serial, lease = excluded.lease,
        expires_at = excluded.expires_at
    WHERE answered_request.expires_at <= $6";

pub(super) fn insert(db: &Connection, row: &CertificateRow) -> Result<(), SqliteError> {
    let values = params![
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
    ];
    insert_new(db, INSERT, values)
}

pub(super) fn insert_lease(db: &Connection, row: &LeaseRow) -> Result<(), SqliteError> {
    // A lease is only created for a live token: a lease created during the revocation of its token would never be
    // revoked.
    if !prepare(db, SELECT_LIVE_TOKEN)?.exists([row.token])? {
        return Err(SqliteError::Conflict(conflict::TOKEN_GONE));
    }
    let values = params![row.id, row.mount.0, row.serial.octets(), row.token, row.issued_at, row.expires_at];
    insert_new(db, INSERT_LEASE, values)
}

pub(super) fn insert_metadata(db: &Connection, row: &MetadataRow) -> Result<(), SqliteError> {
    insert_new(db, INSERT_METADATA, params![row.mount.0, row.serial.octets(), row.not_after, row.body])
}

pub(super) fn insert_recorded_response(db: &Connection, row: &RecordedResponseRow) -> Result<(), SqliteError> {
    let RecordedResponseRow { key, request, serial, lease, expires_at } = row;
    let values = params![key, request, serial.octets(), lease, expires_at, row.responded_at()];
    insert_new(db, INSERT_RECORDED_RESPONSE, values)
}

/// Inserts a row. A row with the same key is reported as `SerialTaken`.
fn insert_new(db: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<(), SqliteError> {
    if prepare(db, sql)?.execute(values)? == 0 { Err(SqliteError::SerialTaken) } else { Ok(()) }
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
        let revocation = if revoked { Some(revocations::read_revocation(mount, row, 8)?) } else { None };
        Ok(StoredCertificate { row: certificate, revocation })
    };
    prepare(db, sql::GET)?.query_row(params![mount.0, serial.octets()], read).optional()
}

pub(super) fn status(db: &Connection, mount: MountId, serial: Serial) -> rusqlite::Result<SerialStatus> {
    let read = |row: &Row<'_>| {
        let revoked = row.get::<_, Option<i64>>(1)?.is_some();
        let revocation = if revoked { Some(revocations::read_revocation(mount, row, 1)?) } else { None };
        Ok(SerialStatus { issuer: row.get(0)?, revocation })
    };
    let found =
        prepare(db, sql::SELECT_SERIAL_STATUS)?.query_row(params![mount.0, serial.octets()], read).optional()?;
    Ok(found.unwrap_or_default())
}
