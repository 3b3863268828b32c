//! The line of reads, and the threads that work it off.
//!
//! Waking a thread and beginning a transaction cost more than most reads do. So nobody is woken while somebody who was
//! woken is still on the way, and a thread takes all its share of the line at once and reads it in one transaction. That
//! begins when all of these reads are in the line already: each of them sees everything that was stored before it was
//! asked for.
//!
//! Callers take turns. Sessions, which may look through a whole table, wait in a line of their own and never have all threads; of those that
//! they have one asker never has all.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rusqlite::Connection;
use tokio::sync::Notify;

use crate::turns::{Asker, Turns};

/// Connections for reading, each with a thread.
pub(super) const CONNECTIONS: usize = 4;
/// Sessions at once: the other connections are for the short reads of everybody.
const SESSIONS: usize = CONNECTIONS - 1;
/// Sessions at once of one asker.
const SESSIONS_OF_ONE: usize = SESSIONS - 1;
/// Reads that share a transaction at most: the last of them waits for the others.
const TOGETHER: usize = 8;
/// Longest line, of each kind. Whoever left while it stood still is in it, too.
const LONGEST: usize = 16_384;

/// Work on a connection. It tells its result itself, and dropped it tells that there is none. It does not panic.
type Work = Box<dyn FnOnce(&Connection) + Send>;

pub(super) enum Job {
    /// Reads, perhaps in a transaction with others.
    Read(Asker, Work),
    /// Begins and ends a transaction itself, and may take long.
    Session(Asker, Work),
}

/// Reads that wait, and connections for them.
pub(super) struct Line {
    state: Mutex<State>,
    work: Condvar,
    /// A paused line has come to rest.
    rested: Notify,
}

struct State {
    reads: Turns<Work>,
    sessions: Turns<Work>,
    connections: Vec<Connection>,
    /// The lock on the folder; given up when the line is closed.
    lock: Option<Arc<File>>,
    paused: bool,
    /// Threads that have a connection.
    at_work: usize,
    /// Threads that sleep and were not woken.
    asleep: usize,
    /// A thread was woken and has not looked at the line yet.
    coming: bool,
}

/// Why no read is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    /// There are no connections.
    NotOpen,
    /// The line is too long.
    Full,
}

impl Line {
    /// A line and its threads, which end when it is closed.
    pub(super) fn start(connections: Vec<Connection>, lock: Arc<File>) -> std::io::Result<Arc<Self>> {
        let line = Arc::new(Self {
            state: Mutex::new(State {
                reads: Turns::new(usize::MAX, usize::MAX),
                sessions: Turns::new(SESSIONS, SESSIONS_OF_ONE),
                connections,
                lock: Some(lock),
                paused: false,
                at_work: 0,
                asleep: 0,
                coming: false,
            }),
            work: Condvar::new(),
            rested: Notify::new(),
        });
        for _ in 0..CONNECTIONS {
            let of = line.clone();
            let started = thread::Builder::new().name("signet-read".to_owned()).spawn(move || of.work_off());
            if let Err(error) = started {
                line.close();
                return Err(error);
            }
        }
        Ok(line)
    }

    /// Puts a job at the end.
    pub(super) fn join(&self, job: Job) -> Result<(), Refused> {
        let mut state = self.state();
        if let Some(refused) = state.refused() {
            return Err(refused);
        }
        match job {
            Job::Read(asker, work) if state.reads.waiting() < LONGEST => state.reads.push(asker, work),
            Job::Session(asker, work) if state.sessions.waiting() < LONGEST => state.sessions.push(asker, work),
            _ => return Err(Refused::Full),
        }
        self.wake(&mut state);
        Ok(())
    }

    /// Why a job that was in the line was dropped.
    pub(super) fn refused(&self) -> Refused {
        self.state().refused().unwrap_or(Refused::NotOpen)
    }

