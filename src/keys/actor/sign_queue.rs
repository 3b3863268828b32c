//! The job queue and the workers of one key: one state behind one lock.
//!
//! A worker is a thread or a task that makes one backend call at a time; there are at most `max_parallel`. `push`
//! starts a worker, or wakes one idle thread, which wakes the next if more jobs wait. A job is rejected on submission
//! if it would wait for more than half of its time limit, so that an overloaded backend completes jobs instead of
//! missing every deadline. Calls in progress count with their elapsed time, so a hanging backend collects few jobs. A
//! job whose caller has left, or whose deadline is too close, fails without a call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::backend::KeyBackend;
use super::key_metrics::{KeyMetrics, SignQueueCounts};
use super::priority_queues::{JobPriority, PriorityQueues, SigningJob};
use crate::error::{Error, Kind, Result};

/// Interval of the idle checks of a thread.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The limits of an actor.
#[derive(Clone, Copy, Debug)]
pub struct SignerLimits {
    /// Maximum number of queued jobs of the first rank.
    pub queue: usize,
    /// Maximum time from the submission of a job to its response.
    pub call_timeout: Duration,
    /// A thread that is idle for this long ends and closes its session.
    pub idle: Duration,
}

impl Default for SignerLimits {
    fn default() -> Self {
        Self { queue: 1024, call_timeout: Duration::from_secs(30), idle: Duration::from_secs(60) }
    }
}

/// The queue of one key.
pub(super) struct SignQueue {
    name: String,
    limits: SignerLimits,
    meter: KeyMetrics,
    start: fn(WorkerSlot),
    state: Mutex<SignQueueState>,
    /// Notified of a job, a changed configuration, or the end.
    changed: Condvar,
    ended: Notify,
}

struct SignQueueState {
    backend: KeyBackend,
    /// Incremented by each `configure`.
    version: u64,
    max_parallel: usize,
    waiting: PriorityQueues,
    workers: usize,
    /// Threads that wait to be notified.
    idle: usize,
    /// Idle threads that were notified and have not woken yet.
    called: usize,
    /// Threads that are about to look for a job without a notification.
    looking: usize,
    running: Vec<RunningCall>,
    calls: u64,
    closed: bool,
}

struct RunningCall {
    number: u64,
    /// For a lookup: the version of the configuration that it uses.
    lookup_version: Option<u64>,
    begun: Instant,
    deadline: Instant,
}

pub(super) struct BackendCall {
    pub(super) number: u64,
    pub(super) job: SigningJob,
    pub(super) backend: KeyBackend,
    pub(super) version: u64,
}

pub(super) enum WorkerStep {
    Call(BackendCall),
    /// Drop the session of an older configuration.
    Renew,
    /// No job: release what other sessions wait for.
    Rest,
    Leave,
}

