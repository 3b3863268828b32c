//! SQL of mounts, of their end, and of the counters.
//!
//! A mount that is dropped is gone at once: its documents, CRLs and counters go in the dropping
//! transaction, and no read finds rows of a mount that does not exist. Its certificates and
//! revocations, perhaps millions, follow in steps of a few milliseconds between commits.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::writer::Inserted;
use super::{Failure, prepared};
use crate::documents::{MountId, SYSTEM};
use crate::storage::backend::Outcome;
use crate::storage::sql::{conflict, mounts as sql};

/// The one node of an embedded store.
const NODE: i64 = 0;
/// Rows that one step removes.
const STEP: i64 = 200;

pub(super) fn create(db: &Connection, mount: MountId) -> Result<Outcome, Failure> {
    if prepared(db, sql::IS_DROPPED)?.exists([mount.0])? || prepared(db, sql::CREATE)?.execute([mount.0])? == 0 {
        return Err(Failure::Conflict(conflict::MOUNT_EXISTS));
    }
    Ok(Outcome::Done)
}

pub(super) fn exists(db: &Connection, mount: MountId) -> rusqlite::Result<bool> {
    prepared(db, sql::EXISTS)?.exists([mount.0])
}

pub(super) fn drop_mount(db: &Connection, mount: MountId) -> Result<Outcome, Failure> {
    if mount == SYSTEM || !exists(db, mount)? {
        return Err(Failure::Conflict(conflict::MOUNT_GONE));
    }
    for part in sql::DROP_PARTS {
        prepared(db, part)?.execute([mount.0])?;
    }
    prepared(db, sql::DROP)?.execute([mount.0])?;
    prepared(db, sql::MARK)?.execute([mount.0])?;
    Ok(Outcome::Done)
}

pub(super) fn any_dropped(db: &Connection) -> rusqlite::Result<bool> {
    prepared(db, sql::ANY_DROPPED)?.exists([])
}

/// Removes a few rows of a dropped mount; whether there is more to remove.
pub(super) fn remove_some_dropped(db: &Connection) -> rusqlite::Result<bool> {
    let next = prepared(db, sql::NEXT_DROPPED)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    let Some(mount) = next else { return Ok(false) };
    for rows in sql::REMOVE_SOME {
        if prepared(db, rows)?.execute(params![mount, STEP])? > 0 {
            return Ok(true);
        }
    }
    prepared(db, sql::REMOVED)?.execute([mount])?;
    any_dropped(db)
}

pub(super) fn count(db: &Connection, mount: MountId, inserted: Inserted) -> rusqlite::Result<()> {
    prepared(db, sql::COUNT)?.execute(params![mount.0, NODE, inserted.certificates, inserted.revocations]).map(drop)
}

/// Stored certificates and revocations.
pub(super) fn counts(db: &Connection, mount: MountId) -> rusqlite::Result<(u64, u64)> {
    prepared(db, sql::COUNTS)?
        .query_row([mount.0], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))
}
