//! The single writer: runs each batch of units in one transaction, and counts certificates and revocations exactly.
//!
//! It also reopens all connections after a failed sync (see `checkpoint`), because only it can exclude other writes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::batch;
use super::checkpoint::{Checkpointer, are_checkpoints_behind, checkpoint, count_frames};
use super::query::{SqliteError, resolve_ready};
use super::reader::SqliteReaderPool;
use super::transaction::MountCache;
use super::{connection, log};
use crate::error::{Error, Kind, Result};
use crate::storage::backend::{StoreBackend, UnitOutcomes, WriteUnit};
use crate::storage::tables::mounts;
use crate::telemetry;

const WRITE_FAILED: &str = "storage: the write failed";

/// Ends the tidy runs of earlier processes, when the store opens. No tidy run can belong to another running process,
/// because only this process uses the store.
const END_TIDY_RUNS: &str = "UPDATE tidy SET valid_until = 0";

/// The single writer of an SQLite database.
pub(crate) struct SqliteWriter {
    /// The writing connection; `None` only if the database could not be reopened.
    db: Option<Connection>,
    path: PathBuf,
    readers: SqliteReaderPool,
    checkpoints: Checkpointer,
    file: Arc<File>,
    lock: Arc<File>,
    dropped_mounts: bool,
    worked: Duration,
}

impl SqliteWriter {
    pub(super) fn new(db: Connection, path: PathBuf, lock: Arc<File>, readers: SqliteReaderPool) -> Result<Self> {
        let dropped_mounts = resolve_ready(mounts::has_dropped(&db)).map_err(|e| e.into_error(WRITE_FAILED))?;
        db.execute(END_TIDY_RUNS, []).map_err(write_error)?;
        let file =
            File::open(&path).map_err(|e| Error::unavailable("storage: the database file cannot be opened", e))?;
        let file = Arc::new(file);
        let checkpoints = Checkpointer::start(path.clone(), Arc::clone(&file), readers.checkpoint_lock().clone())?;
        Ok(Self { db: Some(db), path, readers, checkpoints, file, lock, dropped_mounts, worked: Duration::ZERO })
    }

    /// Closes and reopens all connections, so that SQLite reads the log from its beginning and moves all of its pages
    /// to the database file again. If this fails, checkpoints stay halted, and the next batch tries again.
    async fn reopen(&mut self) -> Result<()> {
        let reads = self.readers.pause().await?;
        if let Some(db) = self.db.take() {
            let ended = roll_back(&db).and_then(|()| count_frames(&db)).map_err(write_error);
            if let Err(error) = ended.and_then(|frames| log::truncate(&self.path, frames).map_err(write_error)) {
                // The writing connection was not closed and stays in use.
                self.db = Some(db);
                reads.resume(&self.path).map_err(write_error)?;
                return Err(error);
            }
            db.close().map_err(|(_, e)| write_error(e))?;
        }
        self.db = Some(connection::open_writer(&self.path)?);
        reads.resume(&self.path).map_err(write_error)?;
        self.checkpoints.resume();
        tracing::warn!(
            "a sync of signet.db failed; the database was reopened, and its whole write-ahead log is checkpointed again"
        );
        Ok(())
    }