    /// Waits for the jobs under way, closes every connection, and holds up the others until [`Self::resume`].
    pub(super) async fn pause(&self) -> Result<(), Refused> {
        loop {
            let rested = self.rested.notified();
            {
                let mut state = self.state();
                if state.lock.is_none() {
                    return Err(Refused::Closed);
                }
                state.paused = true;
                if state.at_work == 0 {
                    state.connections.clear();
                    return Ok(());
                }
            }
            rested.await;
        }
    }

    /// Goes on, with these connections. Without any, jobs are refused.
    pub(super) fn resume(&self, connections: Vec<Connection>) {
        let mut state = self.state();
        state.paused = false;
        if state.lock.is_some() {
            state.connections = connections;
        }
        let dropped = state.refused().map(|_| state.clear());
        self.wake(&mut state);
        drop(state);
        drop(dropped);
    }

    /// Ends the threads when they have done what is under way; everything else is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.lock = None;
        let dropped = (state.clear(), std::mem::take(&mut state.connections));
        drop(state);
        self.work.notify_all();
        self.rested.notify_waiters();
        drop(dropped);
    }

    fn work_off(&self) {
        let mut done = None;
        while let Some((db, share)) = self.next(done) {
            done = Some((run(&db, share), db));
        }
    }

    /// Gives a connection back, and waits for the next share of the line; `None` when it is closed.
    fn next(&self, done: Option<(Done, Connection)>) -> Option<(Connection, Share)> {
        let mut state = self.state();
        if let Some((done, db)) = done {
            state.at_work -= 1;
            if let Done::Session(asker) = done {
                state.sessions.ended(asker);
            }
            state.connections.push(db);
            if state.paused && state.at_work == 0 {
                self.rested.notify_waiters();
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
                state.at_work += 1;
                let share = state.share();
                self.wake(&mut state);
                return Some((db, share));
            }
            state.asleep += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.coming {
                state.coming = false;
            } else {
                // Woken by nobody, or with everybody.
                state.asleep -= 1;
            }
        }
    }

    fn wake(&self, state: &mut State) {
        if state.asleep > 0 && !state.coming && state.has_work() {
            state.asleep -= 1;
            state.coming = true;
            self.work.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refused(&self) -> Option<Refused> {
        if self.lock.is_none() {
            return Some(Refused::Closed);
        }
        (!self.paused && self.at_work == 0 && self.connections.is_empty()).then_some(Refused::NotOpen)
    }

    /// Whether a thread would find something to do.
    fn has_work(&self) -> bool {
        self.reads.waiting() > 0 || self.sessions.has_one()
    }

    /// What one thread takes: a session alone, or so many reads that something is left for the others.
    fn share(&mut self) -> Share {
        if let Some((asker, session)) = self.sessions.take() {
            return Share::Session(asker, session);
        }
        let most = self.reads.waiting().div_ceil(CONNECTIONS).min(TOGETHER);
        Share::Reads(std::iter::from_fn(|| self.reads.take_next()).take(most).collect())
    }

    /// Takes everything that waits.
    fn clear(&mut self) -> Vec<VecDeque<Work>> {
        self.sessions.clear().into_iter().chain(self.reads.clear()).collect()
    }
}

/// What one thread takes of the line.
enum Share {
    Reads(Vec<Work>),
    Session(Asker, Work),
}

/// What a thread has done.
enum Done {
    Reads,
    Session(Asker),
}

fn run(db: &Connection, share: Share) -> Done {
    let reads = match share {
        Share::Session(asker, work) => {
            work(db);
            return Done::Session(asker);
        }
        Share::Reads(reads) => reads,
    };
    // Without it each read is a transaction of its own, which is as good.
    let together = reads.len() > 1 && execute(db, "BEGIN");
    for work in reads {
        work(db);
    }
    // The engine may have ended it when a read failed.
    if together && !db.is_autocommit() && !execute(db, "COMMIT") {
        execute(db, "ROLLBACK");
    }
    Done::Reads
}

fn execute(db: &Connection, sql: &str) -> bool {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).is_ok()
}
