//! The queue of reads and the threads that process it.
//!
//! Waking a thread and starting a transaction cost more than most reads. So only one thread is woken at a time, and a
//! thread takes a batch of reads and runs them in one transaction. The transaction starts after all of these reads were
//! queued, so each read sees every write committed before it was queued. The queue is fair between callers. Sessions
//! may scan whole tables. They have their own queue and never occupy all threads. A single caller never occupies all
//! threads that sessions may use.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rusqlite::Connection;
use tokio::sync::Notify;

use crate::rationing::{CallerId, FairQueue};
use crate::storage::embedded::session::SqliteReadConnection;

/// Number of reading connections, each with a thread.
pub(super) const READ_CONNECTIONS: usize = 4;
/// Maximum number of concurrent sessions; the other connections are reserved for short reads.
const MAX_SESSIONS: usize = READ_CONNECTIONS - 1;
/// Maximum number of concurrent sessions per caller.
const MAX_SESSIONS_PER_CALLER: usize = MAX_SESSIONS - 1;
/// Maximum number of reads per transaction. It is low, because the last read waits for the others.
const MAX_READS_PER_TRANSACTION: usize = 8;
/// Maximum length of each queue, including jobs whose callers no longer wait.
const MAX_QUEUED_JOBS: usize = 16_384;

/// A read, as a function of a connection. It sends its result to the caller itself; if it is dropped, the caller gets
/// an error. It must not panic.
type ReadWork = Box<dyn FnOnce(&SqliteReadConnection) + Send>;

pub(super) enum ReadJob {
    /// A short read, which may share a transaction with other short reads.
    Read(CallerId, ReadWork),
    /// Work that begins and ends its own transaction and may take long.
    Session(CallerId, ReadWork),
}

/// The queues of short reads and of sessions, and the connections that are free.
pub(super) struct ReadQueue {
    state: Mutex<ReadQueueState>,
    work: Condvar,
    /// Signals that no job is in progress in a paused queue.
    idle: Notify,
}

