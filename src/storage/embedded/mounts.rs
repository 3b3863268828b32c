//! SQL of mounts, their removal, and the counters.
//!
//! A dropped mount disappears immediately: the same transaction removes its documents, CRLs and counters, and reads
//! skip rows of missing mounts. Certificates, revocations and tokens, perhaps millions, are removed in short steps
//! between commits. The first step for tokens is part of the drop, so that a few leases end without delay.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::query::{SqliteError, prepare};
use super::tokens;
use crate::documents::{MountId, SYSTEM_MOUNT};
use crate::storage::statements::{DROP_PARTS, REMOVE_SOME, conflict, mounts as sql};

/// The node id of an embedded store.
const EMBEDDED_NODE_ID: i64 = 0;
/// Rows per step.
const ROWS_PER_STEP: i64 = 200;

/// Net number of rows that a transaction inserted into a mount.
#[derive(Clone, Copy, Default)]
pub(super) struct SqliteInsertCounts {
    pub(super) certificates: i64,
    pub(super) revocations: i64,
}

/// The existing mounts that a transaction writes to, and the rows that it inserted.
#[derive(Clone, Default)]
pub(super) struct MountCache(HashMap<MountId, SqliteInsertCounts>);

impl MountCache {
    /// Checks that a mount exists, with one query per transaction, and returns its counts.
    pub(super) fn mount(&mut self, db: &Connection, mount: MountId) -> Result<&mut SqliteInsertCounts, SqliteError> {
        match self.0.entry(mount) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(_) if !exists(db, mount)? => Err(SqliteError::Conflict(conflict::MOUNT_GONE)),
            Entry::Vacant(new) => Ok(new.insert(SqliteInsertCounts::default())),
        }
    }

    /// Removes a mount that is dropped in this transaction.
    pub(super) fn forget(&mut self, mount: MountId) {
        self.0.remove(&mount);
    }

    pub(super) fn write_counters(&self, db: &Connection) -> rusqlite::Result<()> {
        for (mount, inserted) in &self.0 {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                add_counts(db, *mount, *inserted)?;
            }
        }
        Ok(())
    }
}

pub(super) fn create(db: &Connection, mount: MountId) -> Result<(), SqliteError> {
    if prepare(db, sql::IS_DROPPED)?.exists([mount.0])? || prepare(db, sql::CREATE)?.execute([mount.0])? == 0 {
        return Err(SqliteError::Conflict(conflict::MOUNT_EXISTS));
    }
    Ok(())
}

pub(super) fn exists(db: &Connection, mount: MountId) -> rusqlite::Result<bool> {
    prepare(db, sql::EXISTS)?.exists([mount.0])
}

pub(super) fn drop_mount(db: &Connection, mount: MountId) -> Result<(), SqliteError> {
    if mount == SYSTEM_MOUNT || !exists(db, mount)? {
        return Err(SqliteError::Conflict(conflict::MOUNT_GONE));
    }
    for part in DROP_PARTS {
        prepare(db, part)?.execute([mount.0])?;
    }
    prepare(db, sql::DROP)?.execute([mount.0])?;
    prepare(db, sql::MARK)?.execute([mount.0])?;
    tokens::revoke_of_mount(db, mount.0, ROWS_PER_STEP)?;
    Ok(())
}

pub(super) fn has_dropped(db: &Connection) -> rusqlite::Result<bool> {
    prepare(db, sql::ANY_DROPPED)?.exists([])
}

/// Removes a few rows of a dropped mount; returns `true` if more are left.
pub(super) fn remove_dropped_rows(db: &Connection) -> rusqlite::Result<bool> {
    let next = prepare(db, sql::NEXT_DROPPED)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    let Some(mount) = next else { return Ok(false) };
    if tokens::revoke_of_mount(db, mount, ROWS_PER_STEP)? {
        return Ok(true);
    }
    for rows in REMOVE_SOME {
        if prepare(db, rows)?.execute(params![mount, ROWS_PER_STEP])? > 0 {
            return Ok(true);
        }
    }
    prepare(db, sql::REMOVED)?.execute([mount])?;
    has_dropped(db)
}

fn add_counts(db: &Connection, mount: MountId, inserted: SqliteInsertCounts) -> rusqlite::Result<()> {
    prepare(db, sql::COUNT)?
        .execute(params![mount.0, EMBEDDED_NODE_ID, inserted.certificates, inserted.revocations])
        .map(drop)
}

/// The numbers of stored certificates and revocations.
pub(super) fn read_counts(db: &Connection, mount: MountId) -> rusqlite::Result<(u64, u64)> {
    prepare(db, sql::COUNTS)?
        .query_row([mount.0], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_mount_loses_its_rows_in_every_table() {
        let mut db = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&mut db).unwrap();
        let of_mounts = "SELECT t.name FROM sqlite_master t, pragma_table_info(t.name) c
            WHERE t.type = 'table' AND c.name = 'mount'";
        let tables: Vec<String> =
            db.prepare(of_mounts).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(tables.len() >= 8, "{tables:?}");
        let emptied = |table: &String| {
            // Tokens are removed individually, with their leases.
            if table == "token" {
                return true;
            }
            let begin = format!("DELETE FROM {table} WHERE mount = $1");
            DROP_PARTS.iter().chain(&REMOVE_SOME).any(|statement| {
                statement.strip_prefix(begin.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        };
        let left: Vec<_> = tables.iter().filter(|table| !emptied(table)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
