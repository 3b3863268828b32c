//! The actors of a mount.
//!
//! `Control`, one per mount, owns the mount's state and alone publishes it. It runs one change at a
//! time: plan (off its thread, on the current view) → commit → publish → reply, so a caller who was
//! answered reads its own write. It lends its CRL builder to one build at a time; whatever asks
//! meanwhile shares the next build. Its handlers only queue work and take results.
//!
//! `Replica`, one per mount on every HTTP worker's arbiter, owns nothing but handles. It loads the
//! published view once per request and issues in place. A panic in a request is caught and counted.
//!
//! Everything else talks to them through [`ControlLink`] and [`ReplicaLink`].

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use super::crl::{Builder, Built, Crls};
use super::issue::{self, Issued, Request, Tools};
use super::metrics::Stages;
use super::store::{PkiOutcome, PkiStore, PkiWrite};
use super::view::View;
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// How often the control actor looks for revocations of other nodes and for CRLs close to their end.
const TICK: Duration = Duration::from_secs(60);
/// Changes that may wait; more are answered Busy.
const MAX_WAITING_CHANGES: usize = 1024;

/// A change that is ready to be stored.
pub struct Planned {
    /// The state once it is stored.
    pub view: View,
    /// What to store.
    pub writes: Vec<PkiWrite>,
    /// Whether CRLs must be built anew before the change is answered.
    pub crls: bool,
}

/// Works a change out on the current view.
pub type Plan = Box<dyn FnOnce(&View) -> Result<Planned> + Send>;

/// The thread that the control actors of a server share.
pub struct ControlThread(ArbiterHandle);

impl ControlThread {
    /// Starts it; an actix system must run.
    pub fn start() -> Self {
        Self(Arbiter::new().handle())
    }
}

/// The way to a mount's control actor, which stops when its links are gone.
pub struct ControlLink(Addr<Control>);

impl ControlLink {
    /// Starts the actor that publishes to `view` and `crls`, and asks it for its first CRLs.
    pub fn start(
        thread: &ControlThread,
        view: Arc<ArcSwap<View>>,
        crls: Arc<ArcSwap<Crls>>,
        store: Arc<dyn PkiStore>,
        builder: Builder,
    ) -> Self {
        let control = Control::new(view, crls, store, builder);
        let addr = Control::start_in_arbiter(&thread.0, |_| control);
        // Nobody waits for these: what is not there yet is built by whoever asks next.
        let (reply, _) = oneshot::channel();
        addr.do_send(BuildCrls { force: false, reply });
        Self(addr)
    }

    /// Runs one change; the answer comes when it is stored and published.
    ///
    /// # Errors
    /// What `plan` refuses; `Busy` when too many wait; `Unavailable` or `Conflict` from storage.
    pub async fn change(&self, plan: Plan) -> Result<()> {
        let (reply, done) = oneshot::channel();
        self.0.do_send(Change { plan, reply });
        done.await.map_err(stopping)?
    }

    /// Asks for CRLs that hold everything stored before this call; with `force` even when nothing is new.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the build fails; what was published stays.
    pub async fn build_crls(&self, force: bool) -> Result<()> {
        let (reply, done) = oneshot::channel();
        self.0.do_send(BuildCrls { force, reply });
        done.await.map_err(stopping)?
    }
}

fn stopping(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("the mount is stopping", cause)
}

/// A change for the control actor; `reply` is told when it is stored and published, or why not.
#[derive(Message)]
#[rtype(result = "()")]
struct Change {
    plan: Plan,
    reply: oneshot::Sender<Result<()>>,
}

/// Asks for CRLs that hold everything that was stored before this message was sent; `reply` is told
/// when they are published, or why not.
#[derive(Message)]
#[rtype(result = "()")]
struct BuildCrls {
    force: bool,
    reply: oneshot::Sender<Result<()>>,
}

/// The control actor of a mount.
struct Control {
    view: Arc<ArcSwap<View>>,
    crls: Arc<ArcSwap<Crls>>,
    store: Arc<dyn PkiStore>,
    changes: VecDeque<Change>,
    changing: bool,
    /// `None` while a build runs.
    builder: Option<Builder>,
    waiting: Vec<BuildCrls>,
}

