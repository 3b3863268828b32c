//! Checkpoints of the write-ahead log into the database file, on a low-priority thread with its own connection.
//!
//! A passive checkpoint blocks nothing. But under steady writes it never reaches the end of the log, and SQLite can
//! reuse the log file only when all of its pages are moved. So above a second limit, a full checkpoint moves the
//! remaining pages while the writer waits. SQLite counts pages as moved before they are synced. A retry after a failed
//! sync would sync only later pages. So the thread then halts until the writer has reopened all connections, which
//! makes SQLite move the whole log again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, ffi};

use super::connection::keep_log_on_close;
use super::log;
use crate::error::{Error, Result};
use crate::storage::checkpoint_lock::CheckpointLock;

const LOG_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that a full checkpoint waits for readers and blocks the writer.
const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// A passive checkpoint runs if at least this number of log pages is not yet in the database file: 16 MiB in pages of 4
/// KiB. So the sync, which competes with commits for the disk, has little to write.
const PASSIVE_CHECKPOINT_PAGES: i64 = 4 * 1024;
/// A full checkpoint runs if the log has at least this number of pages: 256 MiB in pages of 4 KiB.
const FULL_CHECKPOINT_PAGES: i64 = 64 * 1024;
/// Nice value of the checkpointing thread, which may be delayed by other threads.
const CHECKPOINT_THREAD_NICE: i32 = 15;

/// Handle of the checkpointing thread, which ends when the handle is dropped.
pub(super) struct Checkpointer {
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    halted: Arc<AtomicBool>,
}

impl Checkpointer {
    /// Starts the checkpointing thread. `database` is the open database file. The caller must keep it open longer than
    /// any connection to the database, because closing it would release SQLite's locks on the file (`fcntl(2)`).
    pub(super) fn start(path: PathBuf, database: Arc<File>, checkpoints: CheckpointLock) -> Result<Self> {
        let (alive, ended) = channel::<()>();
        let halted = Arc::new(AtomicBool::new(false));
        let halt = halted.clone();
        let body = move || {
            // If the priority cannot be set, checkpoints run at normal priority.
            let _ = rustix::process::setpriority_process(None, CHECKPOINT_THREAD_NICE);
            let mut log = CheckpointRunner { path, database, db: None };
            let mut failing = false;
            while ended.recv_timeout(LOG_CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if halt.load(Ordering::Acquire) {
                    continue;
                }
                // While the database file is copied, no checkpoint runs and the log only grows.
                let moved = checkpoints.run_if_not_paused(|| log.tick());
                if let Some(Ok(_)) = moved
                    && std::mem::take(&mut failing)
                {
                    tracing::warn!("checkpoints of signet.db succeed again");
                }
                if let Some(Err(error)) = moved {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "checkpoint of signet.db failed; its log grows until one succeeds");
                    }
                    // This connection is closed before the writer can see the halt: SQLite reads the log again from its
                    // beginning only after all connections were closed.
                    log.db = None;
                    halt.store(is_failed_sync(&error), Ordering::Release);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("signet-checkpoint".to_owned())
            .spawn(body)
            .map_err(|e| Error::unavailable("storage: the thread for checkpoints could not be started", e))?;
        Ok(Self { alive: Some(alive), thread: Some(thread), halted })
    }

    /// Returns `true` after a failed sync, until [`Self::resume`] is called.
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Resumes checkpoints. Every connection must have been closed since the failed sync.
    pub(super) fn resume(&self) {
        self.halted.store(false, Ordering::Release);
    }

    /// Ends the thread; returns `true` if checkpoints were halted after a failed sync.
    pub(super) fn end_thread(mut self) -> bool {
        self.join();
        self.is_halted()
    }

    fn join(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    #[cfg(test)]
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.join();
    }
}

struct CheckpointRunner {
    path: PathBuf,
    database: Arc<File>,
    /// The connection that runs checkpoints; opened for the first one.
    db: Option<Connection>,
}

impl CheckpointRunner {
    fn tick(&mut self) -> rusqlite::Result<()> {
        // The log file is at least as long as its content, so a short file shows without a query that there is nothing
        // to do.
        let size = std::fs::metadata(log::log_path(&self.path)).map_or(0, |m| m.len());
        if size < PASSIVE_CHECKPOINT_PAGES as u64 * 4096 {
            return Ok(());
        }
        let db = match &self.db {
            Some(db) => db,
            None => self.db.insert(connect(&self.path)?),
        };
        if checkpoint(db, "NOOP")? >= PASSIVE_CHECKPOINT_PAGES {
            checkpoint(db, "PASSIVE")?;
            self.database.sync_data().map_err(sync_error)?;
        }
        if pages_in_log(db)? >= FULL_CHECKPOINT_PAGES {
            checkpoint(db, "FULL")?;
        }
        Ok(())
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(CHECKPOINT_BUSY_TIMEOUT)?;
    db.execute_batch("PRAGMA synchronous = FULL")?;
    keep_log_on_close(&db, true)?;
    Ok(db)
}

fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|e| e.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// Converts a failed sync of the database file to the error that SQLite reports for its own syncs. After both errors,
/// pages that SQLite counts as moved may be missing on the disk.
fn sync_error(error: io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), Some(error.to_string()))
}

