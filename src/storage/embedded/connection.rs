//! The connections to the SQLite database and their settings, the lock on its folder, and the check of its durability.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::FlockOperation;

use crate::error::{Error, Kind, Result, describe_io_error};
use crate::storage::disk_space;

/// Maximum time that a write waits for a checkpoint that holds the writer lock.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that a read waits while the log is recovered.
const READER_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Size in bytes to which SQLite truncates a longer log file when it reuses it from the beginning. The checkpointer
/// keeps the log below this size, except during a long backup.
const MAX_LOG_BYTES: u64 = 320 << 20;
const READ_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// Maximum number of prepared statements cached per connection. This engine has fewer statements.
const STATEMENT_CACHE_CAPACITY: usize = 256;

/// Locks the data folder for this process, as long as the returned file is open.
///
/// # Errors
/// `Conflict` when another process has the lock.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("signet.lock");
    let failed = |e| Error::of_io(path.display(), "opened", e);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        let rule = "in use by another signet process: stop that process first";
        Error::new(Kind::Conflict, format!("data folder {}: {rule}", folder.display()))
    })?;
    Ok(file)
}

pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    let failed = |e: rusqlite::Error| {
        Error::unavailable(format!("{}: cannot be opened ({})", path.display(), describe_open_error(path, &e)), e)
    };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(failed)?;
    cache_statements(&db).map_err(failed)?;
    db.busy_timeout(WRITER_BUSY_TIMEOUT).map_err(failed)?;
    // A page cache of 16 MiB holds the upper levels of the index of serials, which inserts access everywhere because
    // serials are random. A larger cache costs more than it saves: a commit that splits a page walks the whole hash
    // table of the cache.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
         PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;",
    )
    .map_err(failed)?;
    set_max_log_size(&db, MAX_LOG_BYTES).map_err(failed)?;
    keep_log_on_close(&db, true).map_err(failed)?;
    require_durable(&db, path)?;
    Ok(db)
}

/// Describes an error that occurred while the database was opened. SQLite reports a full disk as an I/O error when it
/// grows the index of the log.
fn describe_open_error(path: &Path, e: &rusqlite::Error) -> String {
    let is_of_disk = matches!(e.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull));
    match path.parent().and_then(disk_space::insufficient_free_bytes) {
        Some(_) if is_of_disk => describe_io_error(std::io::ErrorKind::StorageFull),
        _ => e.to_string(),
    }
}

pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    configure_reader(Connection::open_with_flags(path, READ_FLAGS)?)
}

/// As [`open_reader`], for a database file that has no log and does not change. SQLite creates no other files for it.
pub(super) fn open_immutable_reader(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = "file:".to_owned();
    for &octet in path.as_os_str().as_bytes() {
        match octet {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(octet)),
            _ if octet.is_ascii_alphanumeric() => uri.push(char::from(octet)),
            _ => uri.push_str(&format!("%{octet:02X}")),
        }
    }
    configure_reader(Connection::open_with_flags(uri + "?immutable=1", READ_FLAGS | OpenFlags::SQLITE_OPEN_URI)?)
}

fn configure_reader(db: Connection) -> rusqlite::Result<Connection> {
    cache_statements(&db)?;
    db.busy_timeout(READER_BUSY_TIMEOUT)?;
    db.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;")?;
    Ok(db)
}

/// Prevents SQLite from preparing a cached statement again for other parameter values. Another preparation would cost
/// ten times as much as reading a row, and could not improve plans, because the database has no statistics.
fn cache_statements(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Rejects a database that could lose committed writes.
fn require_durable(db: &Connection, path: &Path) -> Result<()> {
    let failed = |e: rusqlite::Error| Error::unavailable(format!("{}: cannot be read ({e})", path.display()), e);
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
    let synchronous: i64 = db.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" || synchronous < 2 {
        return Err(Error::invalid(format!(
            "{}: durability is off (journal mode {mode}, synchronous {synchronous}; required: wal, 2)",
            path.display()
        )));
    }
    Ok(())
}

/// If `keep` is `true`, closing the connection keeps the log. Otherwise SQLite moves the log's pages into the database
/// file and deletes the log, even after a failed sync.
pub(super) fn keep_log_on_close(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Sets the size to which SQLite truncates a longer log file when a commit reuses it from the beginning.
fn set_max_log_size(db: &Connection, bytes: u64) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "journal_size_limit", bytes as i64, |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grown_log_is_truncated_when_it_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (b BLOB)").unwrap();
        let db = open_writer(&path).unwrap();
        let limit: i64 = db.query_row("PRAGMA journal_size_limit", [], |row| row.get(0)).unwrap();
        assert_eq!(limit, MAX_LOG_BYTES as i64);
        let insert = |mib: u32| {
            for _ in 0..mib {
                db.execute("INSERT INTO t VALUES (randomblob(1048576))", []).unwrap();
            }
        };
        let size = || std::fs::metadata(super::super::log::log_path(&path)).unwrap().len();
        let moved = || db.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
        set_max_log_size(&db, 3 << 20).unwrap();
        insert(6);
        let long = size();
        assert!(long > 6 << 20);
        moved();
        assert_eq!(size(), long, "not before it starts over");
        insert(1);
        assert_eq!(size(), 3 << 20);
        insert(1);
        moved();
        insert(1);
        assert_eq!(size(), 3 << 20, "what is shorter stays as it is");
    }

    #[test]
    fn immutable_reader_opens_any_file_name_and_creates_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a%41 ?#b\u{e9}");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("x.db");
        let db = writer_of(&path);
        keep_log_on_close(&db, false).unwrap();
        db.close().unwrap();
        let db = open_immutable_reader(&path).unwrap();
        let found: i64 = db.query_row("SELECT n FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!((found, std::fs::read_dir(&folder).unwrap().count()), (7, 1));
    }

    fn writer_of(path: &Path) -> Connection {
        drop(File::create(path).unwrap());
        let db = open_writer(path).unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (7)").unwrap();
        db
    }

    #[test]
    fn database_without_durability_is_rejected() {
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
