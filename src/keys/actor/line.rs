//! The line of jobs and the places at the backend: one state, one lock.
//!
//! A *place* is a thread or a task; there are never more than `max_parallel`, and each makes one call at a
//! time. Who pushes a job and finds nobody idle starts a place if one is left; else one idle thread is called, unless
//! one comes by itself, and calls the next where more waits. Places take the jobs in their order ([`Waiting`]); a job
//! whose caller has left, or whose time would be up before it is done, is answered here and never begun. Whoever would
//! wait for more than half of its time is refused at once: a backend that has more to do than it can does so much as it
//! can, and not everything too late. Calls that are under way count with the time that they have taken so far, so a
//! backend that hangs collects few jobs, and none once the calls at all places are stuck.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::backend::Backend;
use super::measure::{Counts, Meter};
use super::waiting::{Job, Rank, Waiting};
use crate::error::{Error, Kind, Result};

/// How often a place without work looks whether others need what it holds.
const REST: Duration = Duration::from_millis(250);

/// The bounds of an actor.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs that may wait.
    pub queue: usize,
    /// Longest time from the submission of a job to its answer.
    pub call_timeout: Duration,
    /// A thread that had nothing to do for so long ends, and its session with it.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 1024, call_timeout: Duration::from_secs(30), idle: Duration::from_secs(60) }
    }
}

/// The line of one key.
pub(super) struct Line {
    name: String,
    limits: Limits,
    meter: Meter,
    /// How a place is started.
    start: fn(Place),
    state: Mutex<State>,
    /// A job, another configuration, or the end.
    changed: Condvar,
    /// A place has ended.
    ended: Notify,
}

struct State {
    backend: Backend,
    /// Of the configuration.
    version: u64,
    max_parallel: usize,
    waiting: Waiting,
    places: usize,
    /// Threads that wait to be called.
    idle: usize,
    /// Of them, those that have been called.
    called: usize,
    /// Threads that are about to look for a job by themselves.
    looking: usize,
    running: Vec<Running>,
    calls: u64,
    closed: bool,
}

/// A call at the backend.
struct Running {
    number: u64,
    /// Of a look-up: of which version of the configuration.
    looks_by: Option<u64>,
    begun: Instant,
    /// The end of its job's time.
    deadline: Instant,
}

/// A call that a place is to make.
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) job: Job,
    pub(super) backend: Backend,
    pub(super) version: u64,
}

/// What a thread does next.
pub(super) enum Next {
    Call(Call),
    /// Drop what belongs to an older configuration.
    Renew,
    /// Nothing for now.
    Rest,
    Leave,
}

