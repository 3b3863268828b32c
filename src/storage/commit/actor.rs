//! The commit actor's shell: the units that wait, and the backend it lends to one batch at a time.
//!
//! It lives on a thread and an actix system of its own, so that it neither needs one from its caller
//! nor blocks a worker. While a batch runs the backend is away in a future; its return starts the
//! next batch.
//!
//! Work of sessions may take long, and whoever shares its commit waits for it. So a commit takes all that is short, and of
//! that work as much as took no longer the last time, of each asker in turn. Background work rests as long as it has
//! worked, so that it takes half of the time at most.
//!
//! Units wait in a queue beside the mailbox. A message goes to the actor only when it is idle: one that is
//! at work looks into the queue when it is done, and need not be woken by every unit until then.

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

use super::job::{Job, count_failure};
use super::seen::Seen;
use crate::error::{Error, Result};
use crate::storage::backend::{Backend, Unit};
use crate::telemetry;
use crate::turns::Turns;

/// Most units in one commit: beyond it a row costs no less and the last caller waits longer.
const MAX_BATCH: usize = 512;

/// Sessions' work in one commit: as much as there may be, and as there always is.
const MOST_WORK: usize = 64;
const LEAST_WORK: usize = 2;
/// Work of one commit that took longer together is too much; where it took half as long there may be more.
const LONG: Duration = Duration::from_millis(20);

