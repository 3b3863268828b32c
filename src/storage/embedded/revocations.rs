//! SQL of revocations, which are idempotent. Their sequence numbers are assigned without gaps.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{SqliteError, prepare, read_serial, read_time};
use crate::documents::MountId;
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::storage::backend::micros;
use crate::storage::statements::revocations as sql;

const SELECT_REVOCATION: &str = "SELECT seq, serial, issuer, revoked_at_micros, not_after, reason, invalidity_date
    FROM revocation WHERE mount = $1 AND serial = $2";
const NEXT_SEQUENCE: &str = "UPDATE mount SET rev_seq = rev_seq + 1 WHERE id = $1 RETURNING rev_seq";
const INSERT: &str = "INSERT INTO revocation
    (mount, serial, seq, issuer, revoked_at_micros, not_after, reason, invalidity_date)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const AMEND: &str =
    "UPDATE revocation SET seq = $1, reason = $2, invalidity_date = $3 WHERE mount = $4 AND serial = $5";

/// Inserts a revocation, or amends the stored revocation of the same serial. Returns the stored revocation, and `true`
/// if this call created it. The sequence number comes from the mount's row in the same transaction, so a failed
/// transaction releases the number, and numbers become visible in ascending order.
pub(super) fn insert(db: &Connection, row: &RevocationRow) -> Result<(StoredRevocation, bool), SqliteError> {
    let key = params![row.mount.0, row.serial.octets()];
    if let Some(stored) =
        prepare(db, SELECT_REVOCATION)?.query_row(key, |found| read_revocation(row.mount, found, 0)).optional()?
    {
        let Some(amended) = stored.row.amended_by(row) else { return Ok((stored, false)) };
        return Ok((amend(db, amended)?, false));
    }
    let sequence = next_sequence(db, row.mount)?;
    prepare(db, INSERT)?.execute(params![
        row.mount.0,
        row.serial.octets(),
        sequence,
        row.issuer,
        micros(row.revoked_at),
        row.not_after,
        row.reason,
        row.invalidity_date,
    ])?;
    Ok((StoredRevocation { row: row.clone(), sequence: sequence as u64 }, true))
}

/// Changes the reason of a stored revocation, and gives the revocation the next sequence number.
fn amend(db: &Connection, row: RevocationRow) -> rusqlite::Result<StoredRevocation> {
    let sequence = next_sequence(db, row.mount)?;
    let key = (row.mount.0, row.serial.octets());
    prepare(db, AMEND)?.execute(params![sequence, row.reason, row.invalidity_date, key.0, key.1])?;
    Ok(StoredRevocation { row, sequence: sequence as u64 })
}

fn next_sequence(db: &Connection, mount: MountId) -> rusqlite::Result<i64> {
    prepare(db, NEXT_SEQUENCE)?.query_row([mount.0], |row| row.get(0))
}

pub(super) fn by_sequence(
    db: &Connection,
    mount: MountId,
    after: i64,
    limit: u32,
) -> rusqlite::Result<Vec<StoredRevocation>> {
    prepare(db, sql::PAGE)?.query_map(params![mount.0, after, limit], |row| read_revocation(mount, row, 0))?.collect()
}

/// Reads a revocation from column `first` on: seq, serial, issuer, revoked_at_micros, not_after, reason and
/// invalidity_date.
pub(super) fn read_revocation(mount: MountId, row: &Row<'_>, first: usize) -> rusqlite::Result<StoredRevocation> {
    Ok(StoredRevocation {
        sequence: row.get::<_, i64>(first)? as u64,
        row: RevocationRow {
            mount,
            serial: read_serial(row, first + 1)?,
            issuer: row.get(first + 2)?,
            revoked_at: read_time(row, first + 3)?,
            not_after: row.get(first + 4)?,
            reason: row.get(first + 5)?,
            invalidity_date: row.get(first + 6)?,
        },
    })
}
