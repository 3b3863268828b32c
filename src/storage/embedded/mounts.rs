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

/// The one node of an embedded store.
const NODE: i64 = 0;
/// Rows that one step removes.
const STEP: i64 = 200;

const CREATE: &str = "INSERT INTO mount (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";
const IS_DROPPED: &str = "SELECT 1 FROM dropped_mount WHERE id = $1";
const MARK: &str = "INSERT INTO dropped_mount (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";
/// Before the mount itself, to which they refer.
const DROP_PARTS: [&str; 3] = [
    "DELETE FROM document WHERE mount = $1",
    "DELETE FROM crl WHERE mount = $1",
    "DELETE FROM counter WHERE mount = $1",
];
const DROP: &str = "DELETE FROM mount WHERE id = $1";
const REMOVE_SOME: [&str; 2] = [
    "DELETE FROM certificate WHERE mount = $1 AND serial IN
        (SELECT serial FROM certificate WHERE mount = $1 ORDER BY serial LIMIT $2)",
    "DELETE FROM revocation WHERE mount = $1 AND serial IN
        (SELECT serial FROM revocation WHERE mount = $1 ORDER BY serial LIMIT $2)",
];
const COUNT: &str = "INSERT INTO counter (mount, node, certificates, revocations) VALUES ($1, $2, $3, $4)
    ON CONFLICT (mount, node) DO UPDATE SET certificates = counter.certificates + excluded.certificates,
        revocations = counter.revocations + excluded.revocations";
const COUNTS: &str =
    "SELECT CAST(COALESCE(SUM(certificates), 0) AS BIGINT), CAST(COALESCE(SUM(revocations), 0) AS BIGINT)
    FROM counter WHERE mount = $1";

pub(super) fn create(db: &Connection, mount: MountId) -> Result<Outcome, Failure> {
    if prepared(db, IS_DROPPED)?.exists([mount.0])? || prepared(db, CREATE)?.execute([mount.0])? == 0 {
        return Err(Failure::Conflict("storage: the mount exists"));
    }
    Ok(Outcome::Done)
}

pub(super) fn exists(db: &Connection, mount: MountId) -> rusqlite::Result<bool> {
    prepared(db, "SELECT 1 FROM mount WHERE id = $1")?.exists([mount.0])
}

pub(super) fn drop_mount(db: &Connection, mount: MountId) -> Result<Outcome, Failure> {
    if mount == SYSTEM || !exists(db, mount)? {
        return Err(Failure::Conflict("storage: the mount is gone"));
    }
    for sql in DROP_PARTS {
        prepared(db, sql)?.execute([mount.0])?;
    }
    prepared(db, DROP)?.execute([mount.0])?;
    prepared(db, MARK)?.execute([mount.0])?;
    Ok(Outcome::Done)
}

pub(super) fn any_dropped(db: &Connection) -> rusqlite::Result<bool> {
    prepared(db, "SELECT 1 FROM dropped_mount LIMIT 1")?.exists([])
}

/// Removes a few rows of a dropped mount; whether there is more to remove.
pub(super) fn remove_some_dropped(db: &Connection) -> rusqlite::Result<bool> {
    let next = prepared(db, "SELECT id FROM dropped_mount ORDER BY id LIMIT 1")?
        .query_row([], |row| row.get::<_, i64>(0))
        .optional()?;
    let Some(mount) = next else { return Ok(false) };
    for sql in REMOVE_SOME {
        if prepared(db, sql)?.execute(params![mount, STEP])? > 0 {
            return Ok(true);
        }
    }
    prepared(db, "DELETE FROM dropped_mount WHERE id = $1")?.execute([mount])?;
    any_dropped(db)
}

pub(super) fn count(db: &Connection, mount: MountId, inserted: Inserted) -> rusqlite::Result<()> {
    prepared(db, COUNT)?.execute(params![mount.0, NODE, inserted.certificates, inserted.revocations]).map(drop)
}

/// Stored certificates and revocations.
pub(super) fn counts(db: &Connection, mount: MountId) -> rusqlite::Result<(u64, u64)> {
    prepared(db, COUNTS)?.query_row([mount.0], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))
}