impl SignQueue {
    pub(super) fn new(
        name: &str,
        backend: KeyBackend,
        start: fn(WorkerSlot),
        max_parallel: usize,
        limits: SignerLimits,
    ) -> Arc<Self> {
        let state = SignQueueState {
            backend,
            version: 0,
            max_parallel: max_parallel.max(1),
            waiting: PriorityQueues::default(),
            workers: 0,
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
            meter: KeyMetrics::new(name),
            start,
            state: Mutex::new(state),
            changed: Condvar::new(),
            ended: Notify::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limits(&self) -> &SignerLimits {
        &self.limits
    }

    pub(super) fn meter(&self) -> &KeyMetrics {
        &self.meter
    }

    pub(super) fn backend(&self) -> KeyBackend {
        self.lock().backend.clone()
    }

    fn lock(&self) -> MutexGuard<'_, SignQueueState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn require_capacity(&self) -> Result<()> {
        self.admits(&self.lock(), JobPriority::First)
    }

    /// Rejects a job if all calls hang, the queue is full, or its wait would be too long.
    fn admits(&self, state: &SignQueueState, rank: JobPriority) -> Result<()> {
        if state.is_stuck(rank, Instant::now(), self.limits.call_timeout) {
            return Err(self.stuck_error());
        }
        if self.accepts(state, rank) { Ok(()) } else { Err(self.full()) }
    }

    /// `true` if the queue has capacity for one more job and it would start early enough.
    fn accepts(&self, state: &SignQueueState, rank: JobPriority) -> bool {
        let has_capacity =
            state.waiting.has_capacity(rank, self.limits.queue) || state.waiting.has_expired(rank, Instant::now());
        let running = state.calls_of(rank).count();
        let max_calls = state.max_calls_of(rank);
        let least = state.min_elapsed(rank, Instant::now(), self.limits.call_timeout);
        let wait = state.waiting.wait(rank, running, max_calls, least);
        has_capacity && state.waiting.is_in_time(wait, self.limits.call_timeout)
    }

    fn stuck_error(&self) -> Error {
        let text = format!("managed key {:?}: the backend does not respond in any session; retry later", self.name);
        Error::new(Kind::Unavailable, text)
    }

    fn full(&self) -> Error {
        let text = format!("managed key {:?}: the signing queue is full; retry shortly", self.name);
        Error::new(Kind::Busy, text)
    }

    /// Queues a job. Starts a worker if none is idle and the limit allows one more.
    pub(super) fn push(self: &Arc<Self>, job: SigningJob) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(stopped_error(&self.name));
        }
        self.admits(&state, job.rank)?;
        let is_full = !state.waiting.has_capacity(job.rank, self.limits.queue);
        let void = if is_full || job.rank == JobPriority::Lookup {
            state.waiting.remove_expired(Instant::now())
        } else {
            Vec::new()
        };
        state.waiting.push(job);
        let hires = state.reserve_worker();
        let calls = !hires && state.select_idle_thread();
        self.show(&state);
        drop(state);
        self.refuse(void);
        if hires {
            self.spawn_worker();
        } else if calls {
            self.changed.notify_one();
        }
        Ok(())
    }

    fn spawn_worker(self: &Arc<Self>) {
        (self.start)(WorkerSlot { line: Arc::clone(self), began: false });
    }

    /// Returns the next step of a thread. `version` is the configuration version of its session, `since` the
    /// end of its last call.
    pub(super) fn next(&self, version: Option<u64>, since: Instant) -> WorkerStep {
        let mut state = self.lock();
        let mut idle = false;
        let mut gave_way = false;
        loop {
            if version.is_some_and(|version| version != state.version) {
                return WorkerStep::Renew;
            }
            if let Some(call) = self.take(&mut state) {
                let calls = state.select_idle_thread();
                drop(state);
                if calls {
                    self.changed.notify_one();
                }
                return WorkerStep::Call(call);
            }
            if state.is_over() || since.elapsed() >= self.limits.idle {
                return WorkerStep::Leave;
            }
            if idle {
                return WorkerStep::Rest;
            }
            if !gave_way {
                (state, gave_way) = (self.yield_before_wait(state), true);
                continue;
            }
            state.idle += 1;
            let wait = IDLE_CHECK_INTERVAL.min(self.limits.idle);
            let (after, waited) =
                self.changed.wait_timeout(state, wait).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = after;
            state.idle -= 1;
            // Also for a thread that woke by timeout: it looks for a job like a notified thread.
            state.called = state.called.saturating_sub(1);
            idle = waited.timed_out();
            if !idle {
                state = self.yield_before_wait(state);
            }
        }
    }

    /// Yields the processor before the thread sleeps. HTTP workers that wait for the processor run first, and jobs that
    /// they submit then need no wake-up. On a busy machine one thread makes many calls in a row; on an idle one the
    /// yield costs nothing.
    fn yield_before_wait<'l>(&'l self, mut state: MutexGuard<'l, SignQueueState>) -> MutexGuard<'l, SignQueueState> {
        state.looking += 1;
        drop(state);
        std::thread::yield_now();
        let mut state = self.lock();
        state.looking -= 1;
        state
    }

    /// Yields the processor to a worker that has not started its next call yet. Called by a caller that has just
    /// received its response: the scheduler may run it before the worker that sent the response. Without this, the
    /// backend would idle while the caller builds a certificate.
    pub(super) fn yield_to_worker(&self) {
        if self.lock().has_unstarted_job() {
            std::thread::yield_now();
        }
    }

    /// Returns the next call of a task. Without a call, the task ends.
    pub(super) fn next_task_call(&self) -> Option<BackendCall> {
        self.take(&mut self.lock())
    }

    /// Starts the first job that a caller still waits for. Returns `None` for a worker above the limit, or
    /// when no job can start.
    fn take(&self, state: &mut MutexGuard<'_, SignQueueState>) -> Option<BackendCall> {
        if state.workers > state.max_parallel {
            return None;
        }
        let now = Instant::now();
        let job = loop {
            match state.pop() {
                Some(job) if state.waiting.is_expired(&job, now) => self.refuse(vec![job]),
                Some(job) => break job,
                None => {
                    self.show(state);
                    return None;
                }
            }
        };
        state.calls += 1;
        let number = state.calls;
        let deadline = job.deadline;
        let lookup_version = (job.rank == JobPriority::Lookup).then_some(state.version);
        state.running.push(RunningCall { number, lookup_version, begun: now, deadline });
        self.show(state);
        self.meter.record_wait(now.duration_since(job.queued_at));
        Some(BackendCall { number, job, backend: state.backend.clone(), version: state.version })
    }

    /// Records the end of a call, before the caller gets the response, so that the worker counts as free. `is_usual`
    /// marks signature calls that ended in time, successful or not: only they update the estimated duration.
    pub(super) fn done(&self, number: u64, took: Duration, is_usual: bool) {
        let mut state = self.lock();
        state.running.retain(|running| running.number != number);
        if is_usual {
            state.waiting.learn(took, self.limits.call_timeout);
        }
        self.show(&state);
        drop(state);
        self.meter.record_call_time(took);
    }

    pub(super) fn configure(&self, backend: KeyBackend, max_parallel: usize) -> Result<()> {
        let mut state = self.lock();
        if std::mem::discriminant(&state.backend) != std::mem::discriminant(&backend) {
            return Err(Error::internal("a signer actor keeps to one kind of backend"));
        }
        // Additional workers start with the next jobs.
        (state.backend, state.max_parallel) = (backend, max_parallel.max(1));
        state.version += 1;
        state.waiting.forget();
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until all workers have ended, at most `limit`, then fails the jobs that are still queued.
    pub(super) async fn ended(&self, limit: Duration) {
        let all = async {
            loop {
                let ended = self.ended.notified();
                if self.lock().workers == 0 {
                    return;
                }
                ended.await;
            }
        };
        let _ = tokio::time::timeout(limit, all).await;
        let left = self.lock().waiting.take_all();
        for job in left {
            let _ = job.answer.send(Err(stopped_error(&self.name)));
        }
    }

    pub(super) fn update_metrics(&self) {
        self.show(&self.lock());
    }

    pub(super) fn timeout_error(&self) -> Error {
        let name = &self.name;
        let limit = self.limits.call_timeout;
        let seconds = limit.as_secs_f64();
        Error::new(Kind::Unavailable, format!("managed key {name:?}: no response of the backend within {seconds} s"))
    }

    /// Fails jobs whose caller has left or whose deadline is too close.
    fn refuse(&self, jobs: Vec<SigningJob>) {
        for job in jobs {
            let _ = job.answer.send(Err(self.timeout_error()));
        }
    }

    fn show(&self, state: &SignQueueState) {
        let now = Instant::now();
        let call_timeout = self.limits.call_timeout;
        let is_stuck = |call: &&RunningCall| call.is_stuck(now, call_timeout);
        self.meter.show(SignQueueCounts {
            waiting: state.waiting.len(),
            workers: state.workers,
            running: state.running.len(),
            stuck: state.running.iter().filter(is_stuck).count(),
        });
    }
}

