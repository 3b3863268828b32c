//! The embedded engine: SQLite, one file `signet.db` in the data folder.
//!
//! WAL with `synchronous=FULL`: a commit is on disk when it returns. One connection writes, on the
//! commit actor's thread; a small pool reads; a third kind only checkpoints, so that no commit ever
//! pays for it. One process at a time: the lock is held on `signet.lock` as long as a writer or a
//! reader is open.
//!
//! When a sync fails, nobody knows what the disk has of what was written before it, and no later sync
//! tells. Three rules follow, for the three places where that would matter:
//!
//! - A commit that fails is undone and answered as failed; the next one writes over the same part of
//!   the log, so it never builds on bytes that were given up (SQLite's own way).
//! - A log that is found when the store opens is written and synced once more before anything is added
//!   to it (`log`).
//! - After a sync failed in a checkpoint nothing is moved and the log does not start over, until every
//!   connection was closed and opened again: then all of the log is moved once more (`writer`).
//!
//! SQL that PostgreSQL would take too is written so that it does (`$1`, RETURNING, ON
//! CONFLICT); each domain's texts are in a file of their own.

mod certificates;
mod checkpoint;
mod crls;
mod documents;
#[cfg(test)]
mod fixture;
mod leases;
mod log;
mod meta;
mod metadata;
mod mounts;
mod reader;
mod revocations;
mod schema;
mod session;
mod tidy;
mod tokens;
mod writer;

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags};
use rustix::fs::FlockOperation;

use crate::error::{Error, Kind, Result};
#[cfg(test)]
pub(super) use fixture::Embedded;
pub(super) use reader::Pool;
pub(super) use writer::Writer;

/// Longest wait of a write for the end of a checkpoint that needs the writer's place.
const WRITER_WAIT: Duration = Duration::from_secs(30);
/// Room for every statement of this engine.
const STATEMENTS: usize = 256;

/// Opens the folder's database, brings its schema up to date, and returns its writer and its readers.
pub(super) fn open(folder: &Path) -> Result<(Writer, Pool)> {
    let failed = |e| Error::unavailable(format!("data folder {}: cannot be used", folder.display()), e);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let lock = Arc::new(lock(folder)?);
    let path = folder.join("signet.db");
    // SQLite gives its side files the mode of the main one.
    OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    File::open(folder).and_then(|f| f.sync_all()).map_err(failed)?;
    log::write_again(&path).map_err(failed)?;
    let mut db = connect_writer(&path)?;
    schema::migrate(&mut db)?;
    let reader = Pool::open(&path, lock.clone())?;
    Ok((Writer::new(db, path, lock, reader.clone())?, reader))
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("signet.lock");
    let failed = |e| Error::unavailable(format!("{}: cannot be opened", path.display()), e);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::new(Kind::Conflict, format!("data folder {}: in use by another signet process", folder.display()))
    })?;
    Ok(file)
}

fn connect_writer(path: &Path) -> Result<Connection> {
    let failed = |e| Error::unavailable(format!("{}: cannot be opened", path.display()), e);
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.busy_timeout(WRITER_WAIT).map_err(failed)?;
    // 16 MiB hold the upper levels of the serial index, which serials that are random hit everywhere. A larger
    // cache costs more than it saves: a commit that split a page walks the cache's whole hash table.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
         PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;",
    )
    .map_err(failed)?;
    keep_log_on_close(&db, true).map_err(failed)?;
    require_durable(&db, path)?;
    Ok(db)
}

/// Refuses a database that would lose what was answered as written.
fn require_durable(db: &Connection, path: &Path) -> Result<()> {
    let failed = |e| Error::unavailable(format!("{}: cannot be read", path.display()), e);
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
    let synchronous: i64 = db.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" || synchronous < 2 {
        return Err(Error::invalid(format!(
            "{}: durability is off (journal mode {mode}, synchronous {synchronous}; needed: wal, 2)",
            path.display()
        )));
    }
    Ok(())
}

/// Whether closing the connection leaves the log alone. Otherwise SQLite moves it and removes it, even
/// when an earlier sync has failed.
fn keep_log_on_close(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Why one unit was not stored.
enum Failure {
    /// A certificate's serial is taken.
    SerialTaken,
    /// What the unit builds on has changed.
    Conflict(&'static str),
    /// The engine failed.
    Engine(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

/// The statement, from the connection's cache.
fn prepared<'c>(db: &'c Connection, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
    let statement = db.prepare_cached(sql)?;
    // SQLite numbers `$n` by first appearance: only in that order is it what PostgreSQL understands.
    debug_assert!(
        (1..=statement.parameter_count()).all(|i| statement.parameter_name(i) == Some(&format!("${i}"))),
        "parameters out of order: {sql}"
    );
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_folder_is_0700_and_every_file_0600() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let _open = open(&folder).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap()).collect();
        assert!(files.len() >= 3, "database, log, lock");
        for file in files {
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", file.file_name());
        }
    }

    #[test]
    fn a_second_opening_of_the_same_folder_is_refused_until_the_first_ends() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path()).unwrap();
        let error = open(dir.path()).err().unwrap();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains("in use by another"));
        drop(first);
        assert!(open(dir.path()).is_ok());
    }

    #[test]
    fn durability_that_is_switched_off_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let db = Connection::open(&path).unwrap();
        assert!(require_durable(&db, &path).is_err(), "rollback journal");
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").unwrap();
        assert!(require_durable(&db, &path).unwrap_err().to_string().contains("synchronous 1"));
        db.execute_batch("PRAGMA synchronous = FULL").unwrap();
        assert!(require_durable(&db, &path).is_ok());
    }
}