impl Line {
    pub(super) fn new(
        name: &str,
        backend: Backend,
        start: fn(Place),
        max_parallel: usize,
        limits: Limits,
    ) -> Arc<Self> {
        let state = State {
            backend,
            version: 0,
            max_parallel: max_parallel.max(1),
            waiting: Waiting::default(),
            places: 0,
            idle: 0,
            called: 0,
            looking: 0,
            running: Vec::new(),
            calls: 0,
            closed: false,
        };
        Arc::new(Self {
            name: name.to_owned(),
            limits,
            meter: Meter::new(name),
            start,
            state: Mutex::new(state),
            changed: Condvar::new(),
            ended: Notify::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) fn backend(&self) -> Backend {
        self.lock().backend.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// That a job would be taken in at this moment.
    pub(super) fn require_room(&self) -> Result<()> {
        self.admits(&self.lock(), Rank::First)
    }

    /// Refuses a job that has no room, or no time left when its turn comes.
    fn admits(&self, state: &State, rank: Rank) -> Result<()> {
        if state.is_stuck(rank, Instant::now(), self.limits.call_timeout) {
            return Err(self.stuck());
        }
        if self.takes_in(state, rank) { Ok(()) } else { Err(self.full()) }
    }

    /// Whether one more job has room, and a part of its time left when its turn comes.
    fn takes_in(&self, state: &State, rank: Rank) -> bool {
        let has_room = state.waiting.has_room(rank, self.limits.queue) || state.waiting.has_vain(rank, Instant::now());
        let (running, places) = (state.calls_of(rank).count(), state.places_of(rank));
        let least = state.least_elapsed(rank, Instant::now(), self.limits.call_timeout);
        let wait = state.waiting.wait(rank, running, places, least);
        has_room && state.waiting.is_in_time(wait, self.limits.call_timeout)
    }

    fn stuck(&self) -> Error {
        let text = format!("managed key {:?}: its backend hangs in all sessions, try again later", self.name);
        Error::new(Kind::Unavailable, text)
    }

    fn full(&self) -> Error {
        let text = format!("managed key {:?}: too many signatures wait for it, try again shortly", self.name);
        Error::new(Kind::Busy, text)
    }

    /// Takes a job in, and starts a place for it where nobody is idle and one is left.
    pub(super) fn push(self: &Arc<Self>, job: Job) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(stopped(&self.name));
        }
        self.admits(&state, job.rank)?;
        let is_full = !state.waiting.has_room(job.rank, self.limits.queue);
        let void = if is_full || job.rank == Rank::Look { state.waiting.drop_vain(Instant::now()) } else { Vec::new() };
        state.waiting.push(job);
        let hires = state.hires();
        let calls = !hires && state.calls();
        self.show(&state);
        drop(state);
        self.refuse(void);
        if hires {
            self.hire();
        } else if calls {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Starts a place that the state counts already.
    fn hire(self: &Arc<Self>) {
        (self.start)(Place { line: Arc::clone(self), began: false });
    }

    /// What the thread of a place does next; `version` is that of what it holds, `since` when it last had
    /// something to do.
    pub(super) fn next(&self, version: Option<u64>, since: Instant) -> Next {
        let mut state = self.lock();
        let (mut rested, mut gave_way) = (false, false);
        loop {
            if version.is_some_and(|version| version != state.version) {
                return Next::Renew;
            }
            if let Some(call) = self.take(&mut state) {
                let calls = state.calls();
                drop(state);
                if calls {
                    self.changed.notify_one();
                }
                return Next::Call(call);
            }
            if state.is_over() || since.elapsed() >= self.limits.idle {
                return Next::Leave;
            }
            if rested {
                return Next::Rest;
            }
            if !gave_way {
                (state, gave_way) = (self.give_way(state), true);
                continue;
            }
            state.idle += 1;
            let wait = REST.min(self.limits.idle);
            let (after, waited) =
                self.changed.wait_timeout(state, wait).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = after;
            state.idle -= 1;
            // Whoever was called: a thread that comes uncalled does the same.
            state.called = state.called.saturating_sub(1);
            rested = waited.timed_out();
            if !rested {
                state = self.give_way(state);
            }
        }
    }

    /// Whoever waits for this processor goes first, and what a worker brings then needs nobody to be woken for it: a
    /// thread that is awake makes many calls, one after the other, when the machine is busy. Costs nothing when it is
    /// not.
    fn give_way<'l>(&'l self, mut state: MutexGuard<'l, State>) -> MutexGuard<'l, State> {
        state.looking += 1;
        drop(state);
        std::thread::yield_now();
        let mut state = self.lock();
        state.looking -= 1;
        state
    }

    /// To be called by whoever was just answered. The system may have woken it on the processor of the thread that
    /// answered, before that thread has begun its next call: then the thread goes first, so that no place at the
    /// backend stands empty while a certificate is put together. Where no thread is held up nothing is given away.
    pub(super) fn let_begin(&self) {
        if self.lock().is_held_up() {
            std::thread::yield_now();
        }
    }

    /// The next call of a task; without one, the task ends.
    pub(super) fn next_of_task(&self) -> Option<Call> {
        self.take(&mut self.lock())
    }

    /// The first job that somebody still waits for, begun; nothing for a place too many.
    fn take(&self, state: &mut MutexGuard<'_, State>) -> Option<Call> {
        if state.places > state.max_parallel {
            return None;
        }
        let now = Instant::now();
        let job = loop {
            match state.pop() {
                Some(job) if state.waiting.is_vain(&job, now) => self.refuse(vec![job]),
                Some(job) => break job,
                None => {
                    self.show(state);
                    return None;
                }
            }
        };
        state.calls += 1;
        let (number, deadline) = (state.calls, job.deadline);
        let looks_by = (job.rank == Rank::Look).then_some(state.version);
        state.running.push(Running { number, looks_by, begun: now, deadline });
        self.show(state);
        self.meter.waited(now.duration_since(job.queued_at));
        Some(Call { number, job, backend: state.backend.clone(), version: state.version })
    }

    /// A call has ended: its place is free before its caller hears of it. `is_usual` are signatures that were made or
    /// refused by the backend, not those that were given up, nor look-ups.
    pub(super) fn done(&self, number: u64, took: Duration, is_usual: bool) {
        let mut state = self.lock();
        state.running.retain(|running| running.number != number);
        if is_usual {
            state.waiting.learn(took, self.limits.call_timeout);
        }
        self.show(&state);
        drop(state);
        self.meter.called(took);
    }

    pub(super) fn configure(&self, backend: Backend, max_parallel: usize) -> Result<()> {
        let mut state = self.lock();
        if std::mem::discriminant(&state.backend) != std::mem::discriminant(&backend) {
            return Err(Error::internal("a signer actor keeps to one kind of backend"));
        }
        // More places are taken by the next jobs.
        (state.backend, state.max_parallel) = (backend, max_parallel.max(1));
        state.version += 1;
        state.waiting.forget();
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Refuses jobs from now on; what waits is still done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until all places have ended; then, or after `limit`, nothing waits any more.
    pub(super) async fn ended(&self, limit: Duration) {
        let all = async {
            loop {
                let ended = self.ended.notified();
                if self.lock().places == 0 {
                    return;
                }
                ended.await;
            }
        };
        let _ = tokio::time::timeout(limit, all).await;
        let left = self.lock().waiting.take_all();
        for job in left {
            let _ = job.answer.send(Err(stopped(&self.name)));
        }
    }

    /// Shows calls whose time is up.
    pub(super) fn count_stuck(&self) {
        self.show(&self.lock());
    }

    pub(super) fn too_slow(&self) -> Error {
        let (name, limit) = (&self.name, self.limits.call_timeout);
        let seconds = limit.as_secs_f64();
        Error::new(Kind::Unavailable, format!("managed key {name:?}: its backend did not answer within {seconds} s"))
    }

    /// Answers jobs that nobody waits for, or not any longer.
    fn refuse(&self, jobs: Vec<Job>) {
        for job in jobs {
            let _ = job.answer.send(Err(self.too_slow()));
        }
    }

    fn show(&self, state: &State) {
        let (now, most) = (Instant::now(), self.limits.call_timeout);
        let is_stuck = |call: &&Running| call.is_stuck(now, most);
        self.meter.show(Counts {
            waiting: state.waiting.len(),
            places: state.places,
            running: state.running.len(),
            stuck: state.running.iter().filter(is_stuck).count(),
        });
    }
}

impl State {
    /// How many look-ups may be under way: a quarter of the places is theirs at most, so that those that hang leave the
    /// others to what signs.
    fn most_looks(&self) -> usize {
        (self.max_parallel / 4).max(1)
    }

    /// How many are. One by an older configuration holds up no other.
    fn looking_up(&self) -> usize {
        self.calls_of(Rank::Look).count()
    }

    /// The calls that hold the places of a rank.
    fn calls_of(&self, rank: Rank) -> impl Iterator<Item = &Running> {
        self.running.iter().filter(move |call| rank != Rank::Look || call.looks_by == Some(self.version))
    }

    fn places_of(&self, rank: Rank) -> usize {
        if rank == Rank::Look { self.most_looks() } else { self.max_parallel }
    }

    /// Whether the calls at all places of a rank are stuck.
    fn is_stuck(&self, rank: Rank, now: Instant, most: Duration) -> bool {
        let stuck = |rank| self.calls_of(rank).filter(|call| call.is_stuck(now, most)).count() >= self.places_of(rank);
        stuck(rank) || stuck(Rank::First)
    }

    /// How long every place of a rank has been busy with its call; zero while one is free. A look-up may make a key,
    /// which takes long, and counts only when it is stuck.
    fn least_elapsed(&self, rank: Rank, now: Instant, most: Duration) -> Duration {
        if self.calls_of(rank).count() < self.places_of(rank) {
            return Duration::ZERO;
        }
        let elapsed = |call: &Running| match call.looks_by {
            Some(_) if !call.is_stuck(now, most) => Duration::ZERO,
            _ => now.saturating_duration_since(call.begun),
        };
        self.calls_of(rank).map(elapsed).min().unwrap_or_default()
    }

    /// How many more may begin.
    fn looks(&self) -> usize {
        self.most_looks().saturating_sub(self.looking_up())
    }

    /// How much of what waits could begin.
    fn ready(&self) -> usize {
        self.waiting.ready(self.looks())
    }

    fn pop(&mut self) -> Option<Job> {
        self.waiting.pop(self.looks())
    }

    /// Whether a place has to be started for what waits; it counts from here.
    fn hires(&mut self) -> bool {
        let hires = self.ready() > self.idle + self.looking && self.places < self.max_parallel;
        self.places += usize::from(hires);
        hires
    }

    /// Whether a thread has to be called for what waits; it counts from here. Whoever comes calls the next one when
    /// more waits than it takes: so nobody is woken for what others have taken meanwhile.
    fn calls(&mut self) -> bool {
        let calls = self.ready() > 0 && self.idle > 0 && self.called + self.looking == 0;
        self.called += usize::from(calls);
        calls
    }

    /// Whether a place that is awake has not begun the call that waits for it.
    fn is_held_up(&self) -> bool {
        self.ready() > 0 && self.running.len() + self.idle < self.places
    }

    /// Whether a place without work has nothing to stay for.
    fn is_over(&self) -> bool {
        self.closed || self.places > self.max_parallel
    }
}

impl Running {
    /// Whether the call hangs: it lasts longer than a job may, or its job's time is up and was not spent in the line.
    fn is_stuck(&self, now: Instant, most: Duration) -> bool {
        let was_its_own = self.deadline.saturating_duration_since(self.begun) >= most / 4;
        now.saturating_duration_since(self.begun) >= most || (now >= self.deadline && was_its_own)
    }
}

/// A place at the backend. Its holder has given back all that it held of the backend when it drops this.
pub(super) struct Place {
    line: Arc<Line>,
    began: bool,
}

impl Place {
    /// The line, for whoever begins to work at the place.
    pub(super) fn begin(&mut self) -> Arc<Line> {
        self.began = true;
        Arc::clone(&self.line)
    }

    pub(super) fn name(&self) -> &str {
        &self.line.name
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.places -= 1;
        // For a job that came after the last look. A place that could not begin would not the next time.
        let hires = self.began && state.hires();
        let calls = !hires && state.calls();
        self.line.show(&state);
        drop(state);
        self.line.ended.notify_waiters();
        if hires {
            self.line.hire();
        } else if calls {
            self.line.changed.notify_one();
        }
    }
}

pub(super) fn stopped(name: &str) -> Error {
    Error::new(Kind::Unavailable, format!("managed key {name:?}: its signer is stopping"))
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::keys::actor::Request;
    use crate::keys::actor::{BlockingBackend, Lane};
    use crate::keys::signer::Wants;
    use crate::turns::Caller;
    use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};

    struct Nobody;

    impl BlockingBackend for Nobody {
        fn wants(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<Wants> {
            Ok(Wants::Digest)
        }

        fn lane(self: Arc<Self>, _: Meter) -> Box<dyn Lane> {
            unreachable!("no place is begun")
        }
    }

    fn job() -> Job {
        let (answer, _) = oneshot::channel();
        let now = Instant::now();
        let (request, rank, caller) = (Request::Find { create: false }, Rank::First, Caller::SERVER);
        Job { request, rank, queued_at: now, deadline: now, caller, answer }
    }

    #[test]
    fn a_place_is_held_up_while_a_job_waits_that_it_has_not_begun() {
        let backend = Backend::Blocking(Arc::new(Nobody));
        let line = Line::new("any", backend, |_| unreachable!("all places are taken"), 2, Limits::default());
        let mut state = line.lock();
        let soon = Instant::now() + REST;
        (state.places, state.running) =
            (2, [1, 2].map(|number| Running { number, looks_by: None, begun: soon, deadline: soon }).into());
        state.waiting.push(job());
        assert!(!state.is_held_up(), "all places are at the backend");
        state.running.pop();
        assert!(state.is_held_up());
        state.idle = 1;
        assert!(!state.is_held_up(), "the other one waits to be called");
        (state.idle, _) = (0, state.pop());
        assert!(!state.is_held_up(), "nothing waits");
    }

    #[test]
    fn one_thread_is_called_for_what_nobody_comes_for_and_calls_the_next() {
        let backend = Backend::Blocking(Arc::new(Nobody));
        let line = Line::new("any", backend, |_| unreachable!("all places are taken"), 2, Limits::default());
        let push = |state: &mut State| {
            state.waiting.push(job());
            (state.hires(), state.calls())
        };
        let mut state = line.lock();
        (state.places, state.idle) = (2, 2);
        assert_eq!(push(&mut state), (false, true));
        assert_eq!(push(&mut state), (false, false), "one comes");
        // It comes, and takes the first.
        (state.idle, state.called) = (1, 0);
        state.pop();
        assert!(state.calls());
        // So does the other.
        (state.idle, state.called) = (0, 0);
        state.pop();
        assert!(!state.calls(), "nothing waits");
        assert_eq!(push(&mut state), (false, false), "whoever is done takes it");
        (state.idle, state.looking) = (1, 1);
        assert_eq!(push(&mut state), (false, false), "one looks by itself");
        (state.places, state.idle, state.looking) = (1, 0, 0);
        assert_eq!(push(&mut state), (true, false), "a place is left");
    }
}
