//! SQL of issued certificates and their metadata.

use super::query::{PostgresClient, PostgresError, column, insert, row};
use super::revocations;
use crate::documents::MountId;
use crate::pki::store::{CertificateRow, MetadataRow, SerialStatus, StoredCertificate};
use crate::storage::statements::certificates as sql;
use crate::x509::serial::Serial;

const INSERT: &str = "INSERT INTO certificate
    (mount, serial, issuer, role, common_name, not_before, not_after, issued_at, requester, der)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BYTEA[]), UNNEST($3::TEXT[]), UNNEST($4::TEXT[]), UNNEST($5::TEXT[]),
        UNNEST($6::BIGINT[]), UNNEST($7::BIGINT[]), UNNEST($8::BIGINT[]), UNNEST($9::TEXT[]), UNNEST($10::BYTEA[])";

const INSERT_METADATA: &str = "INSERT INTO certificate_metadata (mount, serial, not_after, body)
    SELECT UNNEST($1::BIGINT[]), UNNEST($2::BYTEA[]), UNNEST($3::BIGINT[]), UNNEST($4::BYTEA[])";

/// Inserts the rows of certificates in one statement. Fails with `SerialTaken` if a serial number is taken, and then
/// the caller must roll back to its savepoint or the whole transaction.
pub(super) async fn insert_all(db: &PostgresClient, all: &[&CertificateRow]) -> Result<(), PostgresError> {
    insert(
        db,
        INSERT,
        &[
            &column(all, |row| row.mount.0),
            &column(all, |row| row.serial.octets()),
            &column(all, |row| row.issuer.as_str()),
            &column(all, |row| row.role.as_deref()),
            &column(all, |row| row.common_name.as_deref()),
            &column(all, |row| row.not_before),
            &column(all, |row| row.not_after),
            &column(all, |row| row.issued_at),
            &column(all, |row| row.requester.as_str()),
            &column(all, |row| row.der.as_slice()),
        ],
    )
    .await
}

/// As [`insert_all`], for rows of certificate metadata.
pub(super) async fn insert_metadata(db: &PostgresClient, all: &[&MetadataRow]) -> Result<(), PostgresError> {
    insert(
        db,
        INSERT_METADATA,
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
) -> Result<Option<StoredCertificate>, PostgresError> {
    let Some(found) = row(db, sql::GET, &[&mount.0, &serial.octets()]).await? else { return Ok(None) };
    let certificate = CertificateRow {
        mount,
        serial,
        issuer: found.try_get(0)?,
        role: found.try_get(1)?,
        common_name: found.try_get(2)?,
        not_before: found.try_get(3)?,
        not_after: found.try_get(4)?,
        issued_at: found.try_get(5)?,
        requester: found.try_get(6)?,
        der: found.try_get(7)?,
    };
    let revoked = found.try_get::<_, Option<i64>>(8)?.is_some();
    let revocation = if revoked { Some(revocations::read_revocation(mount, &found, 8)?) } else { None };
    Ok(Some(StoredCertificate { row: certificate, revocation }))
}

pub(super) async fn status(db: &PostgresClient, mount: MountId, serial: Serial) -> Result<SerialStatus, PostgresError> {
    let Some(found) = row(db, sql::SELECT_SERIAL_STATUS, &[&mount.0, &serial.octets()]).await? else {
        return Ok(SerialStatus::default());
    };
    let revoked = found.try_get::<_, Option<i64>>(1)?.is_some();
    let revocation = if revoked { Some(revocations::read_revocation(mount, &found, 1)?) } else { None };
    Ok(SerialStatus { issuer: found.try_get(0)?, revocation })
}
