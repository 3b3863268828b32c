//! The single writer: batches of units in one transaction, with exact counters.
//!
//! It also closes and opens every connection of the database after a sync failed in a checkpoint
//! (`checkpoint` says why): nothing but itself can be writing then.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::checkpoint::{Checkpointer, checkpoint, frames};
use super::reader::Pool;
use super::{
    Failure, certificates, connect_writer, crls, documents, keep_log_on_close, leases, log, meta, metadata, mounts,
    revocations, session, tidy, tokens,
};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::projects::store::Work;
use crate::storage::backend::{Backend, Outcome, Unit, Write};
use crate::storage::sql::conflict;

/// The writing connection, and what must live as long as it.
pub(in crate::storage) struct Writer {
    /// Gone only while it cannot be opened again.
    db: Option<Connection>,
    path: PathBuf,
    readers: Pool,
    checkpoints: Checkpointer,
    lock: Arc<File>,
    dropped_mounts: bool,
}

impl Writer {
    pub(super) fn new(db: Connection, path: PathBuf, lock: Arc<File>, readers: Pool) -> Result<Self> {
        let dropped_mounts = mounts::any_dropped(&db).map_err(failed)?;
        tidy::free(&db).map_err(failed)?;
        let checkpoints = Checkpointer::start(path.clone())?;
        Ok(Self { db: Some(db), path, readers, checkpoints, lock, dropped_mounts })
    }

    /// Closes every connection and opens them again, so that SQLite reads the log from its beginning
    /// and counts nothing of it as moved. When that fails the checkpoints stay halted, and the next
    /// batch tries again.
    async fn start_over(&mut self) -> Result<()> {
        let reads = self.readers.pause().await?;
        if let Some(db) = self.db.take() {
            let ended = undo(&db).and_then(|()| frames(&db)).map_err(failed);
            if let Err(error) = ended.and_then(|frames| log::cut(&self.path, frames).map_err(failed)) {
                // Nothing was closed that writes: it goes on as it is.
                self.db = Some(db);
                reads.resume(&self.path).map_err(failed)?;
                return Err(error);
            }
            db.close().map_err(|(_, e)| failed(e))?;
        }
        self.db = Some(connect_writer(&self.path)?);
        reads.resume(&self.path).map_err(failed)?;
        self.checkpoints.resume();
        tracing::warn!("a sync has failed: the log is read again and all of it will be moved once more");
        Ok(())
    }

    fn apply_now(&mut self, units: &[Unit]) -> Vec<Result<Vec<Outcome>>> {
        let answers = match self.together(units) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(failure) if units.len() == 1 => vec![answer(failure, units[0].len())],
            Err(_) => self.singly(units).unwrap_or_else(|e| {
                let text = e.to_string();
                units.iter().map(|_| Err(failed(text.clone()))).collect()
            }),
        };
        self.dropped_mounts |= units.iter().flatten().any(|write| matches!(write, Write::MountDrop(_)));
        answers
    }

    /// The usual way: no unit fails, so nothing is spent on undoing one.
    fn together(&mut self, units: &[Unit]) -> Result<Vec<Vec<Outcome>>, Failure> {
        let tx = self.begin()?;
        let mut batch = Batch::default();
        let outcomes = units.iter().map(|unit| batch.unit(&tx, unit)).collect::<Result<_, Failure>>()?;
        batch.write_counters(&tx)?;
        tx.commit()?;
        Ok(outcomes)
    }

    /// After a failure: each unit behind a savepoint of its own, still in one commit.
    fn singly(&mut self, units: &[Unit]) -> rusqlite::Result<Vec<Result<Vec<Outcome>>>> {
        let mut tx = self.begin()?;
        let mut batch = Batch::default();
        let mut answers = Vec::with_capacity(units.len());
        for unit in units {
            let before = batch.clone();
            let mut savepoint = tx.savepoint()?;
            match batch.unit(&savepoint, unit) {
                Ok(outcomes) => answers.push(Ok(outcomes)),
                Err(failure) => {
                    // Fails when the engine gave up the whole transaction: then nothing is stored.
                    savepoint.rollback()?;
                    batch = before;
                    answers.push(answer(failure, unit.len()));
                }
            }
            savepoint.commit()?;
        }
        batch.write_counters(&tx)?;
        tx.commit()?;
        Ok(answers)
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        let db = self.db.as_mut().ok_or(rusqlite::Error::InvalidQuery)?;
        undo(db)?;
        Transaction::new(db, TransactionBehavior::Immediate)
    }

    fn remove_dropped(&mut self) -> rusqlite::Result<bool> {
        let tx = self.begin()?;
        let more = mounts::remove_some_dropped(&tx)?;
        tx.commit()?;
        Ok(more)
    }
}

