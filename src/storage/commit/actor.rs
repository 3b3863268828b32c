//! The commit actor's shell: the units that wait, and the backend it lends to one batch at a time.
//!
//! It lives on a thread and an actix system of its own, so that it neither needs one from its caller
//! nor blocks a worker. While a batch runs the backend is away in a future; its return starts the
//! next batch.
//!
//! Units wait in a queue beside the mailbox. A message goes to the actor only when it is idle: one that is
//! at work looks into the queue when it is done, and need not be woken by every unit until then.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use actix::prelude::*;
use futures_util::FutureExt as _;
use metrics::histogram;
use tokio::sync::oneshot;

use super::job::{Job, count_failure};
use crate::error::{Error, Result};
use crate::storage::backend::Backend;
use crate::telemetry;

/// Most units in one commit: beyond it a row costs no less and the last caller waits longer.
const MAX_BATCH: usize = 512;

/// How often others may go first before a commit. The first time brings most.
const MOST_YIELDS: usize = 3;

/// The way to a running actor: its queue and its addresses.
#[derive(Clone)]
pub(super) struct Link {
    queue: Arc<Queue>,
    wake: Recipient<Wake>,
    stop: Recipient<Stop>,
}

impl Link {
    /// Never refuses, and waits for nothing but the moment in which another is put there or a batch is
    /// taken: the handle's permits bound what can be under way.
    pub(super) fn submit(&self, job: Job) {
        if self.queue.push(job) {
            self.wake.do_send(Wake);
        }
    }

    /// Resolves when the backend is closed; at once when the actor is gone already.
    pub(super) async fn stop(&self) -> Result<()> {
        let (done, closed) = oneshot::channel();
        self.stop.do_send(Stop(done));
        closed.await.unwrap_or(Ok(()))
    }
}

/// Starts the actor on a thread of its own.
pub(super) fn start<B: Backend>(backend: B, commits: Arc<AtomicU64>) -> Result<Link> {
    let failed = |e: std::io::Error| Error::unavailable("storage: the commit thread does not start", e);
    let (send_link, link) = std::sync::mpsc::channel();
    let body = move || {
        System::new().block_on(async move {
            // Dropped with the actor: that ends the thread.
            let (alive, ended) = oneshot::channel::<()>();
            let queue = Arc::new(Queue::default());
            let actor = Committer {
                backend: Some(backend),
                queue: queue.clone(),
                stopping: Vec::new(),
                commits,
                _alive: alive,
            };
            let addr = actor.start();
            let _ = send_link.send(Link { queue, wake: addr.clone().recipient(), stop: addr.recipient() });
            let _ = ended.await;
        });
    };
    std::thread::Builder::new().name("signet-commit".to_owned()).spawn(body).map_err(failed)?;
    link.recv().map_err(|e| Error::unavailable("storage: the commit thread does not start", e))
}

/// Units that wait for the next batch, and whether the actor comes for them without being called.
#[derive(Default)]
struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// A turn of the actor is scheduled or running.
    coming: bool,
    /// The actor has ended, and takes nothing any more.
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a unit at the end; whether the actor must be woken for it. Drops it, and with it the way to
    /// its caller, when the actor has ended.
    fn push(&self, job: Job) -> bool {
        let mut waiting = self.lock();
        if waiting.closed {
            return false;
        }
        waiting.jobs.push_back(job);
        !std::mem::replace(&mut waiting.coming, true)
    }

    /// Lets whoever waits for this processor go first, again while that brings units: they share the commit. So there are
    /// fewer and larger ones when the machine is busy, and it costs nothing when it is not.
    fn gather(&self) {
        let mut waiting = 0;
        for _ in 0..MOST_YIELDS {
            std::thread::yield_now();
            let now = self.lock().jobs.len();
            if now == std::mem::replace(&mut waiting, now) {
                break;
            }
        }
    }

    /// The next batch; `None`, and nothing ever again, when no unit waits and the actor is `stopping`.
    fn take(&self, stopping: bool) -> Option<Vec<Job>> {
        let mut waiting = self.lock();
        waiting.closed = stopping && waiting.jobs.is_empty();
        let size = waiting.jobs.len().min(MAX_BATCH);
        (!waiting.closed).then(|| waiting.jobs.drain(..size).collect())
    }

    /// Says that a turn is coming; whether none was before.
    fn come(&self) -> bool {
        !std::mem::replace(&mut self.lock().coming, true)
    }

    /// After a turn: whether another follows because units wait, or because the actor has work of its own.
    fn again(&self, busy: bool) -> bool {
        let mut waiting = self.lock();
        waiting.coming = busy || !waiting.jobs.is_empty();
        waiting.coming
    }
}

/// There is something in the queue of an actor that was idle.
#[derive(Message)]
#[rtype(result = "()")]
struct Wake;

#[derive(Message)]
#[rtype(result = "()")]
struct Stop(oneshot::Sender<Result<()>>);