impl SignQueueState {
    /// Maximum number of concurrent lookups: a quarter of the workers, so that hanging lookups leave the
    /// others to signatures.
    fn max_lookups(&self) -> usize {
        (self.max_parallel / 4).max(1)
    }

    /// Number of running lookups, without those of an older configuration.
    fn running_lookups(&self) -> usize {
        self.calls_of(JobPriority::Lookup).count()
    }

    /// Running calls that count against the limit of a rank.
    fn calls_of(&self, rank: JobPriority) -> impl Iterator<Item = &RunningCall> {
        self.running.iter().filter(move |call| rank != JobPriority::Lookup || call.lookup_version == Some(self.version))
    }

    fn max_calls_of(&self, rank: JobPriority) -> usize {
        if rank == JobPriority::Lookup { self.max_lookups() } else { self.max_parallel }
    }

    /// `true` if all calls that this rank or the first rank may make hang.
    fn is_stuck(&self, rank: JobPriority, now: Instant, call_timeout: Duration) -> bool {
        let stuck = |rank| {
            self.calls_of(rank).filter(|call| call.is_stuck(now, call_timeout)).count() >= self.max_calls_of(rank)
        };
        stuck(rank) || stuck(JobPriority::First)
    }

    /// Minimum elapsed time of the calls of a rank, or zero while another call may start. A lookup may generate a key,
    /// which takes long, so it counts only once it hangs.
    fn min_elapsed(&self, rank: JobPriority, now: Instant, call_timeout: Duration) -> Duration {
        if self.calls_of(rank).count() < self.max_calls_of(rank) {
            return Duration::ZERO;
        }
        let elapsed = |call: &RunningCall| match call.lookup_version {
            Some(_) if !call.is_stuck(now, call_timeout) => Duration::ZERO,
            _ => now.saturating_duration_since(call.begun),
        };
        self.calls_of(rank).map(elapsed).min().unwrap_or_default()
    }