impl Control {
    fn new(view: Arc<ArcSwap<View>>, crls: Arc<ArcSwap<Crls>>, store: Arc<dyn PkiStore>, builder: Builder) -> Self {
        Self {
            view,
            crls,
            store,
            changes: VecDeque::new(),
            changing: false,
            builder: Some(builder),
            waiting: Vec::new(),
        }
    }

    fn next_change(&mut self, ctx: &mut Context<Self>) {
        if self.changing {
            return;
        }
        let Some(change) = self.changes.pop_front() else { return };
        self.changing = true;
        let work = run_change(change.plan, self.view.load_full(), Arc::clone(&self.store));
        let done = work.into_actor(self).map(move |result, actor, ctx| {
            actor.changing = false;
            match result {
                Ok((view, true)) => {
                    actor.view.store(Arc::new(view));
                    actor.waiting.push(BuildCrls { force: true, reply: change.reply });
                    actor.next_build(ctx);
                }
                Ok((view, false)) => {
                    actor.view.store(Arc::new(view));
                    let _ = change.reply.send(Ok(()));
                }
                Err(error) => drop(change.reply.send(Err(error))),
            }
            actor.next_change(ctx);
        });
        ctx.spawn(done);
    }

    fn next_build(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(builder) = self.builder.take() else { return };
        let served = std::mem::take(&mut self.waiting);
        let force = served.iter().any(|w| w.force);
        let work = run_build(builder, self.view.load_full(), force);
        let done = work.into_actor(self).map(move |(builder, result), actor, ctx| {
            actor.builder = Some(builder);
            let outcome = result.map(|built| actor.crls.store(Arc::new(built.crls)));
            for waiter in served {
                let answer = outcome.as_ref().copied().map_err(|e| Error::new(e.kind(), e.text().to_owned()));
                let _ = waiter.reply.send(answer);
            }
            actor.next_build(ctx);
        });
        ctx.spawn(done);
    }
}

impl Actor for Control {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(TICK, |actor, ctx| {
            // Nobody waits for the answer; `build` itself finds out whether anything is due.
            let (reply, _) = oneshot::channel();
            actor.waiting.push(BuildCrls { force: false, reply });
            actor.next_build(ctx);
        });
    }
}

impl Handler<Change> for Control {
    type Result = ();

    fn handle(&mut self, change: Change, ctx: &mut Self::Context) {
        if self.changes.len() >= MAX_WAITING_CHANGES {
            let busy = Error::new(Kind::Busy, "too many changes of this mount are waiting");
            drop(change.reply.send(Err(busy)));
            return;
        }
        self.changes.push_back(change);
        self.next_change(ctx);
    }
}

impl Handler<BuildCrls> for Control {
    type Result = ();

    fn handle(&mut self, wanted: BuildCrls, ctx: &mut Self::Context) {
        self.waiting.push(wanted);
        self.next_build(ctx);
    }
}

/// Plans off the actor's thread, commits, and returns the view to publish and whether CRLs follow.
async fn run_change(plan: Plan, view: Arc<View>, store: Arc<dyn PkiStore>) -> Result<(View, bool)> {
    let planned = tokio::task::spawn_blocking(move || {
        catch_unwind(AssertUnwindSafe(|| plan(&view))).unwrap_or_else(|_| Err(panicked()))
    })
    .await
    .map_err(Error::internal)??;
    if !planned.writes.is_empty() {
        let outcomes = store.commit(planned.writes).await?;
        if outcomes.contains(&PkiOutcome::SerialTaken) {
            return Err(Error::internal("serial collision"));
        }
    }
    Ok((planned.view, planned.crls))
}