struct Committer<B> {
    /// Away while a batch runs.
    backend: Option<B>,
    queue: Arc<Queue>,
    stopping: Vec<oneshot::Sender<Result<()>>>,
    commits: Arc<AtomicU64>,
    _alive: oneshot::Sender<()>,
}

impl<B: Backend> Actor for Committer<B> {
    type Context = Context<Self>;

    /// Background work may be left from before.
    fn started(&mut self, ctx: &mut Self::Context) {
        self.come(ctx);
    }
}

impl<B: Backend> Handler<Wake> for Committer<B> {
    type Result = ();

    /// Who sent it has said already that a turn is coming.
    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.schedule(ctx);
    }
}

impl<B: Backend> Handler<Stop> for Committer<B> {
    type Result = ();

    fn handle(&mut self, Stop(done): Stop, ctx: &mut Self::Context) {
        self.stopping.push(done);
        self.come(ctx);
    }
}

impl<B: Backend> Committer<B> {
    /// Starts a turn unless one is under way.
    fn come(&mut self, ctx: &mut Context<Self>) {
        if self.queue.come() {
            self.schedule(ctx);
        }
    }

    /// The batch is taken only when the turn runs: so all that has arrived shares the commit.
    fn schedule(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(ready(()).into_actor(self).map(|(), actor, ctx| actor.turn(ctx)));
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        let Some(backend) = self.backend.take() else { return };
        self.queue.gather();
        let chores = self.stopping.is_empty();
        let Some(batch) = self.queue.take(!chores) else {
            self.close(backend, ctx);
            return;
        };
        let work = run(backend, batch, chores, self.commits.clone());
        ctx.spawn(work.into_actor(self).map(|backend, actor, ctx| {
            let busy = backend.has_chores() || !actor.stopping.is_empty();
            actor.backend = Some(backend);
            if actor.queue.again(busy) {
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

/// One turn: a batch, if any waits, and one short step of background work, so that neither starves
/// the other.
async fn run<B: Backend>(mut backend: B, batch: Vec<Job>, chores: bool, commits: Arc<AtomicU64>) -> B {
    if !batch.is_empty() {
        commits.fetch_add(1, Ordering::Relaxed);
        commit(&mut backend, batch).await;
    }
    if chores && backend.has_chores() && AssertUnwindSafe(backend.chore()).catch_unwind().await.is_err() {
        tracing::error!("the storage backend panicked in background work");
    }
    backend
}

async fn commit(backend: &mut impl Backend, batch: Vec<Job>) {
    let start = Instant::now();
    histogram!(telemetry::COMMIT_BATCH_UNITS).record(batch.len() as f64);
    let wait = histogram!(telemetry::COMMIT_WAIT_SECONDS);
    let (units, callers): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|job| {
            wait.record(start.duration_since(job.arrived));
            (job.unit, (job.reply, job.place))
        })
        .unzip();
    let answers = AssertUnwindSafe(backend.apply(units)).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("the storage backend panicked in a commit");
        Vec::new()
    });
    histogram!(telemetry::COMMIT_SECONDS).record(start.elapsed());
    // A backend that panicked has no answer for anyone.
    let missing = std::iter::repeat_with(|| Err(Error::internal("the storage backend gave no answer")));
    for ((reply, place), answer) in callers.into_iter().zip(answers.into_iter().chain(missing)) {
        count_failure(&answer);
        drop(place);
        let _ = reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::{Outcomes, Unit};
    use crate::storage::commit::job::Place;
    use metrics::Gauge;
    use tokio::sync::Semaphore;

    fn job() -> (Job, oneshot::Receiver<Result<Outcomes>>) {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (reply, outcome) = oneshot::channel();
        let place = Place::take(permit, &Gauge::noop());
        (Job { unit: Unit::Pki(Vec::new()), arrived: Instant::now(), reply, place }, outcome)
    }

    #[test]
    fn only_an_idle_actor_is_woken() {
        let queue = Queue::default();
        assert!(queue.push(job().0), "idle");
        assert!(!queue.push(job().0), "on its way");
        assert_eq!(queue.take(false).unwrap().len(), 2);
        assert!(!queue.push(job().0), "at work");
        assert!(queue.again(false), "comes by itself for what arrived meanwhile");
        assert_eq!(queue.take(false).unwrap().len(), 1);
        assert!(queue.again(true), "comes by itself for work of its own");
        assert!(!queue.come());
        assert!(queue.take(false).unwrap().is_empty());
        assert!(!queue.again(false));
        assert!(queue.push(job().0), "idle again");
    }

    #[test]
    fn what_comes_after_the_end_is_told_and_what_came_before_is_taken() {
        let queue = Queue::default();
        queue.push(job().0);
        assert_eq!(queue.take(true).unwrap().len(), 1);
        assert!(queue.take(true).is_none());
        let (late, mut outcome) = job();
        assert!(!queue.push(late));
        assert_eq!(outcome.try_recv().err(), Some(oneshot::error::TryRecvError::Closed));
    }
}
