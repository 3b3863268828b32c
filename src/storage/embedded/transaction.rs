//! A write transaction on SQLite. All statements run synchronously.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::{Connection, params};

use super::query::{SqliteError, prepare};
use super::{certificates, revocations};
use crate::documents::MountId;
use crate::pki::store::{PkiOutcome, PkiWrite};
use crate::storage::engine::{InsertCounts, WriteTransaction};
use crate::storage::statements::{conflict, mounts as sql};

/// The node id of an embedded store, which has only one node.
const EMBEDDED_NODE_ID: i64 = 0;

/// The mounts that a transaction has found to exist, each with the number of rows that it inserted into the mount.
#[derive(Clone, Default)]
pub(super) struct MountCache(HashMap<MountId, InsertCounts>);

impl MountCache {
    /// Checks that a mount exists, with one query per mount and transaction. Returns the counts of the mount.
    fn counts_of_existing_mount(&mut self, db: &Connection, mount: MountId) -> Result<&mut InsertCounts, SqliteError> {
        match self.0.entry(mount) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(_) if !prepare(db, sql::EXISTS)?.exists([mount.0])? => {
                Err(SqliteError::Conflict(conflict::MOUNT_GONE))
            }
            Entry::Vacant(new) => Ok(new.insert(InsertCounts::default())),
        }
    }

    pub(super) fn write_counters(&self, db: &Connection) -> rusqlite::Result<()> {
        for (mount, InsertCounts { certificates, revocations }) in &self.0 {
            if *certificates != 0 || *revocations != 0 {
                prepare(db, sql::ADD_TO_COUNTER)?.execute(params![
                    mount.0,
                    EMBEDDED_NODE_ID,
                    certificates,
                    revocations
                ])?;
            }
        }
        Ok(())
    }
}

pub(super) struct SqliteTransaction<'w> {
    pub(super) db: &'w Connection,
    pub(super) known: &'w mut MountCache,
}

impl SqliteTransaction<'_> {
    /// Inserts a certificate, a row that belongs to a certificate, or a revocation. For any other write, returns `None`
    /// and does nothing.
    pub(super) fn insert(&mut self, write: &PkiWrite) -> Result<Option<PkiOutcome>, SqliteError> {
        let Self { db, known } = self;
        match write {
            PkiWrite::Certificate(row) => {
                let counts = known.counts_of_existing_mount(db, row.mount)?;
                certificates::insert(db, row)?;
                counts.certificates += 1;
            }
            PkiWrite::Lease(row) => {
                known.counts_of_existing_mount(db, row.mount)?;
                certificates::insert_lease(db, row)?;
            }
            PkiWrite::Metadata(row) => {
                known.counts_of_existing_mount(db, row.mount)?;
                certificates::insert_metadata(db, row)?;
            }
            PkiWrite::RecordedResponse(row) => certificates::insert_recorded_response(db, row)?,
            PkiWrite::Revocation(row) => {
                let counts = known.counts_of_existing_mount(db, row.mount)?;
                let (stored, fresh) = revocations::insert(db, row)?;
                counts.revocations += i64::from(fresh);
                return Ok(Some(PkiOutcome::Revoked { stored, fresh }));
            }
            _ => return Ok(None),
        }
        Ok(Some(PkiOutcome::Done))
    }
}

impl WriteTransaction for SqliteTransaction<'_> {
    type Connection = Connection;

    fn db(&self) -> &Connection {
        self.db
    }

    async fn require_mount(&mut self, mount: MountId) -> Result<(), SqliteError> {
        self.known.counts_of_existing_mount(self.db, mount).map(drop)
    }

    fn forget_mount(&mut self, mount: MountId) {
        self.known.0.remove(&mount);
    }

    fn counts(&mut self, mount: MountId) -> &mut InsertCounts {
        self.known.0.entry(mount).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::SqlValue;
    use crate::storage::embedded::session::rewrite_sql;
    use crate::storage::statements::{DELETE_FEW_ROWS_OF_MOUNT, DELETE_MANY_ROWS_OF_MOUNT, certificates, leases, tidy};

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
            // No statement of these lists deletes tokens, because tokens are revoked one by one together with their
            // leases.
            if table == "token" {
                return true;
            }
            let begin = format!("DELETE FROM {table} WHERE mount = $1");
            DELETE_FEW_ROWS_OF_MOUNT.iter().chain(&DELETE_MANY_ROWS_OF_MOUNT).any(|statement| {
                statement.strip_prefix(begin.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        };
        let left: Vec<_> = tables.iter().filter(|table| !emptied(table)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn expired_rows_are_found_by_an_index_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let (_writer, _pool) = super::super::open(dir.path(), crate::clock::Time::UNIX_EPOCH).unwrap();
        let db = Connection::open(dir.path().join("signet.db")).unwrap();
        for (sql, index) in [
            (tidy::EXPIRED_CERTIFICATES, "certificate_end (mount=? AND (not_after,serial)>(?,?) AND not_after<?)"),
            (tidy::EXPIRED_REVOCATIONS, "revocation_end (mount=? AND not_after<?)"),
            (tidy::UNLISTED_REVOCATION, "revocation_end (mount=? AND not_after>? AND not_after<?)"),
            (tidy::UNLISTED_REVOCATION, "revocation_seq (mount=? AND seq>?)"),
            (tidy::DELETE_METADATA, "certificate_metadata_end (mount=? AND not_after<?)"),
            (certificates::SELECT_UNEXPIRED, "certificate_end (mount=? AND not_after>?)"),
        ] {
            let plan = super::super::fixture::query_plan(&db, sql).join("\n");
            assert!(plan.contains(index), "{plan}");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }

    #[test]
    fn lists_of_keys_are_looked_up_in_an_index() {
        let mut db = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&mut db).unwrap();
        let serials = vec![SqlValue::Null, SqlValue::ByteStrings(Vec::new())];
        let ids = vec![SqlValue::Texts(Vec::new())];
        for (sql, values, index) in [
            (certificates::SELECT_KNOWN_SERIALS, &serials, "certificate_serial (mount=? AND serial=?)"),
            (certificates::SELECT_KNOWN_SERIALS, &serials, "sqlite_autoindex_revocation_1 (mount=? AND serial=?)"),
            (tidy::DELETE_CERTIFICATES, &serials, "certificate_serial (mount=? AND serial=?)"),
            (tidy::DELETE_REVOKED_CERTIFICATES, &serials, "certificate_serial (mount=? AND serial=?)"),
            (tidy::DELETE_REVOCATIONS, &serials, "sqlite_autoindex_revocation_1 (mount=? AND serial=?)"),
            (leases::MARK_ENDING, &ids, "sqlite_autoindex_lease_1 (id=?)"),
            (leases::DELETE, &ids, "sqlite_autoindex_lease_1 (id=?)"),
        ] {
            let plan = super::super::fixture::query_plan(&db, &rewrite_sql(sql, values)).join("\n");
            assert!(plan.contains(index), "{plan}");
        }
    }
}
