//! Moves the log into the database file, away from the commit path: a thread of low priority with a
//! connection of its own.
//!
//! A passive checkpoint blocks nobody, but under steady writes it never catches the end of the log,
//! and the log can only start over when all of it is moved. So beyond a second limit the rest, short
//! by then, is moved while the writer waits. What was moved before is synced as soon as it is moved, while nobody
//! waits, so that the sync which ends the log has little left to write.
//!
//! SQLite counts what a passive checkpoint moved as moved before it is synced; the sync comes with the
//! end of the log. When that sync fails, a second attempt would move and sync the rest only, and the
//! log would start over while the disk may lack what was moved before. So a failed sync halts this
//! thread; the writer opens everything again, which makes SQLite count from nothing, and lets it go on.

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
use crate::storage::file_hold::FileHold;

const TICK: Duration = Duration::from_millis(200);
/// How long the short rest may wait for readers and hold back the writer.
const PATIENCE: Duration = Duration::from_millis(100);
/// 16 MiB in pages of 4 KiB: what the disk has to write at once while commits want it too.
const PASSIVE_PAGES: i64 = 4 * 1024;
/// 256 MiB.
const FULL_PAGES: i64 = 64 * 1024;
/// As the RSA key generators: work that may wait.
const NICE: i32 = 15;

/// The checkpointing thread; dropping it ends the thread.
pub(super) struct Checkpointer {
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    halted: Arc<AtomicBool>,
}

impl Checkpointer {
    /// `database` is the database's file, which whoever opened it keeps open as long as any connection: closing it would
    /// take SQLite's locks on it away (`fcntl(2)`).
    pub(super) fn start(path: PathBuf, database: Arc<File>, file: FileHold) -> Result<Self> {
        let (alive, ended) = channel::<()>();
        let halted = Arc::new(AtomicBool::new(false));
        let halt = halted.clone();
        let body = move || {
            // Without the right to lower its priority it works at the usual one.
            let _ = rustix::process::setpriority_process(None, NICE);
            let mut log = Mover { path, database, db: None };
            let mut failing = false;
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if halt.load(Ordering::Acquire) {
                    continue;
                }
                // While somebody copies the file the log only grows.
                let moved = file.unless_held(|| log.tick());
                if let Some(Ok(_)) = moved
                    && std::mem::take(&mut failing)
                {
                    tracing::warn!("checkpoints succeed again");
                }
                if let Some(Err(error)) = moved {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "checkpoint failed; the log keeps growing until one succeeds");
                    }
                    // Closed before anyone hears of the halt: the log is read anew when nobody has it open.
                    log.db = None;
                    halt.store(is_failed_sync(&error), Ordering::Release);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("signet-checkpoint".to_owned())
            .spawn(body)
            .map_err(|e| Error::unavailable("storage: the checkpoint thread does not start", e))?;
        Ok(Self { alive: Some(alive), thread: Some(thread), halted })
    }

    /// Whether a sync has failed, and nothing is moved until [`Self::resume`].
    pub(super) fn halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Goes on after every connection was closed.
    pub(super) fn resume(&self) {
        self.halted.store(false, Ordering::Release);
    }

    /// Ends the thread; whether it was halted.
    pub(super) fn end(mut self) -> bool {
        self.join();
        self.halted()
    }

    fn join(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// As after a failed sync.
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

/// What moves the log.
struct Mover {
    path: PathBuf,
    database: Arc<File>,
    /// Opened when there is something to move.
    db: Option<Connection>,
}

impl Mover {
    fn tick(&mut self) -> rusqlite::Result<()> {
        // The log is never made shorter than what is in it, so its size rules out most ticks for free.
        let size = std::fs::metadata(log::path_of(&self.path)).map_or(0, |m| m.len());
        if size < PASSIVE_PAGES as u64 * 4096 {
            return Ok(());
        }
        let db = match &self.db {
            Some(db) => db,
            None => self.db.insert(connect(&self.path)?),
        };
        if checkpoint(db, "NOOP")? >= PASSIVE_PAGES {
            checkpoint(db, "PASSIVE")?;
            self.database.sync_data().map_err(failed_sync)?;
        }
        if in_log(db)? >= FULL_PAGES {
            checkpoint(db, "FULL")?;
        }
        Ok(())
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(PATIENCE)?;
    db.execute_batch("PRAGMA synchronous = FULL")?;
    keep_log_on_close(&db, true)?;
    Ok(db)
}

fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|e| e.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// A sync of ours that failed, as one of SQLite's would: the disk may lack what counts as moved.
fn failed_sync(error: io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), Some(error.to_string()))
}

/// Runs a checkpoint; returns how many pages of the log are not yet in the database file.
pub(super) fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<i64> {
    let (log, moved) = pages(db, mode)?;
    Ok(log - moved)
}

/// How many frames of the log count.
pub(super) fn frames(db: &Connection) -> rusqlite::Result<u64> {
    Ok(pages(db, "NOOP")?.0.unsigned_abs())
}

/// Whether the log is so long that only what somebody waits for may make it longer.
pub(super) fn is_behind(db: &Connection) -> rusqlite::Result<bool> {
    Ok(in_log(db)? > 2 * FULL_PAGES)
}

fn in_log(db: &Connection) -> rusqlite::Result<i64> {
    let (log, moved) = pages(db, "NOOP")?;
    // A log that is moved whole starts over with the next commit, whatever its length.
    Ok(if log == moved { 0 } else { log })
}

fn pages(db: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| Ok((row.get(1)?, row.get(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database whose log takes what is written, and what moves it.
    fn database(folder: &Path) -> (Connection, Mover) {
        let path = folder.join("x.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF; CREATE TABLE t (b BLOB)",
            )
            .unwrap();
        let database = Arc::new(File::open(&path).unwrap());
        (writer, Mover { path, database, db: None })
    }

    fn grow(writer: &Connection, mib: u32) {
        for _ in 0..mib {
            writer.execute("INSERT INTO t VALUES (randomblob(1048576))", []).unwrap();
        }
    }

    #[test]
    fn a_log_above_the_limit_is_moved_and_starts_over() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, mut mover) = database(dir.path());
        grow(&writer, 70);
        mover.tick().unwrap();
        assert_eq!(checkpoint(mover.db.as_ref().unwrap(), "NOOP").unwrap(), 0);
        let size = || std::fs::metadata(log::path_of(&mover.path)).unwrap().len();
        let before = size();
        grow(&writer, 60);
        assert_eq!(size(), before, "the log started over");
    }

    #[test]
    fn what_was_moved_and_cannot_be_synced_is_told_as_a_failed_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, mover) = database(dir.path());
        // Nothing of this can be synced.
        let mut mover = Mover { database: Arc::new(File::open("/dev/null").unwrap()), ..mover };
        grow(&writer, 10);
        mover.tick().unwrap();
        grow(&writer, 10);
        assert!(is_failed_sync(&mover.tick().unwrap_err()));
    }
}
