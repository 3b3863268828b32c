//! SQL of completed requests that may be repeated.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::query::{SqliteError, count, prepare, serial};
use crate::pki::store::RecordedResponseRow;
use crate::storage::statements::recorded_responses as sql;

const INSERT: &str =
    "INSERT INTO answered_request (key, request, serial, lease, expires_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (key) DO UPDATE SET request = excluded.request, serial = excluded.serial, lease = excluded.lease,
        expires_at = excluded.expires_at
    WHERE answered_request.expires_at <= $6";

pub(super) fn insert(db: &Connection, row: &RecordedResponseRow) -> Result<(), SqliteError> {
    let RecordedResponseRow { key, request, serial, lease, expires_at } = row;
    let values = params![key, request, serial.octets(), lease, expires_at, row.responded_at()];
    if prepare(db, INSERT)?.execute(values)? == 0 { Err(SqliteError::SerialTaken) } else { Ok(()) }
}

pub(super) fn sweep(db: &Connection, now: i64, limit: u32) -> rusqlite::Result<u32> {
    prepare(db, sql::SWEEP)?.execute(params![now, limit]).map(count)
}

pub(super) fn get(db: &Connection, key: [u8; 32]) -> rusqlite::Result<Option<RecordedResponseRow>> {
    let mut statement = prepare(db, sql::GET)?;
    let found = statement.query_row([key], |row| {
        let request = row.get(0)?;
        let serial = serial(row, 1)?;
        Ok(RecordedResponseRow { key, request, serial, lease: row.get(2)?, expires_at: row.get(3)? })
    });
    found.optional()
}
