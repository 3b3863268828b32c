//! The job queue and the workers of one key: one state behind one lock.
//!
//! A worker is a thread or a task that makes one backend call at a time; there are at most `max_parallel`. A new job
//! starts a worker or wakes an idle one. A job is rejected on submission if it would wait for more than half of its
//! time limit, so that an overloaded backend completes jobs instead of missing every deadline. The estimated wait
//! includes the elapsed time of calls in progress, so few jobs queue up behind a hanging backend. A job whose caller
//! has left, or whose deadline is too close, fails without a call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::backend::KeyBackend;
use super::key_metrics::{KeyMetrics, SignQueueCounts};
use super::priority_queues::{JobPriority, PriorityQueues, SigningJob};
use crate::error::{Error, Kind, Result};
use crate::rationing::{CallerId, DisplacedJobs, QueueCaller};

/// Longest wait of an idle thread for a job. After this time, the thread lets its session release resources.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The limits of a key's actor.
#[derive(Clone, Copy, Debug)]
pub struct SignerLimits {
    /// Maximum number of queued signatures. The queues of lookups and of requests without authentication each hold an
    /// eighth of it.
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

/// The job queue and the workers of one key.
pub(super) struct SignQueue {
    name: String,
    limits: SignerLimits,
    key_metrics: KeyMetrics,
    start_worker: fn(WorkerSlot),
    state: Mutex<SignQueueState>,
    /// Wakes idle threads: a job was queued, the configuration has changed, or the queue was closed.
    worker_wakeup: Condvar,
    worker_ended: Notify,
}

struct SignQueueState {
    backend: KeyBackend,
    /// Version of the configuration, incremented by each `configure`.
    version: u64,
    max_parallel: usize,
    waiting: PriorityQueues,
    workers: usize,
    /// Threads that wait for a job, including those that were notified and have not woken yet.
    idle: usize,
    running: Vec<RunningCall>,
    /// Number of the call that started last; calls are numbered from 1.
    last_call_number: u64,
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
    /// The thread has no job. It closes its session if that uses another version of the configuration. Otherwise it
    /// releases resources that other sessions wait for.
    Idle {
        version: u64,
    },
    Exit,
}

impl SignQueue {
    pub(super) fn new(
        name: &str,
        backend: KeyBackend,
        start_worker: fn(WorkerSlot),
        max_parallel: usize,
        limits: SignerLimits,
    ) -> Arc<Self> {
        let state = SignQueueState {
            backend,
            version: 0,
            max_parallel: max_parallel.max(1),
            waiting: PriorityQueues::new(),
            workers: 0,
            idle: 0,
            running: Vec::new(),
            last_call_number: 0,
            closed: false,
        };
        Arc::new(Self {
            name: name.to_owned(),
            limits,
            key_metrics: KeyMetrics::new(name),
            start_worker,
            state: Mutex::new(state),
            worker_wakeup: Condvar::new(),
            worker_ended: Notify::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limits(&self) -> &SignerLimits {
        &self.limits
    }

    pub(super) fn key_metrics(&self) -> &KeyMetrics {
        &self.key_metrics
    }

    pub(super) fn backend(&self) -> KeyBackend {
        self.lock().backend.clone()
    }

    fn lock(&self) -> MutexGuard<'_, SignQueueState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Fails if a signature of the current caller would be rejected now.
    pub(super) fn require_capacity(&self) -> Result<()> {
        let state = self.lock();
        let caller_id = QueueCaller::current().caller_id();
        self.require_admission(&state, JobPriority::First, caller_id)?;
        let has_capacity = state.waiting.has_capacity(JobPriority::First, caller_id, self.limits.queue);
        if has_capacity { Ok(()) } else { Err(self.full_error()) }
    }

    /// Rejects a job if all calls hang or its wait would be too long.
    fn require_admission(&self, state: &SignQueueState, priority: JobPriority, caller_id: CallerId) -> Result<()> {
        let now = Instant::now();
        if state.is_stuck(priority, now) {
            let text = format!("managed key {:?}: the backend does not respond in any session; retry later", self.name);
            return Err(Error::new(Kind::Unavailable, text));
        }
        let running = state.calls_of(priority).count();
        let max_calls = state.max_calls_of(priority);
        let min_elapsed = state.min_elapsed(priority, now);
        let wait = state.waiting.expected_wait(priority, caller_id, running, max_calls, min_elapsed);
        if state.waiting.starts_in_time(wait, self.limits.call_timeout) { Ok(()) } else { Err(self.full_error()) }
    }

    fn full_error(&self) -> Error {
        let text = format!("managed key {:?}: the signing queue is full; retry shortly", self.name);
        Error::new(Kind::Busy, text)
    }

    /// Queues a job, and starts or wakes a worker for it.
    pub(super) fn push(self: &Arc<Self>, job: SigningJob) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(stopped_error(&self.name));
        }
        self.require_admission(&state, job.priority, job.caller.caller_id())?;
        let DisplacedJobs { abandoned, refused } = state.waiting.push(job, self.limits.queue);
        self.start_or_wake_worker(state, true);
        abandoned.into_iter().for_each(|job| self.fail_expired_job(job));
        if let Some(job) = refused {
            let _ = job.answer.send(Err(self.full_error()));
        }
        Ok(())
    }

    /// Starts a worker if `may_start` is `true`, fewer than `max_parallel` workers exist, and more jobs are ready than
    /// workers are idle. Otherwise, if a job is ready, wakes an idle worker.
    fn start_or_wake_worker(self: &Arc<Self>, mut state: MutexGuard<'_, SignQueueState>, may_start: bool) {
        let ready = state.ready_jobs();
        let starts = may_start && ready > state.idle && state.workers < state.max_parallel;
        state.workers += usize::from(starts);
        let wakes = !starts && ready > 0 && state.idle > 0;
        self.update_gauges(&state);
        drop(state);
        if starts {
            (self.start_worker)(WorkerSlot { queue: Arc::clone(self), has_started: false });
        } else if wakes {
            self.worker_wakeup.notify_one();
        }
    }

    /// Returns the next step of a thread whose last call ended at `since`.
    pub(super) fn next_worker_step(&self, since: Instant) -> WorkerStep {
        let mut state = self.lock();
        let mut has_yielded = false;
        let mut has_waited = false;
        loop {
            if let Some(call) = self.take_call(&mut state) {
                return WorkerStep::Call(call);
            }
            if state.closed || state.workers > state.max_parallel || since.elapsed() >= self.limits.idle {
                return WorkerStep::Exit;
            }
            if has_waited {
                return WorkerStep::Idle { version: state.version };
            }
            state.idle += 1;
            if !has_yielded {
                // HTTP workers that wait for a processor run first. If they submit jobs meanwhile, this thread takes
                // these jobs without being woken.
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                state.idle -= 1;
                has_yielded = true;
                continue;
            }
            let wait = IDLE_CHECK_INTERVAL.min(self.limits.idle);
            let waited = self.worker_wakeup.wait_timeout(state, wait).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = waited.0;
            state.idle -= 1;
            has_waited = waited.1.timed_out();
        }
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
        self.take_call(&mut self.lock())
    }

    /// Starts the first job whose caller still waits for it. Returns `None` when no job can start, or when there are
    /// more workers than `max_parallel`, so that the surplus ones end.
    fn take_call(&self, state: &mut MutexGuard<'_, SignQueueState>) -> Option<BackendCall> {
        if state.workers > state.max_parallel {
            return None;
        }
        let now = Instant::now();
        let job = loop {
            match state.pop_job() {
                Some(job) if state.waiting.is_expired(&job) => self.fail_expired_job(job),
                Some(job) => break job,
                None => {
                    self.update_gauges(state);
                    return None;
                }
            }
        };
        state.last_call_number += 1;
        let number = state.last_call_number;
        let deadline = job.deadline;
        let lookup_version = (job.priority == JobPriority::Lookup).then_some(state.version);
        state.running.push(RunningCall { number, lookup_version, begun: now, deadline });
        self.update_gauges(state);
        self.key_metrics.record_wait(now.duration_since(job.queued_at));
        Some(BackendCall { number, job, backend: state.backend.clone(), version: state.version })
    }

    /// Records the end of a call. Must run before the caller gets the response, so that the worker already counts as
    /// free when the caller continues. `updates_estimate` is `true` for signature calls that ended in time, successful
    /// or not: only these update the estimated duration of a call.
    pub(super) fn end_call(&self, number: u64, took: Duration, updates_estimate: bool) {
        let mut state = self.lock();
        state.running.retain(|running| running.number != number);
        if updates_estimate {
            state.waiting.update_call_estimate(took, self.limits.call_timeout);
        }
        self.update_gauges(&state);
        drop(state);
        self.key_metrics.record_call_time(took);
    }

    pub(super) fn configure(&self, backend: KeyBackend, max_parallel: usize) -> Result<()> {
        let mut state = self.lock();
        if std::mem::discriminant(&state.backend) != std::mem::discriminant(&backend) {
            return Err(Error::internal(
                "managed key: its signer cannot change between a blocking and an asynchronous backend",
            ));
        }
        // If the limit was raised, additional workers start with the next jobs.
        (state.backend, state.max_parallel) = (backend, max_parallel.max(1));
        state.version += 1;
        state.waiting.forget_estimate();
        drop(state);
        self.worker_wakeup.notify_all();
        Ok(())
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.worker_wakeup.notify_all();
    }

    /// Waits until all workers have ended, at most `limit`, then fails the jobs that are still queued.
    pub(super) async fn wait_for_workers(&self, limit: Duration) {
        let all = async {
            loop {
                let ended = self.worker_ended.notified();
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

    pub(super) fn refresh_gauges(&self) {
        self.update_gauges(&self.lock());
    }

    pub(super) fn timeout_error(&self) -> Error {
        let name = &self.name;
        let limit = self.limits.call_timeout;
        let seconds = limit.as_secs_f64();
        Error::new(
            Kind::Unavailable,
            format!("managed key {name:?}: no response of the backend within {seconds} s; retry later"),
        )
    }

    /// Fails a job whose caller has left or whose deadline is too close.
    fn fail_expired_job(&self, job: SigningJob) {
        let _ = job.answer.send(Err(self.timeout_error()));
    }

    fn update_gauges(&self, state: &SignQueueState) {
        let now = Instant::now();
        self.key_metrics.set_gauges(SignQueueCounts {
            waiting: state.waiting.len(),
            workers: state.workers,
            running: state.running.len(),
            stuck: state.running.iter().filter(|call| call.is_stuck(now)).count(),
        });
    }
}

impl SignQueueState {
    /// Maximum number of concurrent calls of a priority. Lookups may use a quarter of the workers, so that hanging
    /// lookups leave the other workers to signatures.
    fn max_calls_of(&self, priority: JobPriority) -> usize {
        if priority == JobPriority::Lookup { (self.max_parallel / 4).max(1) } else { self.max_parallel }
    }

    /// Running calls that count against the limit of a priority. Lookups of an older configuration do not count.
    fn calls_of(&self, priority: JobPriority) -> impl Iterator<Item = &RunningCall> {
        let is_lookup = priority == JobPriority::Lookup;
        self.running.iter().filter(move |call| !is_lookup || call.lookup_version == Some(self.version))
    }

    /// `true` if hanging calls use up the limit of `priority`, or that of the first priority.
    fn is_stuck(&self, priority: JobPriority, now: Instant) -> bool {
        [priority, JobPriority::First].into_iter().any(|priority| {
            self.calls_of(priority).filter(|call| call.is_stuck(now)).count() >= self.max_calls_of(priority)
        })
    }

    /// Elapsed time of the signature call that started last, or zero while a call of this priority may start. Lookups
    /// do not count, because a lookup may generate a key, which takes long.
    fn min_elapsed(&self, priority: JobPriority, now: Instant) -> Duration {
        if self.calls_of(priority).count() < self.max_calls_of(priority) {
            return Duration::ZERO;
        }
        let signatures = self.running.iter().filter(|call| call.lookup_version.is_none());
        signatures.map(|call| now.saturating_duration_since(call.begun)).min().unwrap_or_default()
    }

    fn free_lookup_calls(&self) -> usize {
        self.max_calls_of(JobPriority::Lookup).saturating_sub(self.calls_of(JobPriority::Lookup).count())
    }

    fn ready_jobs(&self) -> usize {
        self.waiting.ready_jobs(self.free_lookup_calls())
    }

    fn pop_job(&mut self) -> Option<SigningJob> {
        self.waiting.pop(self.free_lookup_calls())
    }

    /// `true` if a job waits, and some worker is awake but has not started its next call.
    fn has_unstarted_job(&self) -> bool {
        self.ready_jobs() > 0 && self.running.len() + self.idle < self.workers
    }
}

impl RunningCall {
    /// `true` if the call hangs: its deadline has passed, so its caller no longer waits.
    fn is_stuck(&self, now: Instant) -> bool {
        now >= self.deadline
    }
}

/// The slot of a worker, which counts against `max_parallel`. A worker releases all resources of the backend before it
/// drops its slot.
pub(super) struct WorkerSlot {
    queue: Arc<SignQueue>,
    has_started: bool,
}

impl WorkerSlot {
    /// Marks the worker as started and returns the queue.
    pub(super) fn mark_started(&mut self) -> Arc<SignQueue> {
        self.has_started = true;
        Arc::clone(&self.queue)
    }

    pub(super) fn key_name(&self) -> &str {
        &self.queue.name
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.workers -= 1;
        // A job may have been queued after this worker last looked for one, so another worker may be needed. A worker
        // that could not start is not replaced: the next one would probably fail, too.
        self.queue.start_or_wake_worker(state, self.has_started);
        self.queue.worker_ended.notify_waiters();
    }
}

pub(super) fn stopped_error(name: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("managed key {name:?}: its signer is stopping, because the server stops or the key was deleted"),
    )
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::keys::actor::{BackendRequest, BackendSession, BlockingBackend};
    use crate::keys::signer::SigningInputKind;
    use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};

    struct NoBackend;

    impl BlockingBackend for NoBackend {
        fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
            Ok(SigningInputKind::Digest)
        }

        fn new_session(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
            unreachable!("no worker is started")
        }
    }

    #[test]
    fn sign_queue_starts_a_worker_only_if_idle_ones_do_not_suffice() {
        let backend = KeyBackend::Blocking(Arc::new(NoBackend));
        let queue = SignQueue::new("any", backend, std::mem::forget, 3, SignerLimits::default());
        let mut callers = Vec::new();
        let mut push = || {
            let (answer, answered) = oneshot::channel();
            callers.push(answered);
            let queued_at = Instant::now();
            let deadline = queued_at + Duration::from_secs(30);
            let request = BackendRequest::Find { create: false };
            let priority = JobPriority::First;
            let caller = QueueCaller::SERVER;
            queue.push(SigningJob { request, priority, queued_at, deadline, caller, answer }).unwrap();
            queue.lock().workers
        };
        queue.lock().idle = 1;
        queue.lock().workers = 1;
        assert_eq!([push(), push(), push(), push()], [1, 2, 3, 3]);
        let mut state = queue.lock();
        assert!(state.has_unstarted_job(), "two workers are awake");
        state.idle = 3;
        assert!(!state.has_unstarted_job(), "all workers wait");
    }
}
