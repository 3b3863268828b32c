//! The commit actor's shell: a mailbox, the waiting units, and the backend it lends to one batch at a
//! time.
//!
//! It lives on a thread and an actix system of its own, so that it neither needs one from its caller
//! nor blocks a worker. While a batch runs the backend is away in a future; its return starts the
//! next batch.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use actix::prelude::*;
use futures_util::FutureExt as _;
use metrics::histogram;
use tokio::sync::oneshot;

use super::{Job, MAX_BATCH, count_failure};
use crate::error::{Error, Result};
use crate::storage::backend::Backend;
use crate::telemetry;

/// The addresses of a running actor.
#[derive(Clone)]
pub(super) struct Link {
    submit: Recipient<Submit>,
    stop: Recipient<Stop>,
}

impl Link {
    /// Never blocks and never refuses: the handle's permits bound what can be under way.
    pub(super) fn submit(&self, job: Job) {
        self.submit.do_send(Submit(job));
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
            let actor = Committer {
                backend: Some(backend),
                waiting: VecDeque::new(),
                scheduled: false,
                stopping: Vec::new(),
                commits,
                _alive: alive,
            };
            let addr = actor.start();
            let _ = send_link.send(Link { submit: addr.clone().recipient(), stop: addr.recipient() });
            let _ = ended.await;
        });
    };
    std::thread::Builder::new().name("signet-commit".to_owned()).spawn(body).map_err(failed)?;
    link.recv().map_err(|e| Error::unavailable("storage: the commit thread does not start", e))
}

#[derive(Message)]
#[rtype(result = "()")]
struct Submit(Job);

#[derive(Message)]
#[rtype(result = "()")]
struct Stop(oneshot::Sender<Result<()>>);

struct Committer<B> {
    /// Away while a batch runs.
    backend: Option<B>,
    waiting: VecDeque<Job>,
    /// A turn is scheduled or running.
    scheduled: bool,
    stopping: Vec<oneshot::Sender<Result<()>>>,
    commits: Arc<AtomicU64>,
    _alive: oneshot::Sender<()>,
}

impl<B: Backend> Actor for Committer<B> {
    type Context = Context<Self>;

    /// Background work may be left from before.
    fn started(&mut self, ctx: &mut Self::Context) {
        self.schedule(ctx);
    }
}

impl<B: Backend> Handler<Submit> for Committer<B> {
    type Result = ();

    fn handle(&mut self, Submit(job): Submit, ctx: &mut Self::Context) {
        self.waiting.push_back(job);
        self.schedule(ctx);
    }
}

impl<B: Backend> Handler<Stop> for Committer<B> {
    type Result = ();

    fn handle(&mut self, Stop(done): Stop, ctx: &mut Self::Context) {
        self.stopping.push(done);
        self.schedule(ctx);
    }
}

impl<B: Backend> Committer<B> {
    /// Starts a turn unless one is under way. The batch is taken only when the turn runs, after the
    /// mailbox was emptied: so all that has arrived shares the commit.
    fn schedule(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.scheduled, true) {
            ctx.spawn(ready(()).into_actor(self).map(|(), actor, ctx| actor.turn(ctx)));
        }
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        let Some(backend) = self.backend.take() else { return };
        if self.waiting.is_empty() && !self.stopping.is_empty() {
            self.close(backend, ctx);
            return;
        }
        let batch: Vec<Job> = self.waiting.drain(..self.waiting.len().min(MAX_BATCH)).collect();
        let chores = self.stopping.is_empty();
        let work = run(backend, batch, chores, self.commits.clone());
        ctx.spawn(work.into_actor(self).map(|backend, actor, ctx| {
            let more = backend.has_chores() || !actor.waiting.is_empty() || !actor.stopping.is_empty();
            actor.backend = Some(backend);
            actor.scheduled = false;
            if more {
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
