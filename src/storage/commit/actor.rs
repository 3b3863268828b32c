//! The commit actor. It owns the queue of waiting units and the backend, which commits one batch at a time.
//!
//! It runs on its own thread and actix system, so that it does not block an HTTP worker. Session work (units that run a
//! SQL session) delays all units of its commit. So a commit takes all short units, but only a limited number of units
//! with session work. The limit adapts to the time that such units recently took, and the queue is fair between
//! callers. After each step, background work pauses for as long as the step took. A message only wakes an idle actor; a
//! busy actor checks the queue itself.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix::prelude::*;
use futures_util::FutureExt as _;
use metrics::histogram;
use tokio::sync::oneshot;

use super::job::{CommitJob, count_failure};
use super::status::CommitStatus;
use crate::error::{Error, Result};
use crate::rationing::FairQueue;
use crate::storage::backend::{StoreBackend, WriteUnit};
use crate::telemetry;

/// Maximum number of short units per commit. A larger batch would not reduce the cost per row, but it would delay the
/// replies.
const MAX_BATCH_UNITS: usize = 512;

/// Maximum number of units with session work per commit.
const MAX_SESSION_WORK_UNITS: usize = 64;
/// Minimum number of units with session work per commit.
const MIN_SESSION_WORK_UNITS: usize = 2;
/// Target for the time that session work takes in a commit. Above it, the limit of such units per commit is halved;
/// below half of it, the limit is doubled.
const TARGET_SESSION_WORK_TIME: Duration = Duration::from_millis(20);

/// Minimum pause between two steps of background work.
const MIN_BACKGROUND_PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of yields to other threads before a commit. Most additional units arrive during the first yield.
const MAX_YIELDS: usize = 3;

#[derive(Clone)]
pub(super) struct CommitLink {
    queue: Arc<CommitQueue>,
    wake: Recipient<WakeCommitter>,
    stop: Recipient<StopCommitter>,
}

impl CommitLink {
    /// Submits a job without blocking, except for the queue's mutex. The permits of `CommitHandle` limit the length of
    /// the queue.
    pub(super) fn submit(&self, job: CommitJob) {
        if self.queue.push(job) {
            self.wake.do_send(WakeCommitter);
        }
    }

    /// Stops the actor, and returns when the backend is closed; immediately if the actor has already ended.
    pub(super) async fn stop(&self) -> Result<()> {
        let (done, closed) = oneshot::channel();
        self.stop.do_send(StopCommitter(done));
        closed.await.unwrap_or(Ok(()))
    }
}

pub(super) fn start<B: StoreBackend>(backend: B, status: Arc<CommitStatus>) -> Result<CommitLink> {
    let failed = |e: std::io::Error| Error::unavailable("storage: the thread for commits could not be started", e);
    let (send_link, link) = std::sync::mpsc::channel();
    let body = move || {
        System::new().block_on(async move {
            // The actor owns `alive`. When the actor is dropped, `ended` resolves and the thread ends.
            let (alive, ended) = oneshot::channel::<()>();
            let queue = Arc::new(CommitQueue::default());
            let actor = CommitActor {
                backend: Some(backend),
                queue: queue.clone(),
                stopping: Vec::new(),
                status,
                paused_until: Instant::now(),
                _alive: alive,
            };
            let addr = actor.start();
            let _ = send_link.send(CommitLink { queue, wake: addr.clone().recipient(), stop: addr.recipient() });
            let _ = ended.await;
        });
    };
    std::thread::Builder::new().name("signet-commit".to_owned()).spawn(body).map_err(failed)?;
    link.recv().map_err(|e| Error::unavailable("storage: the thread for commits could not be started", e))
}

#[derive(Default)]
struct CommitQueue(Mutex<QueuedUnits>);

struct QueuedUnits {
    /// Queued units without session work.
    jobs: VecDeque<CommitJob>,
    /// Queued units with session work.
    work: FairQueue<CommitJob>,
    /// Maximum number of units with session work per commit.
    max_work: usize,
    /// `true` if a pass of the actor over the queue is scheduled or in progress.
    pass_pending: bool,
    /// `true` if the actor has ended and takes no more units.
    closed: bool,
}

impl Default for QueuedUnits {
    fn default() -> Self {
        let work = FairQueue::new(MIN_SESSION_WORK_UNITS, MIN_SESSION_WORK_UNITS);
        let mut waiting = Self { jobs: VecDeque::new(), work, max_work: 0, pass_pending: false, closed: false };
        waiting.set_max_work(MAX_SESSION_WORK_UNITS / 4);
        waiting
    }
}

