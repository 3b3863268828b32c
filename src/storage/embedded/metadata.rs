//! SQL of certificate metadata.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::query::{SqliteError, page, prepare};
use crate::documents::MountId;
use crate::pki::store::MetadataRow;
use crate::storage::statements::metadata as sql;
use crate::x509::serial::Serial;

const INSERT: &str = "INSERT INTO certificate_metadata (mount, serial, not_after, body) VALUES ($1, $2, $3, $4)
    ON CONFLICT (mount, serial) DO NOTHING";

pub(super) fn insert(db: &Connection, row: &MetadataRow) -> Result<(), SqliteError> {
    let stored = prepare(db, INSERT)?.execute(params![row.mount.0, row.serial.octets(), row.not_after, row.body])?;
    if stored == 0 { Err(SqliteError::SerialTaken) } else { Ok(()) }
}

pub(super) fn get(db: &Connection, mount: MountId, serial: Serial) -> rusqlite::Result<Option<MetadataRow>> {
    let mut statement = prepare(db, sql::GET)?;
    let found = statement.query_row(params![mount.0, serial.octets()], |row| {
        Ok(MetadataRow { mount, serial, not_after: row.get(0)?, body: row.get(1)? })
    });
    found.optional()
}

pub(super) fn serials(
    db: &Connection,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> rusqlite::Result<Vec<Serial>> {
    page(db, sql::SERIALS, mount, after, limit)
}