/// Work of the projects API, which tells its failures itself: they are undone here and fail nothing else
/// of the batch.
fn in_savepoint(db: &Connection, work: &Work) -> rusqlite::Result<Outcome> {
    db.execute_batch("SAVEPOINT work")?;
    if session::run(db, work).is_err() {
        // Fails when the engine gave up the whole transaction: then nothing is stored.
        db.execute_batch("ROLLBACK TO work")?;
    }
    db.execute_batch("RELEASE work")?;
    Ok(Outcome::Done)
}

/// Ends a transaction that is still open: only after a rollback that itself failed.
fn undo(db: &Connection) -> rusqlite::Result<()> {
    if db.is_autocommit() { Ok(()) } else { db.execute_batch("ROLLBACK") }
}

fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("storage: the write failed", source)
}

/// What the caller of a failed unit of `len` writes hears.
fn answer(failure: Failure, len: usize) -> Result<Vec<Outcome>> {
    match failure {
        Failure::SerialTaken => Ok(std::iter::repeat_with(|| Outcome::SerialTaken).take(len).collect()),
        Failure::Conflict(text) => Err(Error::new(Kind::Conflict, text)),
        Failure::Engine(error) => Err(failed(error)),
    }
}

/// Rows that a transaction inserted into a mount, less those that it removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Inserted {
    pub(super) certificates: i64,
    pub(super) revocations: i64,
}

/// What a transaction knows of the mounts that it writes to: that they exist, and what it inserted.
#[derive(Clone, Default)]
struct Batch {
    mounts: HashMap<MountId, Inserted>,
}

impl Batch {
    fn unit(&mut self, db: &Connection, unit: &[Write]) -> Result<Vec<Outcome>, Failure> {
        unit.iter().map(|write| self.write(db, write)).collect()
    }

    fn write(&mut self, db: &Connection, write: &Write) -> Result<Outcome, Failure> {
        match write {
            Write::Document(write) => {
                self.mount(db, write.key.mount)?;
                documents::write(db, write)
            }
            Write::MountCreate(mount) => mounts::create(db, *mount),
            Write::MountDrop(mount) => {
                self.mounts.remove(mount);
                mounts::drop_mount(db, *mount)
            }
            Write::Certificate(row) => {
                let inserted = self.mount(db, row.mount)?;
                certificates::insert(db, row)?;
                inserted.certificates += 1;
                Ok(Outcome::Done)
            }
            Write::Revocation(row) => {
                let inserted = self.mount(db, row.mount)?;
                let (stored, fresh) = revocations::insert(db, row)?;
                inserted.revocations += i64::from(fresh);
                Ok(Outcome::Revoked { stored, fresh })
            }
            Write::Crl(row) => {
                self.mount(db, row.mount)?;
                crls::publish(db, row)
            }
            Write::Lease(row) => {
                self.mount(db, row.mount)?;
                leases::insert(db, row)?;
                Ok(Outcome::Done)
            }
            Write::LeasesMark(ids) => Ok(leases::mark(db, ids)?),
            Write::LeasesEnd(ids) => Ok(leases::end(db, ids)?),
            Write::LeasesMarkEnded { limit } => Ok(leases::mark_ended(db, *limit)?),
            Write::LeaseSweep { now, limit } => Ok(leases::sweep(db, *now, *limit)?),
            Write::Metadata(row) => {
                self.mount(db, row.mount)?;
                metadata::insert(db, row)?;
                Ok(Outcome::Done)
            }
            Write::RevocationIssuer { mount, serial, issuer } => {
                self.mount(db, *mount)?;
                Ok(tidy::revocation_issuer(db, *mount, serial, issuer)?)
            }
            Write::TidyBegin { row, seen, now } => {
                self.mount(db, row.mount)?;
                Ok(tidy::begin(db, row, *seen, *now)?)
            }
            Write::TidyKeep { mount, run, valid_until, report } => tidy::keep(db, *mount, *run, *valid_until, report),
            Write::TidyCancel { mount, now } => Ok(tidy::cancel(db, *mount, *now)?),
            Write::Remove { mount, what, limit } => {
                let counted = self.mount(db, *mount)?;
                let removed = tidy::remove(db, *mount, what, *limit)?;
                counted.certificates -= i64::from(removed.certificates);
                counted.revocations -= i64::from(removed.revocations);
                Ok(Outcome::Tidied(removed))
            }
            Write::TokenInsert(row) => tokens::insert(db, row),
            Write::TokenUpdate { hash, expires_at, body, now } => tokens::update(db, hash, *expires_at, body, *now),
            Write::TokenSpend(hash) => tokens::spend(db, hash),
            Write::TokenRevoke(hash) => Ok(Outcome::TokensRevoked(tokens::revoke(db, hash)?)),
            Write::TokenSweep { now, limit } => tokens::sweep(db, *now, *limit),
            Write::MetaInsert { name, value } => meta::insert(db, name, value),
            Write::Work(work) => Ok(in_savepoint(db, work)?),
        }
    }