struct ReadQueueState {
    reads: FairQueue<ReadWork>,
    sessions: FairQueue<ReadWork>,
    connections: Vec<SqliteReadConnection>,
    /// The lock on the data folder; `None` after the queue was closed.
    lock: Option<Arc<File>>,
    paused: bool,
    /// Number of threads that hold a connection.
    active_threads: usize,
    /// Number of threads that sleep and have not been woken.
    sleeping_threads: usize,
    /// `true` if a thread was woken and has not checked the queue yet.
    wake_pending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadRejection {
    Closed,
    /// The queue has no connections, because they could not be reopened after a pause.
    NotOpen,
    Full,
}

impl ReadQueue {
    /// Starts one thread per connection. The threads end when the queue is closed.
    pub(super) fn start(connections: Vec<SqliteReadConnection>, lock: Arc<File>) -> std::io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::new(ReadQueueState {
                reads: FairQueue::new(usize::MAX, usize::MAX),
                sessions: FairQueue::new(MAX_SESSIONS, MAX_SESSIONS_PER_CALLER),
                connections,
                lock: Some(lock),
                paused: false,
                active_threads: 0,
                sleeping_threads: 0,
                wake_pending: false,
            }),
            work: Condvar::new(),
            idle: Notify::new(),
        });
        for _ in 0..READ_CONNECTIONS {
            let worker = queue.clone();
            let started = thread::Builder::new().name("signet-read".to_owned()).spawn(move || worker.run_worker());
            if let Err(error) = started {
                queue.close();
                return Err(error);
            }
        }
        Ok(queue)
    }

    pub(super) fn enqueue(&self, job: ReadJob) -> Result<(), ReadRejection> {
        let mut state = self.state();
        if let Some(refused) = state.rejection() {
            return Err(refused);
        }
        match job {
            ReadJob::Read(caller_id, work) if state.reads.waiting() < MAX_QUEUED_JOBS => {
                state.reads.push(caller_id, work)
            }
            ReadJob::Session(caller_id, work) if state.sessions.waiting() < MAX_QUEUED_JOBS => {
                state.sessions.push(caller_id, work)
            }
            _ => return Err(ReadRejection::Full),
        }
        self.wake(&mut state);
        Ok(())
    }

    /// Returns the reason why a queued job was dropped without a result.
    pub(super) fn rejection(&self) -> ReadRejection {
        self.state().rejection().unwrap_or(ReadRejection::NotOpen)
    }

    /// Waits for the jobs in progress, closes all connections, and delays all queued jobs until [`Self::resume`].
    pub(super) async fn pause(&self) -> Result<(), ReadRejection> {
        loop {
            let idle = self.idle.notified();
            {
                let mut state = self.state();
                if state.lock.is_none() {
                    return Err(ReadRejection::Closed);
                }
                state.paused = true;
                if state.active_threads == 0 {
                    state.connections.clear();
                    return Ok(());
                }
            }
            idle.await;
        }
    }

    /// Resumes the queue with these connections. If there are none, all jobs are rejected.
    pub(super) fn resume(&self, connections: Vec<SqliteReadConnection>) {
        let mut state = self.state();
        state.paused = false;
        if state.lock.is_some() {
            state.connections = connections;
        }
        let dropped = state.rejection().map(|_| state.clear());
        self.wake(&mut state);
        drop(state);
        drop(dropped);
    }

    /// Ends the threads after their current jobs and drops all queued ones.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.lock = None;
        let dropped = (state.clear(), std::mem::take(&mut state.connections));
        drop(state);
        self.work.notify_all();
        self.idle.notify_waiters();
        drop(dropped);
    }

    fn run_worker(&self) {
        let mut done = None;
        while let Some((db, batch)) = self.next_batch(done) {
            done = Some((run_batch(&db, batch), db));
        }
    }

    /// Called by a thread: returns the connection of its finished batch to the queue, waits for the next batch, and
    /// takes it with a connection. Returns `None` when the queue is closed.
    fn next_batch(
        &self,
        done: Option<(FinishedBatch, SqliteReadConnection)>,
    ) -> Option<(SqliteReadConnection, ReadBatch)> {
        let mut state = self.state();
        if let Some((done, db)) = done {
            state.active_threads -= 1;
            if let FinishedBatch::Session(caller_id) = done {
                state.sessions.end_job(caller_id);
            }
            state.connections.push(db);
            if state.paused && state.active_threads == 0 {
                self.idle.notify_waiters();
            }
        }
        loop {
            if state.lock.is_none() {
                let connections = std::mem::take(&mut state.connections);
                drop(state);
                drop(connections);
                return None;
            }
            if !state.paused
                && state.has_work()
                && let Some(db) = state.connections.pop()
            {
                state.active_threads += 1;
                let batch = state.take_batch();
                self.wake(&mut state);
                return Some((db, batch));
            }
            state.sleeping_threads += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.wake_pending {
                state.wake_pending = false;
            } else {
                // The thread was woken by `notify_all` or spuriously. Only `wake` subtracts the woken thread from this
                // number itself.
                state.sleeping_threads -= 1;
            }
        }
    }

    fn wake(&self, state: &mut ReadQueueState) {
        if state.sleeping_threads > 0 && !state.wake_pending && state.has_work() {
            state.sleeping_threads -= 1;
            state.wake_pending = true;
            self.work.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, ReadQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadQueueState {
    fn rejection(&self) -> Option<ReadRejection> {
        if self.lock.is_none() {
            return Some(ReadRejection::Closed);
        }
        (!self.paused && self.active_threads == 0 && self.connections.is_empty()).then_some(ReadRejection::NotOpen)
    }

    /// Returns `true` if a thread could start a queued job now.
    fn has_work(&self) -> bool {
        self.reads.waiting() > 0 || self.sessions.has_startable_job()
    }

    /// Takes a batch for one thread: a single session, or some of the short reads. Leaves reads for the other threads.
    fn take_batch(&mut self) -> ReadBatch {
        if let Some((caller_id, session)) = self.sessions.start_next() {
            return ReadBatch::Session(caller_id, session);
        }
        let max = self.reads.waiting().div_ceil(READ_CONNECTIONS).min(MAX_READS_PER_TRANSACTION);
        ReadBatch::Reads(std::iter::from_fn(|| self.reads.pop_next()).take(max).collect())
    }

    fn clear(&mut self) -> Vec<VecDeque<ReadWork>> {
        self.sessions.clear().into_iter().chain(self.reads.clear()).collect()
    }
}

enum ReadBatch {
    Reads(Vec<ReadWork>),
    Session(CallerId, ReadWork),
}

enum FinishedBatch {
    Reads,
    Session(CallerId),
}

fn run_batch(db: &SqliteReadConnection, batch: ReadBatch) -> FinishedBatch {
    let reads = match batch {
        ReadBatch::Session(caller_id, work) => {
            work(db);
            return FinishedBatch::Session(caller_id);
        }
        ReadBatch::Reads(reads) => reads,
    };
    // If BEGIN fails, each read runs in its own transaction, which is correct as well.
    let together = reads.len() > 1 && try_execute(&db.lock(), "BEGIN");
    for work in reads {
        work(db);
    }
    // SQLite may already have ended the transaction, when one of the reads failed.
    let db = db.lock();
    if together && !db.is_autocommit() && !try_execute(&db, "COMMIT") {
        try_execute(&db, "ROLLBACK");
    }
    FinishedBatch::Reads
}

fn try_execute(db: &Connection, sql: &str) -> bool {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).is_ok()
}
