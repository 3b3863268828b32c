//! SQL of published CRLs.

use rusqlite::{Connection, params};

use super::{Failure, prepared};
use crate::documents::MountId;
use crate::pki::store::CrlRow;
use crate::storage::backend::Outcome;

const PUBLISH: &str = "INSERT INTO crl (mount, grp, number, covers, this_update, next_update, signature)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (mount, grp) DO UPDATE SET number = excluded.number, covers = excluded.covers,
        this_update = excluded.this_update, next_update = excluded.next_update, signature = excluded.signature
    WHERE excluded.number > crl.number AND excluded.covers >= crl.covers";
const LIST: &str = "SELECT grp, number, covers, this_update, next_update, signature FROM crl
    WHERE mount = $1 ORDER BY grp";

pub(super) fn publish(db: &Connection, row: &CrlRow) -> Result<Outcome, Failure> {
    let stored = prepared(db, PUBLISH)?.execute(params![
        row.mount.0,
        row.group,
        row.number as i64,
        row.covers as i64,
        row.this_update,
        row.next_update,
        row.signature,
    ])?;
    if stored == 0 {
        return Err(Failure::Conflict(
            "storage: a CRL with this or a higher number, or of later revocations, is published",
        ));
    }
    Ok(Outcome::Done)
}

pub(super) fn list(db: &Connection, mount: MountId) -> rusqlite::Result<Vec<CrlRow>> {
    prepared(db, LIST)?
        .query_map([mount.0], |row| {
            Ok(CrlRow {
                mount,
                group: row.get(0)?,
                number: row.get::<_, i64>(1)? as u64,
                covers: row.get::<_, i64>(2)? as u64,
                this_update: row.get(3)?,
                next_update: row.get(4)?,
                signature: row.get(5)?,
            })
        })?
        .collect()
}