    /// A mount that exists, asked of the database once in a transaction.
    fn mount(&mut self, db: &Connection, mount: MountId) -> Result<&mut Inserted, Failure> {
        use std::collections::hash_map::Entry;
        match self.mounts.entry(mount) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(_) if !mounts::exists(db, mount)? => Err(Failure::Conflict(conflict::MOUNT_GONE)),
            Entry::Vacant(new) => Ok(new.insert(Inserted::default())),
        }
    }

    fn write_counters(&self, db: &Connection) -> rusqlite::Result<()> {
        for (mount, inserted) in &self.mounts {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                mounts::count(db, *mount, *inserted)?;
            }
        }
        Ok(())
    }
}

impl Backend for Writer {
    fn apply(&mut self, units: Vec<Unit>) -> BoxFuture<'_, Vec<Result<Vec<Outcome>>>> {
        async move {
            if self.checkpoints.halted()
                && let Err(error) = self.start_over().await
            {
                tracing::warn!(%error, "the log cannot be read again yet");
            }
            self.apply_now(&units)
        }
        .boxed()
    }

    fn has_chores(&self) -> bool {
        self.dropped_mounts
    }

    fn chore(&mut self) -> BoxFuture<'_, ()> {
        async move {
            // After a failure the rest waits for the next drop or start, rather than failing in a loop.
            self.dropped_mounts = self.remove_dropped().unwrap_or_else(|error| {
                tracing::warn!(%error, "rows of a dropped mount could not be removed");
                false
            });
        }
        .boxed()
    }

    fn close(self) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self { db, checkpoints, lock, .. } = self;
            let halted = checkpoints.end();
            let Some(db) = db else {
                return Err(Error::new(Kind::Unavailable, "storage: the database is not open"));
            };
            let result = if halted {
                Err(Error::new(Kind::Unavailable, "storage: a sync has failed; the log is kept for the next start"))
            } else {
                checkpoint(&db, "TRUNCATE")
                    .and_then(|_| keep_log_on_close(&db, false))
                    .map_err(|e| Error::unavailable("storage: the last checkpoint failed", e))
            };
            let closed = db.close().map_err(|(_, e)| Error::unavailable("storage: the database does not close", e));
            drop(lock);
            result.and(closed)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::Reader as _;

    fn fact(name: usize) -> Vec<Unit> {
        vec![vec![Write::MetaInsert { name: format!("fact {name}"), value: vec![7; 3000] }]]
    }

    async fn store(writer: &mut Writer, names: std::ops::Range<usize>) {
        for name in names {
            assert!(writer.apply(fact(name)).await.iter().all(Result::is_ok));
        }
    }

    /// Takes back what a file was given since, as a disk that never wrote it.
    fn forget(path: &std::path::Path, old: &[u8]) {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(old, 0).unwrap();
        file.set_len(old.len() as u64).unwrap();
    }

    #[tokio::test]
    async fn after_a_failed_sync_all_of_the_log_is_moved_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, pool) = super::super::open(dir.path()).unwrap();
        let path = writer.path.clone();
        checkpoint(writer.db.as_ref().unwrap(), "TRUNCATE").unwrap();
        let old = std::fs::read(&path).unwrap();
        store(&mut writer, 0..50).await;
        {
            // A reader holds the end of what can be moved back, so that SQLite does not sync it.
            let reader = Connection::open(&path).unwrap();
            reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
            store(&mut writer, 50..100).await;
            let left = checkpoint(writer.db.as_ref().unwrap(), "PASSIVE").unwrap();
            assert!(left > 0 && std::fs::read(&path).unwrap() != old, "some was moved, some was not");
        }
        forget(&path, &old);
        writer.checkpoints.halt();
        store(&mut writer, 100..101).await;
        assert!(!writer.checkpoints.halted());
        let facts = pool.meta().await.unwrap();
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
    async fn a_store_that_ends_after_a_failed_sync_keeps_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, pool) = super::super::open(dir.path()).unwrap();
        let path = writer.path.clone();
        checkpoint(writer.db.as_ref().unwrap(), "TRUNCATE").unwrap();
        let old = std::fs::read(&path).unwrap();
        store(&mut writer, 0..9).await;
        writer.checkpoints.halt();
        pool.close();
        assert_eq!(writer.close().await.unwrap_err().kind(), Kind::Unavailable);
        drop(pool);
        assert_eq!(std::fs::read(&path).unwrap(), old, "nothing was moved");
        let (writer, pool) = super::super::open(dir.path()).unwrap();
        assert_eq!(pool.meta().await.unwrap().iter().filter(|(name, _)| name.starts_with("fact")).count(), 9);
        writer.close().await.unwrap();
    }
}