    fn apply_now(&mut self, units: &[WriteUnit]) -> Vec<Result<UnitOutcomes>> {
        let answers = match self.apply_without_savepoints(units) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(failure) if units.len() == 1 => vec![unit_result(failure, &units[0])],
            Err(_) => self.apply_with_savepoints(units).unwrap_or_else(|e| {
                let text = e.to_string();
                units.iter().map(|_| Err(write_error(text.clone()))).collect()
            }),
        };
        self.dropped_mounts |= units.iter().any(WriteUnit::drops_mount);
        answers
    }

    /// Runs a batch without savepoints. Sufficient in the usual case that no unit fails.
    fn apply_without_savepoints(&mut self, units: &[WriteUnit]) -> Result<Vec<UnitOutcomes>, SqliteError> {
        let tx = self.begin()?;
        let mut touched = MountCache::default();
        let mut worked = Duration::ZERO;
        let mut each = |unit| measure_session_work(&mut worked, unit, || batch::apply_unit(&tx, &mut touched, unit));
        let outcomes = units.iter().map(&mut each).collect::<Result<_, SqliteError>>()?;
        touched.write_counters(&tx)?;
        tx.commit()?;
        self.worked = worked;
        Ok(outcomes)
    }

    /// Runs a batch again after a unit failed: each unit in its own savepoint, all units in one commit.
    fn apply_with_savepoints(&mut self, units: &[WriteUnit]) -> rusqlite::Result<Vec<Result<UnitOutcomes>>> {
        let mut tx = self.begin()?;
        let mut touched = MountCache::default();
        let mut worked = Duration::ZERO;
        let mut answers = Vec::with_capacity(units.len());
        for unit in units {
            let before = touched.clone();
            let mut savepoint = tx.savepoint()?;
            match measure_session_work(&mut worked, unit, || batch::apply_unit(&savepoint, &mut touched, unit)) {
                Ok(outcomes) => answers.push(Ok(outcomes)),
                Err(failure) => {
                    // The rollback fails if SQLite has already rolled back the whole transaction. Then nothing of the
                    // batch is stored.
                    savepoint.rollback()?;
                    touched = before;
                    answers.push(unit_result(failure, unit));
                }
            }
            savepoint.commit()?;
        }
        touched.write_counters(&tx)?;
        tx.commit()?;
        self.worked = worked;
        Ok(answers)
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        let db = self.db.as_mut().ok_or(rusqlite::Error::InvalidQuery)?;
        roll_back(db)?;
        Transaction::new(db, TransactionBehavior::Immediate)
    }

    fn remove_dropped(&mut self) -> Result<bool, SqliteError> {
        let tx = self.begin()?;
        let more = resolve_ready(mounts::remove_rows_of_dropped_mount(&*tx))?;
        tx.commit()?;
        Ok(more)
    }
}

/// Runs a unit. If the unit is session work, adds its duration to `worked`.
fn measure_session_work<T>(worked: &mut Duration, unit: &WriteUnit, apply: impl FnOnce() -> T) -> T {
    let begun = matches!(unit, WriteUnit::Work(..)).then(Instant::now);
    let outcome = apply();
    *worked += begun.map_or(Duration::ZERO, |begun| begun.elapsed());
    outcome
}

/// If a transaction is still open because an earlier rollback failed, rolls it back.
fn roll_back(db: &Connection) -> rusqlite::Result<()> {
    if db.is_autocommit() { Ok(()) } else { db.execute_batch("ROLLBACK") }
}

fn write_error(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable(WRITE_FAILED, source)
}

fn unit_result(failure: SqliteError, unit: &WriteUnit) -> Result<UnitOutcomes> {
    match failure {
        SqliteError::SerialTaken => unit.serial_taken_result(),
        other => Err(other.into_error(WRITE_FAILED)),
    }
}

impl StoreBackend for SqliteWriter {
    fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<UnitOutcomes>>> {
        async move {
            if self.checkpoints.is_halted()
                && let Err(error) = self.reopen().await
            {
                telemetry::warn_task_failed(
                    "signet.db cannot be reopened after a failed sync; the next commit tries again",
                    &error,
                );
            }
            self.apply_now(&units)
        }
        .boxed()
    }

    fn work_duration(&self) -> Duration {
        self.worked
    }

    fn has_background_work(&self) -> bool {
        self.dropped_mounts
    }