/// Shortest rest of background work.
const LEAST_REST: Duration = Duration::from_millis(5);

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
pub(super) fn start<B: Backend>(backend: B, seen: Arc<Seen>) -> Result<Link> {
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
                seen,
                rests_until: Instant::now(),
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

struct Waiting {
    /// What is short.
    jobs: VecDeque<Job>,
    /// Work of sessions.
    work: Turns<Job>,
    /// How much of it a commit takes.
    most_work: usize,
    /// A turn of the actor is scheduled or running.
    coming: bool,
    /// The actor has ended, and takes nothing any more.
    closed: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        let work = Turns::new(LEAST_WORK, LEAST_WORK);
        let mut waiting = Self { jobs: VecDeque::new(), work, most_work: 0, coming: false, closed: false };
        waiting.allow_work(MOST_WORK / 4);
        waiting
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.jobs.len() + self.work.waiting()
    }

    fn allow_work(&mut self, most: usize) {
        self.most_work = most.clamp(LEAST_WORK, MOST_WORK);
        self.work.allow(self.most_work, self.most_work.div_ceil(2));
    }
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
        match job.unit {
            Unit::Work(asker, _) => waiting.work.push(asker, job),
            _ => waiting.jobs.push_back(job),
        }
        !std::mem::replace(&mut waiting.coming, true)
    }

    /// Lets whoever waits for this processor go first, again while that brings units: they share the commit. So there are
    /// fewer and larger ones when the machine is busy, and it costs nothing when it is not.
    fn gather(&self) {
        let mut waiting = 0;
        for _ in 0..MOST_YIELDS {
            std::thread::yield_now();
            let now = self.lock().len();
            if now == std::mem::replace(&mut waiting, now) {
                break;
            }
        }
    }

    /// The next batch; `None`, and nothing ever again, when no unit waits and the actor is `stopping`. Empty units have
    /// batches of their own: with the writes of others, a full disk would fail them, too.
    fn take(&self, stopping: bool) -> Option<Vec<Job>> {
        let mut waiting = self.lock();
        waiting.closed = stopping && waiting.len() == 0;
        if waiting.closed {
            return None;
        }
        let is_empty = waiting.jobs.front().is_some_and(|job| job.unit.is_empty());
        let alike = waiting.jobs.iter().take(MAX_BATCH).take_while(|job| job.unit.is_empty() == is_empty).count();
        let mut batch: Vec<Job> = waiting.jobs.drain(..alike).collect();
        if is_empty {
            return Some(batch);
        }
        let begun: Vec<_> = std::iter::from_fn(|| waiting.work.take()).collect();
        for (asker, job) in begun {
            waiting.work.ended(asker);
            batch.push(job);
        }
        Some(batch)
    }

    /// Says how long it took to do so much work of sessions.
    fn took(&self, work: usize, time: Duration) {
        let mut waiting = self.lock();
        let most = waiting.most_work;
        if work > 0 && time > LONG {
            waiting.allow_work(most / 2);
        } else if work * 2 >= most && time < LONG / 2 {
            waiting.allow_work(most * 2);
        }
    }

    /// Says that a turn is coming; whether none was before.
    fn come(&self) -> bool {
        !std::mem::replace(&mut self.lock().coming, true)
    }

    /// After a turn: whether another follows because units wait, or because the actor has work of its own.
    fn again(&self, busy: bool) -> bool {
        let mut waiting = self.lock();
        waiting.coming = busy || waiting.len() > 0;
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
    seen: Arc<Seen>,
    /// When background work goes on.
    rests_until: Instant,
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
        let stopping = !self.stopping.is_empty();
        let Some(batch) = self.queue.take(stopping) else {
            self.close(backend, ctx);
            return;
        };
        let chores = !stopping && self.rests_until <= Instant::now();
        let work = run(backend, batch, chores, self.queue.clone(), self.seen.clone());
        ctx.spawn(work.into_actor(self).map(|(backend, worked), actor, ctx| {
            if let Some(worked) = worked.filter(|_| backend.has_chores()) {
                let rest = worked.max(LEAST_REST);
                actor.rests_until = Instant::now() + rest;
                ctx.run_later(rest, |actor, ctx| actor.come(ctx));
            }
            // A rest that has ended meanwhile has called for nobody.
            let rested = backend.has_chores() && actor.rests_until <= Instant::now();
            actor.backend = Some(backend);
            if actor.queue.again(rested || !actor.stopping.is_empty()) {
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
/// the other; how long that step took, if there was one.
async fn run<B: Backend>(
    mut backend: B,
    batch: Vec<Job>,
    chores: bool,
    queue: Arc<Queue>,
    seen: Arc<Seen>,
) -> (B, Option<Duration>) {
    if !batch.is_empty() {
        seen.commits.fetch_add(1, Ordering::Relaxed);
        let work = batch.iter().filter(|job| matches!(job.unit, Unit::Work(..))).count();
        commit(&mut backend, batch, &seen).await;
        queue.took(work, backend.worked());
    }
    if !chores || !backend.has_chores() {
        return (backend, None);
    }
    let begun = Instant::now();
    if AssertUnwindSafe(backend.chore()).catch_unwind().await.is_err() {
        tracing::error!("the storage backend panicked in background work");
    }
    (backend, Some(begun.elapsed()))
}

async fn commit(backend: &mut impl Backend, batch: Vec<Job>, seen: &Seen) {
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
    let mut answers = AssertUnwindSafe(backend.apply(units)).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("the storage backend panicked in a commit");
        Vec::new()
    });
    histogram!(telemetry::COMMIT_SECONDS).record(start.elapsed());
    // A backend that panicked has no answer for anyone.
    answers.resize_with(callers.len(), || Err(Error::internal("the storage backend gave no answer")));
    // Whoever is answered finds it noted.
    if answers.iter().map(count_failure).fold(false, |any, fails| any | fails) {
        seen.failing.store(true, Ordering::Relaxed);
    }
    for ((reply, place), answer) in callers.into_iter().zip(answers) {
        drop(place);
        let _ = reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::{FactWrite, Outcomes};
    use crate::storage::commit::job::Place;
    use metrics::Gauge;
    use tokio::sync::Semaphore;

    fn job() -> (Job, oneshot::Receiver<Result<Outcomes>>) {
        of(Unit::Facts(vec![FactWrite::new(("a".to_owned(), Vec::new()))]))
    }

    fn of(unit: Unit) -> (Job, oneshot::Receiver<Result<Outcomes>>) {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (reply, outcome) = oneshot::channel();
        let place = Place::take(permit, &Gauge::noop());
        (Job { unit, arrived: Instant::now(), reply, place }, outcome)
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
    fn empty_units_do_not_share_the_commit_of_writes() {
        let queue = Queue::default();
        let empty = || of(Unit::Pki(Vec::new())).0;
        queue.push(of(Unit::Work(1, Arc::new(|_| ready(Ok(())).boxed_local()))).0);
        for job in [job().0, job().0, empty(), empty(), job().0] {
            queue.push(job);
        }
        let sizes = [(); 4].map(|()| queue.take(false).unwrap().len());
        assert_eq!(sizes, [3, 2, 1, 0], "the work goes with the first");
    }

    #[test]
    fn short_units_wait_for_little_work_and_askers_take_turns() {
        let queue = Queue::default();
        let work = |asker| of(Unit::Work(asker, Arc::new(|_| ready(Ok(())).boxed_local()))).0;
        let take = || {
            let batch = queue.take(false).unwrap();
            let askers =
                batch.iter().filter_map(|job| if let Unit::Work(asker, _) = job.unit { Some(asker) } else { None });
            (askers.collect::<Vec<_>>(), batch.len())
        };
        for _ in 0..100 {
            queue.push(work(1));
        }
        queue.push(work(2));
        queue.push(job().0);
        // Whoever has sent much has half of the places, and what is short goes before all of it.
        let (askers, size) = take();
        assert_eq!((askers.len(), size), (9, 10));
        assert_eq!(askers.iter().filter(|asker| **asker == 2).count(), 1);
        // Long ones are fewer from then on, down to two, and short ones more.
        (0..9).for_each(|_| queue.took(1, LONG * 2));
        assert_eq!(take().1, 1, "half of two");
        (0..9).for_each(|_| queue.took(64, LONG / 4));
        assert_eq!(take().1, 32);
        (0..9).for_each(|_| queue.took(0, LONG * 2));
        queue.push(work(2));
        queue.push(job().0);
        assert_eq!(take().1, 34, "what others took says nothing of it");
        while queue.take(true).is_some() {}
        assert!(!queue.push(job().0), "it ends when nothing waits");
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