/// Builds off the actor's thread; the builder comes back whatever happens.
async fn run_build(mut builder: Builder, view: Arc<View>, force: bool) -> (Builder, Result<Built>) {
    let started = Instant::now();
    let handle = tokio::runtime::Handle::current();
    let (builder, result) = tokio::task::spawn_blocking(move || {
        let build = AssertUnwindSafe(builder.build(&view, force)).catch_unwind();
        let result = handle.block_on(build).unwrap_or_else(|_| Err(panicked()));
        if result.is_err() {
            // What a failed build left half-read is read again.
            builder.reset();
        }
        (builder, result)
    })
    .await
    .expect("a build catches its own panics");
    metrics::histogram!(telemetry::PKI_CRL_BUILD_SECONDS).record(started.elapsed().as_secs_f64());
    let outcome = if result.is_ok() { "done" } else { "failed" };
    metrics::counter!(telemetry::PKI_CRL_BUILDS, "result" => outcome).increment(1);
    match &result {
        Ok(built) => {
            let entries = built.crls.values().map(|c| c.entries).max().unwrap_or(0);
            metrics::gauge!(telemetry::PKI_CRL_ENTRIES).set(entries as f64);
        }
        Err(error) => tracing::error!(%error, cause = ?std::error::Error::source(error), "CRL build failed"),
    }
    (builder, result)
}

fn panicked() -> Error {
    metrics::counter!(telemetry::PKI_PANICS).increment(1);
    Error::internal("a panic was caught in a mount's actor")
}

/// The way to a mount's replica on one HTTP worker. Cloning is cheap.
#[derive(Clone)]
pub struct ReplicaLink(Addr<Replica>);

impl ReplicaLink {
    /// Starts a replica that reads `view`, on the current thread's arbiter.
    pub fn start(view: Arc<ArcSwap<View>>, tools: Tools) -> Self {
        Self(Replica::new(view, tools).start())
    }

    /// `issue`.
    ///
    /// # Errors
    /// Those of [`issue::issue`]; `Unavailable` when the worker is stopping.
    pub async fn issue(&self, request: Request) -> Result<Issued> {
        self.0.send(Issue(request)).await.map_err(stopping)?
    }

    /// `sign`.
    ///
    /// # Errors
    /// Those of [`issue::sign`]; `Unavailable` when the worker is stopping.
    pub async fn sign(&self, request: Request) -> Result<Issued> {
        self.0.send(Sign(request)).await.map_err(stopping)?
    }
}

#[derive(Message)]
#[rtype(result = "Result<Issued>")]
struct Issue(Request);

#[derive(Message)]
#[rtype(result = "Result<Issued>")]
struct Sign(Request);

/// The hands of a mount on one HTTP worker.
struct Replica {
    view: Arc<ArcSwap<View>>,
    tools: Tools,
    issue: Stages,
    sign: Stages,
}

impl Replica {
    fn new(view: Arc<ArcSwap<View>>, tools: Tools) -> Self {
        Self { view, tools, issue: Stages::new("issue"), sign: Stages::new("sign") }
    }
}

impl Actor for Replica {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Senders are the requests of this worker, which its connection limit bounds.
        ctx.set_mailbox_capacity(1 << 16);
    }
}

impl Handler<Issue> for Replica {
    type Result = ResponseFuture<Result<Issued>>;

    fn handle(&mut self, Issue(request): Issue, _: &mut Self::Context) -> Self::Result {
        guarded(issue::issue(self.view.load_full(), self.tools.clone(), request, self.issue.clone()), "issue")
    }
}

impl Handler<Sign> for Replica {
    type Result = ResponseFuture<Result<Issued>>;

    fn handle(&mut self, Sign(request): Sign, _: &mut Self::Context) -> Self::Result {
        guarded(issue::sign(self.view.load_full(), self.tools.clone(), request, self.sign.clone()), "sign")
    }
}

/// Runs a request so that a panic in it becomes an error, and counts how it went.
fn guarded(
    work: impl Future<Output = Result<Issued>> + 'static,
    operation: &'static str,
) -> ResponseFuture<Result<Issued>> {
    Box::pin(async move {
        let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(panicked()));
        let name = if result.is_ok() { telemetry::PKI_CERTIFICATES } else { telemetry::PKI_REFUSALS };
        metrics::counter!(name, "operation" => operation).increment(1);
        result
    })
}