    fn free_lookups(&self) -> usize {
        self.max_lookups().saturating_sub(self.running_lookups())
    }

    fn ready(&self) -> usize {
        self.waiting.ready(self.free_lookups())
    }

    fn pop(&mut self) -> Option<SigningJob> {
        self.waiting.pop(self.free_lookups())
    }

    /// Reserves a new worker if the queued jobs need one. The caller must start it if the result is `true`.
    fn reserve_worker(&mut self) -> bool {
        let hires = self.ready() > self.idle + self.looking && self.workers < self.max_parallel;
        self.workers += usize::from(hires);
        hires
    }

    /// Selects an idle thread if the queued jobs need one. The caller must notify it if the result is `true`. The
    /// thread notifies the next one if more jobs are left, so that none wakes for a job that another thread has taken.
    fn select_idle_thread(&mut self) -> bool {
        let calls = self.ready() > 0 && self.idle > 0 && self.called + self.looking == 0;
        self.called += usize::from(calls);
        calls
    }

    /// `true` if a job waits and an awake worker has not started a call.
    fn has_unstarted_job(&self) -> bool {
        self.ready() > 0 && self.running.len() + self.idle < self.workers
    }

    /// `true` if a worker without a job must end.
    fn is_over(&self) -> bool {
        self.closed || self.workers > self.max_parallel
    }
}

impl RunningCall {
    /// `true` if the call hangs: it runs longer than a job may take, or past a deadline before which it had at least a
    /// quarter of the time limit (the rest was spent in the queue).
    fn is_stuck(&self, now: Instant, call_timeout: Duration) -> bool {
        let was_its_own = self.deadline.saturating_duration_since(self.begun) >= call_timeout / 4;
        now.saturating_duration_since(self.begun) >= call_timeout || (now >= self.deadline && was_its_own)
    }
}