    fn run_background_step(&mut self) -> BoxFuture<'_, ()> {
        async move {
            if self.db.as_ref().is_some_and(|db| are_checkpoints_behind(db).unwrap_or(false)) {
                return;
            }
            // After a failure, this work is not repeated immediately, because it might fail in a loop. The remaining
            // rows are removed after the next drop of a mount, or after the next start.
            self.dropped_mounts = self.remove_dropped().unwrap_or_else(|failure| {
                telemetry::warn_task_failed(
                    "rows of a dropped mount could not be removed; retried at the next drop or start",
                    &failure.into_error(WRITE_FAILED),
                );
                false
            });
        }
        .boxed()
    }

    fn close(self) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self { db, checkpoints, file, lock, .. } = self;
            let halted = checkpoints.end_thread();
            let Some(db) = db else {
                return Err(Error::new(
                    Kind::Unavailable,
                    "storage: the database could not be reopened after a failed sync",
                ));
            };
            let result = if halted {
                Err(Error::new(
                    Kind::Unavailable,
                    "storage: a sync of signet.db failed; the next start completes the file from the write-ahead log",
                ))
            } else {
                checkpoint(&db, "TRUNCATE")
                    .and_then(|_| connection::keep_log_on_close(&db, false))
                    .map_err(|e| Error::unavailable("storage: the checkpoint at the close of the database failed", e))
            };
            let closed =
                db.close().map_err(|(_, e)| Error::unavailable("storage: the database could not be closed", e));
            // The file is closed after the connection, because closing it releases SQLite's locks on the database.
            drop(file);
            drop(lock);
            result.and(closed)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::{FactWrite, StoreReader as _};

    fn fact_unit(name: usize) -> Vec<WriteUnit> {
        vec![WriteUnit::Facts(vec![FactWrite::new((format!("fact {name}"), vec![7; 3000]))])]
    }

    async fn store_facts(writer: &mut SqliteWriter, names: std::ops::Range<usize>) {
        for name in names {
            assert!(writer.apply(fact_unit(name)).await.iter().all(Result::is_ok));
        }
    }

    /// Restores an earlier content of a file, to simulate a disk that never wrote the later content.
    fn restore_content(path: &std::path::Path, old: &[u8]) {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(old, 0).unwrap();
        file.set_len(old.len() as u64).unwrap();
    }

    #[tokio::test]
    async fn checkpoint_after_a_failed_sync_copies_the_whole_log() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, pool) = super::super::open(dir.path(), crate::clock::Time::UNIX_EPOCH).unwrap();
        let path = writer.path.clone();
        checkpoint(writer.db.as_ref().unwrap(), "TRUNCATE").unwrap();
        let old = std::fs::read(&path).unwrap();
        store_facts(&mut writer, 0..50).await;
        {
            // An open read transaction prevents a complete checkpoint, so SQLite does not sync the database file.
            let reader = Connection::open(&path).unwrap();
            reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
            store_facts(&mut writer, 50..100).await;
            let left = checkpoint(writer.db.as_ref().unwrap(), "PASSIVE").unwrap();
            assert!(left > 0 && std::fs::read(&path).unwrap() != old, "some was moved, some was not");
        }
        restore_content(&path, &old);
        writer.checkpoints.halt();
        store_facts(&mut writer, 100..101).await;
        assert!(!writer.checkpoints.is_halted());
        let facts = pool.facts().await.unwrap();
        assert_eq!(facts.iter().filter(|(name, _)| name.starts_with("fact")).count(), 101);
        pool.close();
        writer.close().await.unwrap();
        let db = Connection::open(&path).unwrap();
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        let rows: u32 =
            db.query_row("SELECT count(*) FROM meta WHERE name LIKE 'fact%'", [], |row| row.get(0)).unwrap();
        assert_eq!((sound.as_str(), rows), ("ok", 101));
    }

    #[tokio::test]
    async fn store_closed_after_a_failed_sync_keeps_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, pool) = super::super::open(dir.path(), crate::clock::Time::UNIX_EPOCH).unwrap();
        let path = writer.path.clone();
        checkpoint(writer.db.as_ref().unwrap(), "TRUNCATE").unwrap();
        let old = std::fs::read(&path).unwrap();
        store_facts(&mut writer, 0..9).await;
        writer.checkpoints.halt();
        pool.close();
        assert_eq!(writer.close().await.unwrap_err().kind(), Kind::Unavailable);
        drop(pool);
        assert_eq!(std::fs::read(&path).unwrap(), old, "nothing was moved");
        let (writer, pool) = super::super::open(dir.path(), crate::clock::Time::UNIX_EPOCH).unwrap();
        assert_eq!(pool.facts().await.unwrap().iter().filter(|(name, _)| name.starts_with("fact")).count(), 9);
        writer.close().await.unwrap();
    }
}