impl QueuedUnits {
    fn len(&self) -> usize {
        self.jobs.len() + self.work.waiting()
    }

    fn set_max_work(&mut self, max: usize) {
        self.max_work = max.clamp(MIN_SESSION_WORK_UNITS, MAX_SESSION_WORK_UNITS);
        self.work.set_limits(self.max_work, self.max_work.div_ceil(2));
    }
}

impl CommitQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedUnits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a unit; returns `true` if the caller must wake the actor. If the actor has ended, drops the unit with its
    /// reply channel.
    fn push(&self, job: CommitJob) -> bool {
        let mut waiting = self.lock();
        if waiting.closed {
            return false;
        }
        match job.unit {
            WriteUnit::Work(caller_id, _) => waiting.work.push(caller_id, job),
            _ => waiting.jobs.push_back(job),
        }
        !std::mem::replace(&mut waiting.pass_pending, true)
    }

    /// Yields to other threads as long as more units arrive; these units then share the commit. This makes fewer and
    /// larger commits on a busy machine, and costs nothing on an idle one.
    fn await_more_units(&self) {
        let mut waiting = 0;
        for _ in 0..MAX_YIELDS {
            std::thread::yield_now();
            let now = self.lock().len();
            if now == std::mem::replace(&mut waiting, now) {
                break;
            }
        }
    }

    /// Takes the next batch. Returns `None`, and closes the queue, if it is empty and the actor is `stopping`. Units
    /// without writes (health probes) get their own batches, because in a batch with writes they would fail when the
    /// disk is full.
    fn take_batch(&self, stopping: bool) -> Option<Vec<CommitJob>> {
        let mut waiting = self.lock();
        waiting.closed = stopping && waiting.len() == 0;
        if waiting.closed {
            return None;
        }
        let is_empty = waiting.jobs.front().is_some_and(|job| job.unit.is_empty());
        let alike = waiting.jobs.iter().take(MAX_BATCH_UNITS).take_while(|job| job.unit.is_empty() == is_empty).count();
        let mut batch: Vec<CommitJob> = waiting.jobs.drain(..alike).collect();
        if is_empty {
            return Some(batch);
        }
        let session_work: Vec<_> = std::iter::from_fn(|| waiting.work.start_next()).collect();
        for (caller_id, job) in session_work {
            waiting.work.end_job(caller_id);
            batch.push(job);
        }
        Some(batch)
    }

    /// Adjusts the limit of units with session work per commit. The last commit had `work` such units, and they took
    /// the time `time`.
    fn record_batch(&self, work: usize, time: Duration) {
        let mut waiting = self.lock();
        let max = waiting.max_work;
        if work > 0 && time > TARGET_SESSION_WORK_TIME {
            waiting.set_max_work(max / 2);
        } else if work * 2 >= max && time < TARGET_SESSION_WORK_TIME / 2 {
            waiting.set_max_work(max * 2);
        }
    }

    /// Marks a pass over the queue as scheduled; returns `true` if none was scheduled or in progress.
    fn schedule_pass(&self) -> bool {
        !std::mem::replace(&mut self.lock().pass_pending, true)
    }

    /// Ends a pass; returns `true` if another one must follow, because units are queued or the actor has other work
    /// (`busy`).
    fn needs_another_pass(&self, busy: bool) -> bool {
        let mut waiting = self.lock();
        waiting.pass_pending = busy || waiting.len() > 0;
        waiting.pass_pending
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct WakeCommitter;

#[derive(Message)]
#[rtype(result = "()")]
struct StopCommitter(oneshot::Sender<Result<()>>);

struct CommitActor<B> {
    /// The backend; `None` while it commits a batch.
    backend: Option<B>,
    queue: Arc<CommitQueue>,
    stopping: Vec<oneshot::Sender<Result<()>>>,
    status: Arc<CommitStatus>,
    paused_until: Instant,
    _alive: oneshot::Sender<()>,
}

impl<B: StoreBackend> Actor for CommitActor<B> {
    type Context = Context<Self>;

    /// Schedules a pass at the start, because an earlier process may have left background work.
    fn started(&mut self, ctx: &mut Self::Context) {
        self.schedule_pass(ctx);
    }
}

impl<B: StoreBackend> Handler<WakeCommitter> for CommitActor<B> {
    type Result = ();

    /// Starts the pass that the sender of the message has already marked as scheduled.
    fn handle(&mut self, _: WakeCommitter, ctx: &mut Self::Context) {
        self.schedule(ctx);
    }
}

impl<B: StoreBackend> Handler<StopCommitter> for CommitActor<B> {
    type Result = ();

    fn handle(&mut self, StopCommitter(done): StopCommitter, ctx: &mut Self::Context) {
        self.stopping.push(done);
        self.schedule_pass(ctx);
    }
}

impl<B: StoreBackend> CommitActor<B> {
    /// Schedules a pass over the queue, unless one is scheduled or in progress.
    fn schedule_pass(&mut self, ctx: &mut Context<Self>) {
        if self.queue.schedule_pass() {
            self.schedule(ctx);
        }
    }

    /// Starts a pass as the next task of the actor. Only then is the batch taken, so that all units that have arrived
    /// by then share the commit.
    fn schedule(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(ready(()).into_actor(self).map(|(), actor, ctx| actor.commit_batch(ctx)));
    }

    fn commit_batch(&mut self, ctx: &mut Context<Self>) {
        let Some(backend) = self.backend.take() else { return };
        self.queue.await_more_units();
        let stopping = !self.stopping.is_empty();
        let Some(batch) = self.queue.take_batch(stopping) else {
            self.close(backend, ctx);
            return;
        };
        let background_work = !stopping && self.paused_until <= Instant::now();
        let work = run_batch(backend, batch, background_work, self.queue.clone(), self.status.clone());
        ctx.spawn(work.into_actor(self).map(|(backend, worked), actor, ctx| {
            if let Some(worked) = worked.filter(|_| backend.has_background_work()) {
                let rest = worked.max(MIN_BACKGROUND_PAUSE);
                actor.paused_until = Instant::now() + rest;
                ctx.run_later(rest, |actor, ctx| actor.schedule_pass(ctx));
            }
            // The pause of background work may have ended during the batch. Its timer then scheduled nothing, because
            // this pass was in progress.
            let idle = backend.has_background_work() && actor.paused_until <= Instant::now();
            actor.backend = Some(backend);
            if actor.queue.needs_another_pass(idle || !actor.stopping.is_empty()) {
                actor.schedule(ctx);
            }
        }));
    }

    fn close(&mut self, backend: B, ctx: &mut Context<Self>) {
        ctx.spawn(backend.close().into_actor(self).map(|result, actor, ctx| {
            let mut result = Some(result);
            for done in actor.stopping.drain(..) {
                let _ = done.send(result.take().unwrap_or(Ok(())));
            }
            ctx.stop();
        }));
    }
}

/// Commits a batch and then runs a step of background work, so that neither starves the other. Returns the step's
/// duration.
async fn run_batch<B: StoreBackend>(
    mut backend: B,
    batch: Vec<CommitJob>,
    background_work: bool,
    queue: Arc<CommitQueue>,
    status: Arc<CommitStatus>,
) -> (B, Option<Duration>) {
    if !batch.is_empty() {
        status.commits.fetch_add(1, Ordering::Relaxed);
        let work = batch.iter().filter(|job| matches!(job.unit, WriteUnit::Work(..))).count();
        commit(&mut backend, batch, &status).await;
        queue.record_batch(work, backend.work_duration());
    }
    if !background_work || !backend.has_background_work() {
        return (backend, None);
    }
    let begun = Instant::now();
    if AssertUnwindSafe(backend.run_background_step()).catch_unwind().await.is_err() {
        tracing::error!("the storage backend panicked in background work");
    }
    (backend, Some(begun.elapsed()))
}

async fn commit(backend: &mut impl StoreBackend, batch: Vec<CommitJob>, status: &CommitStatus) {
    let start = Instant::now();
    histogram!(telemetry::COMMIT_BATCH_UNITS).record(batch.len() as f64);
    let wait = histogram!(telemetry::COMMIT_WAIT_SECONDS);
    let (units, callers): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|job| {
            wait.record(start.duration_since(job.arrived));
            (job.unit, (job.reply, job.permit))
        })
        .unzip();
    let mut answers = AssertUnwindSafe(backend.apply(units)).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("the storage backend panicked in a commit");
        Vec::new()
    });
    histogram!(telemetry::COMMIT_SECONDS).record(start.elapsed());
    // A backend that panicked has returned no results, so these callers get an error.
    answers.resize_with(callers.len(), || Err(Error::internal("the storage backend returned no result for a write")));
    // The status is set before the replies, so that a caller that receives an error already sees it.
    if answers.iter().map(count_failure).fold(false, |any, fails| any | fails) {
        status.failing.store(true, Ordering::Relaxed);
    }
    for ((reply, permit), answer) in callers.into_iter().zip(answers) {
        drop(permit);
        let _ = reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::{FactWrite, UnitOutcomes};
    use crate::storage::commit::job::CommitPermit;
    use metrics::Gauge;
    use tokio::sync::Semaphore;

    fn fact_job() -> (CommitJob, oneshot::Receiver<Result<UnitOutcomes>>) {
        job_of(WriteUnit::Facts(vec![FactWrite::new(("a".to_owned(), Vec::new()))]))
    }

    fn job_of(unit: WriteUnit) -> (CommitJob, oneshot::Receiver<Result<UnitOutcomes>>) {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (reply, outcome) = oneshot::channel();
        let permit = CommitPermit::new(permit, &Gauge::noop());
        (CommitJob { unit, arrived: Instant::now(), reply, permit }, outcome)
    }

    #[test]
    fn commit_queue_wakes_only_an_idle_actor() {
        let queue = CommitQueue::default();
        assert!(queue.push(fact_job().0), "idle");
        assert!(!queue.push(fact_job().0), "on its way");
        assert_eq!(queue.take_batch(false).unwrap().len(), 2);
        assert!(!queue.push(fact_job().0), "at work");
        assert!(queue.needs_another_pass(false), "comes by itself for what arrived meanwhile");
        assert_eq!(queue.take_batch(false).unwrap().len(), 1);
        assert!(queue.needs_another_pass(true), "comes by itself for work of its own");
        assert!(!queue.schedule_pass());
        assert!(queue.take_batch(false).unwrap().is_empty());
        assert!(!queue.needs_another_pass(false));
        assert!(queue.push(fact_job().0), "idle again");
    }

    #[test]
    fn empty_units_do_not_share_the_commit_of_writes() {
        let queue = CommitQueue::default();
        let empty = || job_of(WriteUnit::Pki(Vec::new())).0;
        queue.push(job_of(WriteUnit::Work(1, Arc::new(|_| ready(Ok(())).boxed_local()))).0);
        for job in [fact_job().0, fact_job().0, empty(), empty(), fact_job().0] {
            queue.push(job);
        }
        let sizes = [(); 4].map(|()| queue.take_batch(false).unwrap().len());
        assert_eq!(sizes, [3, 2, 1, 0], "the work goes with the first");
    }

    #[test]
    fn commit_batch_limits_work_and_alternates_callers() {
        let queue = CommitQueue::default();
        let work = |caller_id| job_of(WriteUnit::Work(caller_id, Arc::new(|_| ready(Ok(())).boxed_local()))).0;
        let take = || {
            let batch = queue.take_batch(false).unwrap();
            let waiting_by_caller = batch
                .iter()
                .filter_map(|job| if let WriteUnit::Work(caller_id, _) = job.unit { Some(caller_id) } else { None });
            (waiting_by_caller.collect::<Vec<_>>(), batch.len())
        };
        for _ in 0..100 {
            queue.push(work(1));
        }
        queue.push(work(2));
        queue.push(fact_job().0);
        // The caller with many units gets half of the slots, and the short unit is not delayed.
        let (waiting_by_caller, size) = take();
        assert_eq!((waiting_by_caller.len(), size), (9, 10));
        assert_eq!(waiting_by_caller.iter().filter(|caller_id| **caller_id == 2).count(), 1);
        // Slow session work reduces the limit, down to two; fast work increases it.
        (0..9).for_each(|_| queue.record_batch(1, TARGET_SESSION_WORK_TIME * 2));
        assert_eq!(take().1, 1, "half of two");
        (0..9).for_each(|_| queue.record_batch(64, TARGET_SESSION_WORK_TIME / 4));
        assert_eq!(take().1, 32);
        (0..9).for_each(|_| queue.record_batch(0, TARGET_SESSION_WORK_TIME * 2));
        queue.push(work(2));
        queue.push(fact_job().0);
        assert_eq!(take().1, 34, "what others took says nothing of it");
        while queue.take_batch(true).is_some() {}
        assert!(!queue.push(fact_job().0), "it ends when nothing waits");
    }

    #[test]
    fn commit_queue_refuses_jobs_after_its_end() {
        let queue = CommitQueue::default();
        queue.push(fact_job().0);
        assert_eq!(queue.take_batch(true).unwrap().len(), 1);
        assert!(queue.take_batch(true).is_none());
        let (late, mut outcome) = fact_job();
        assert!(!queue.push(late));
        assert_eq!(outcome.try_recv().err(), Some(oneshot::error::TryRecvError::Closed));
    }
}