/// A worker's slot. The holder releases all resources of the backend before it drops the slot.
pub(super) struct WorkerSlot {
    line: Arc<SignQueue>,
    began: bool,
}

impl WorkerSlot {
    /// Marks the worker as started and returns the queue.
    pub(super) fn begin(&mut self) -> Arc<SignQueue> {
        self.began = true;
        Arc::clone(&self.line)
    }

    pub(super) fn name(&self) -> &str {
        &self.line.name
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.workers -= 1;
        // For a job that was queued after this worker looked for one. A worker that could not start is not replaced:
        // the next one would probably fail too.
        let hires = self.began && state.reserve_worker();
        let calls = !hires && state.select_idle_thread();
        self.line.show(&state);
        drop(state);
        self.line.ended.notify_waiters();
        if hires {
            self.line.spawn_worker();
        } else if calls {
            self.line.changed.notify_one();
        }
    }
}

pub(super) fn stopped_error(name: &str) -> Error {
    Error::new(Kind::Unavailable, format!("managed key {name:?}: its signer is stopping"))
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::fair_queue::QueueCaller;
    use crate::keys::actor::BackendRequest;
    use crate::keys::actor::{BackendSession, BlockingBackend};
    use crate::keys::signer::SigningInputKind;
    use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};

    struct Nobody;

    impl BlockingBackend for Nobody {
        fn wants(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
            Ok(SigningInputKind::Digest)
        }

        fn lane(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
            unreachable!("no worker is started")
        }
    }

    fn job() -> SigningJob {
        let (answer, _) = oneshot::channel();
        let now = Instant::now();
        let request = BackendRequest::Find { create: false };
        let rank = JobPriority::First;
        let caller = QueueCaller::SERVER;
        SigningJob { request, rank, queued_at: now, deadline: now, caller, answer }
    }

    #[test]
    fn unstarted_job_means_an_awake_worker_has_not_begun_it() {
        let backend = KeyBackend::Blocking(Arc::new(Nobody));
        let line =
            SignQueue::new("any", backend, |_| unreachable!("all workers are started"), 2, SignerLimits::default());
        let mut state = line.lock();
        let soon = Instant::now() + IDLE_CHECK_INTERVAL;
        (state.workers, state.running) =
            (2, [1, 2].map(|number| RunningCall { number, lookup_version: None, begun: soon, deadline: soon }).into());
        state.waiting.push(job());
        assert!(!state.has_unstarted_job(), "all workers are at the backend");
        state.running.pop();
        assert!(state.has_unstarted_job());
        state.idle = 1;
        assert!(!state.has_unstarted_job(), "the other one waits to be called");
        (state.idle, _) = (0, state.pop());
        assert!(!state.has_unstarted_job(), "nothing waits");
    }

    #[test]
    fn sign_queue_wakes_one_thread_for_an_unclaimed_job() {
        let backend = KeyBackend::Blocking(Arc::new(Nobody));
        let line =
            SignQueue::new("any", backend, |_| unreachable!("all workers are started"), 2, SignerLimits::default());
        let push = |state: &mut SignQueueState| {
            state.waiting.push(job());
            (state.reserve_worker(), state.select_idle_thread())
        };
        let mut state = line.lock();
        (state.workers, state.idle) = (2, 2);
        assert_eq!(push(&mut state), (false, true));
        assert_eq!(push(&mut state), (false, false), "one comes");
        // The woken thread takes the first job.
        (state.idle, state.called) = (1, 0);
        state.pop();
        assert!(state.select_idle_thread());
        (state.idle, state.called) = (0, 0);
        state.pop();
        assert!(!state.select_idle_thread(), "nothing waits");
        assert_eq!(push(&mut state), (false, false), "a worker that is done takes it");
        (state.idle, state.looking) = (1, 1);
        assert_eq!(push(&mut state), (false, false), "one looks by itself");
        (state.workers, state.idle, state.looking) = (1, 0, 0);
        assert_eq!(push(&mut state), (true, false), "a worker is left");
    }
}