/// Runs a checkpoint in an SQLite mode, such as `PASSIVE`. Returns the number of log pages that are not in the database
/// file yet.
pub(super) fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<i64> {
    let (log, moved) = run_checkpoint(db, mode)?;
    Ok(log - moved)
}

/// Returns the number of valid frames in the log.
pub(super) fn count_frames(db: &Connection) -> rusqlite::Result<u64> {
    Ok(run_checkpoint(db, "NOOP")?.0.unsigned_abs())
}

/// Returns `true` if checkpoints are so far behind that background work must not extend the log.
pub(super) fn are_checkpoints_behind(db: &Connection) -> rusqlite::Result<bool> {
    Ok(pages_in_log(db)? > 2 * FULL_CHECKPOINT_PAGES)
}

fn pages_in_log(db: &Connection) -> rusqlite::Result<i64> {
    let (log, moved) = run_checkpoint(db, "NOOP")?;
    // When all pages of the log are moved, the next commit reuses the file from its beginning, however long it is.
    Ok(if log == moved { 0 } else { log })
}

fn run_checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| Ok((row.get(1)?, row.get(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database without automatic checkpoints, and the runner of its checkpoints.
    fn database(folder: &Path) -> (Connection, CheckpointRunner) {
        let path = folder.join("x.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF; CREATE TABLE t (b BLOB)",
            )
            .unwrap();
        let database = Arc::new(File::open(&path).unwrap());
        (writer, CheckpointRunner { path, database, db: None })
    }

    fn grow(writer: &Connection, mib: u32) {
        for _ in 0..mib {
            writer.execute("INSERT INTO t VALUES (randomblob(1048576))", []).unwrap();
        }
    }

    #[test]
    fn log_above_the_limit_is_checkpointed_and_restarted() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, mut runner) = database(dir.path());
        grow(&writer, 70);
        runner.tick().unwrap();
        assert_eq!(checkpoint(runner.db.as_ref().unwrap(), "NOOP").unwrap(), 0);
        let size = || std::fs::metadata(log::log_path(&runner.path)).unwrap().len();
        let before = size();
        grow(&writer, 60);
        assert_eq!(size(), before, "the log started over");
    }

    #[test]
    fn failed_sync_of_the_database_file_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, runner) = database(dir.path());
        // `/dev/null` stands for a database file that cannot be synced.
        let mut runner = CheckpointRunner { database: Arc::new(File::open("/dev/null").unwrap()), ..runner };
        grow(&writer, 10);
        runner.tick().unwrap();
        grow(&writer, 10);
        assert!(is_failed_sync(&runner.tick().unwrap_err()));
    }
}
