//! The single writer: batches of units in one transaction, with exact counters.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::checkpoint::{Checkpointer, checkpoint};
use super::{Failure, certificates, crls, documents, leases, meta, metadata, mounts, revocations, tokens};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::storage::backend::{Backend, Outcome, Unit, Write};
use crate::storage::sql::conflict;

/// The writing connection, and what must live as long as it.
pub(in crate::storage) struct Writer {
    db: Connection,
    checkpoints: Checkpointer,
    lock: Arc<File>,
    dropped_mounts: bool,
}

impl Writer {
    pub(super) fn new(db: Connection, path: PathBuf, lock: Arc<File>) -> Result<Self> {
        let dropped_mounts = mounts::any_dropped(&db).map_err(failed)?;
        Ok(Self { db, checkpoints: Checkpointer::start(path)?, lock, dropped_mounts })
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
        // Only after a rollback that itself failed.
        if !self.db.is_autocommit() {
            self.db.execute_batch("ROLLBACK")?;
        }
        Transaction::new(&mut self.db, TransactionBehavior::Immediate)
    }

    fn remove_dropped(&mut self) -> rusqlite::Result<bool> {
        let tx = self.begin()?;
        let more = mounts::remove_some_dropped(&tx)?;
        tx.commit()?;
        Ok(more)
    }
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

/// Rows that a transaction inserted into a mount.
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
            Write::TokenInsert(row) => tokens::insert(db, row),
            Write::TokenUpdate { hash, expires_at, body, now } => tokens::update(db, hash, *expires_at, body, *now),
            Write::TokenSpend(hash) => tokens::spend(db, hash),
            Write::TokenRevoke(hash) => Ok(Outcome::TokensRevoked(tokens::revoke(db, hash)?)),
            Write::TokenSweep { now, limit } => tokens::sweep(db, *now, *limit),
            Write::MetaInsert { name, value } => meta::insert(db, name, value),
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
        async move { self.apply_now(&units) }.boxed()
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
            drop(checkpoints);
            let result =
                checkpoint(&db, "TRUNCATE").map_err(|e| Error::unavailable("storage: the last checkpoint failed", e));
            let closed = db.close().map_err(|(_, e)| Error::unavailable("storage: the database does not close", e));
            drop(lock);
            result.and(closed)
        }
        .boxed()
    }
}
