//! The two actors of a mount, reached through [`ControlLink`] and [`ReplicaLink`].
//!
//! `ControlActor`, one per mount, owns and publishes the mount's state. It runs one change at a time (plan on another
//! thread, commit, publish, reply), so that callers read their own writes. A failed CRL build after a stored change is
//! only a warning. CRL requests that arrive during a build share the next build.
//!
//! `ReplicaActor`, one per mount on each HTTP worker, has no state of its own and loads the current view for each
//! request.

mod build;
mod change;

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, oneshot};

pub use self::build::PendingRevocation;
use self::build::{BuildThrottle, PendingRevocations, run_build};
use self::change::{ChangeOutcome, run_change};
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::pool::CallerGuard;
use crate::pki::crl::{self, CrlBuildRequest, CrlBuilder, CrlMetricsByMount, MountCrlMetrics, MountCrls};
use crate::pki::engine_deps::EngineDeps;
use crate::pki::issue::issued::IssuedCertificate;
use crate::pki::issue::operation::IssuingOperation;
use crate::pki::issue::pipeline::{self, CertificateRequest};
use crate::pki::issue::request::IssueContext;
use crate::pki::issue::stages::IssuanceStages;
use crate::pki::mount::view::MountView;
use crate::pki::store::{PkiStore, PkiWrite};
use crate::rationing::{CallerId, FairQueue, MAX_WAITING_PER_CALLER, QueueCaller};
use crate::telemetry::{self, MountMeter};

/// Interval at which the control actor checks for revocations of other nodes and for CRLs that expire soon.
const CRL_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum delay of an early check, which runs before the next periodic one ([`CRL_CHECK_INTERVAL`]).
const MIN_CHECK_DELAY: Duration = Duration::from_millis(250);
/// Delay before storage is read again after a change with an unknown outcome.
const RELOAD_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of queued changes of a mount; further changes fail with `Busy`.
const MAX_QUEUED_CHANGES: usize = 1024;

/// A change that is ready to be stored.
pub struct PlannedChange {
    /// Mount state after the change.
    pub view: MountView,
    /// Writes that store the change.
    pub writes: Vec<PkiWrite>,
    /// `true` if CRLs must be rebuilt before the caller gets its response.
    pub rebuild_crls: bool,
}

/// A function that computes a change from the current view. It is called again with a newer view if another node
/// commits first.
pub type ChangePlan = Box<dyn Fn(&MountView) -> Result<PlannedChange> + Send>;

/// Limit on concurrent CRL builds of a server: each occupies a blocking thread while it reads from storage.
const MAX_CONCURRENT_BUILDS: usize = 2;

/// The thread that the control actors of a server share, and the permits for their CRL builds.
pub struct ControlThread {
    arbiter: ArbiterHandle,
    shared: ControlShared,
}

#[derive(Clone)]
struct ControlShared {
    builds: Arc<Semaphore>,
    summaries: Arc<CrlMetricsByMount>,
    clock: Clock,
}

impl ControlThread {
    /// Starts the thread; requires a running actix system.
    pub fn start(clock: Clock) -> Self {
        let builds = Arc::new(Semaphore::new(MAX_CONCURRENT_BUILDS));
        Self { arbiter: Arbiter::new().handle(), shared: ControlShared { builds, summaries: Arc::default(), clock } }
    }

    /// Returns metrics of the published CRLs of every mount.
    pub fn crl_metrics(&self) -> Vec<(MountId, MountCrlMetrics)> {
        self.shared.summaries.all()
    }
}

/// Handle to a mount's control actor. The actor stops when its last handle is dropped.
pub struct ControlLink {
    control: Addr<ControlActor>,
    pending_revocations: PendingRevocations,
}

impl ControlLink {
    /// Starts the control actor, which publishes the mount's view to `view` and its CRLs to `crls`, and requests the
    /// first CRL build.
    pub fn start(
        thread: &ControlThread,
        view: Arc<ArcSwap<MountView>>,
        crls: Arc<ArcSwapOption<MountCrls>>,
        store: Arc<dyn PkiStore>,
        builder: CrlBuilder,
    ) -> Self {
        let pending_revocations = PendingRevocations::default();
        let control = ControlActor {
            view,
            crls,
            store,
            shared: thread.shared.clone(),
            own_changes: VecDeque::new(),
            changes: FairQueue::new(1, 1),
            changing: false,
            is_outdated: false,
            reload_needed: false,
            builder: Some(builder),
            wanted: CrlBuildRequest::DUE,
            waiting: Vec::new(),
            early_check: None,
            throttle: BuildThrottle::of(pending_revocations.clone()),
            pause: None,
        };
        let link = Self { control: ControlActor::start_in_arbiter(&thread.arbiter, |_| control), pending_revocations };
        // The build is not awaited: a request that needs a missing CRL waits for it.
        link.build_in_background(CrlBuildRequest::DUE);
        link
    }

    /// Runs one change. Returns when it is stored and published, with warnings about CRLs that could not be built.
    ///
    /// # Errors
    /// Those of `plan`; `Busy` when too many changes are queued; `Unavailable` or `Conflict` from storage.
    pub async fn change(&self, plan: ChangePlan) -> Result<Warnings> {
        let caller = QueueCaller::current().caller_id();
        self.request(move |actor, ctx, reply| actor.queue_change(caller, MountChange { plan, reply }, ctx)).await
    }

    /// Reads the mount's documents from storage again and publishes the resulting view.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when they cannot be read.
    pub async fn reload(&self) -> Result<()> {
        self.request(ControlActor::reload).await.map(drop)
    }

    /// Announces a revocation that is about to be stored; the next CRL build waits a short time for it.
    pub fn announce(&self) -> PendingRevocation {
        self.pending_revocations.announce()
    }

    /// Requests a CRL build that takes in the revocations and CRLs of other nodes. Does not wait.
    pub fn update_crls_from_other_nodes(&self) {
        self.build_in_background(FOLLOW_OTHER_NODES);
    }

    /// Requests a CRL build that reads all revocations and CRLs from storage again, as after a start. Does not wait.
    pub fn rebuild_crls_from_storage(&self) {
        self.build_in_background(FROM_STORAGE);
    }

    fn build_in_background(&self, wanted: CrlBuildRequest) {
        self.send(move |actor, ctx| actor.build(wanted, BuildRequester::NoReply, ctx));
    }

    /// Builds the CRLs that are due by the settings and those that `wanted` asks for. The new CRLs include everything
    /// that was stored before this call. `pending` is the announcement of the caller's revocation; the actor drops it
    /// when it receives the request. Returns warnings about issuers that cannot have a CRL.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the build fails; the published CRLs remain.
    pub async fn build_crls(&self, wanted: CrlBuildRequest, pending: Option<PendingRevocation>) -> Result<Warnings> {
        self.request(move |actor, ctx, reply| {
            drop(pending);
            actor.build(wanted, BuildRequester::Caller(reply), ctx);
        })
        .await
    }

    fn send(&self, work: impl FnOnce(&mut ControlActor, &mut Context<ControlActor>) + Send + 'static) {
        self.control.do_send(ControlWork(Box::new(work)));
    }

    /// Sends a closure to the control actor and waits for the reply that it sends.
    async fn request(
        &self,
        work: impl FnOnce(&mut ControlActor, &mut Context<ControlActor>, ChangeReply) + Send + 'static,
    ) -> Result<Warnings> {
        let (reply, done) = oneshot::channel();
        self.send(move |actor, ctx| work(actor, ctx, reply));
        done.await.map_err(mount_stopping_error)?
    }
}

fn mount_stopping_error(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("the mount is stopping", cause)
}

/// A closure that the control actor runs on its thread.
#[derive(Message)]
#[rtype(result = "()")]
struct ControlWork(BoxedWork);

type BoxedWork = Box<dyn FnOnce(&mut ControlActor, &mut Context<ControlActor>) + Send>;

/// A queued change. `reply` receives warnings once the change is stored and published, or the error.
struct MountChange {
    plan: ChangePlan,
    reply: ChangeReply,
}

type ChangeReply = oneshot::Sender<Result<Warnings>>;

enum BuildRequester {
    /// A timer or the server itself requested the build; no reply is sent.
    NoReply,
    /// A caller waits for the CRLs and receives the error of a failed build.
    Caller(ChangeReply),
    /// A caller whose change is already stored waits for the CRLs; it receives the error of a failed build as a
    /// warning.
    StoredChange(ChangeReply),
}

impl BuildRequester {
    fn reply(self, outcome: &Result<Warnings>) {
        match (self, outcome) {
            (Self::NoReply, _) => {}
            (Self::Caller(reply) | Self::StoredChange(reply), Ok(warnings)) => drop(reply.send(Ok(warnings.clone()))),
            (Self::Caller(reply), Err(e)) => drop(reply.send(Err(e.clone()))),
            (Self::StoredChange(reply), Err(e)) => {
                let warning = format!("the change is stored, but CRLs could not be built yet: {}", e.text());
                let _ = reply.send(Ok(crl::format_build_warnings(vec![warning].into())));
            }
        }
    }
}

const FOLLOW_OTHER_NODES: CrlBuildRequest = CrlBuildRequest { follow: true, ..CrlBuildRequest::DUE };

const FROM_STORAGE: CrlBuildRequest = CrlBuildRequest { from_storage: true, ..CrlBuildRequest::DUE };

struct ControlActor {
    view: Arc<ArcSwap<MountView>>,
    crls: Arc<ArcSwapOption<MountCrls>>,
    store: Arc<dyn PkiStore>,
    shared: ControlShared,
    /// Changes that the server itself queues. They only reload the view from storage, and run before the changes of
    /// callers.
    own_changes: VecDeque<MountChange>,
    /// Changes of callers, in fair order between the callers.
    changes: FairQueue<MountChange>,
    changing: bool,
    /// `true` if the outcome of a change is unknown and the stored state has not been read since.
    is_outdated: bool,
    /// `true` if another node changed the stored state since the last read.
    reload_needed: bool,
    /// The CRL builder; `None` while a build runs.
    builder: Option<CrlBuilder>,
    /// CRLs that callers requested from the next build, in addition to those that are due.
    wanted: CrlBuildRequest,
    waiting: Vec<BuildRequester>,
    /// Timer of a check that runs before the next periodic one.
    early_check: Option<SpawnHandle>,
    throttle: BuildThrottle,
    /// Timer that ends the pause before the next build.
    pause: Option<SpawnHandle>,
}

impl ControlActor {
    fn queue_change(&mut self, caller: CallerId, change: MountChange, ctx: &mut Context<Self>) {
        let is_abandoned = |change: &MountChange| change.reply.is_closed();
        let displaced =
            self.changes.push_bounded(caller, change, MAX_QUEUED_CHANGES, MAX_WAITING_PER_CALLER, is_abandoned);
        if let Some(refused) = displaced.refused {
            let busy = Error::new(Kind::Busy, "too many changes of this mount are queued; retry shortly");
            let _ = refused.reply.send(Err(busy));
        }
        self.start_next_change(ctx);
    }

    /// Reads the stored state before the next change, because another node has changed that state. `reply` receives the
    /// result once the view is published.
    fn reload(&mut self, ctx: &mut Context<Self>, reply: ChangeReply) {
        self.reload_needed = true;
        self.queue_empty_change(reply, ctx);
    }

    /// Queues a change that writes nothing, ahead of the changes of callers.
    fn queue_empty_change(&mut self, reply: ChangeReply, ctx: &mut Context<Self>) {
        let plan = |view: &MountView| Ok(PlannedChange { view: view.clone(), writes: Vec::new(), rebuild_crls: false });
        self.own_changes.push_back(MountChange { plan: Box::new(plan), reply });
        self.start_next_change(ctx);
    }

    fn start_next_change(&mut self, ctx: &mut Context<Self>) {
        if self.changing {
            return;
        }
        // Skip the change of a caller that has disconnected: nothing was promised to the caller.
        let mut next = || self.own_changes.pop_front().or_else(|| self.changes.pop_next());
        let Some(change) = std::iter::from_fn(&mut next).find(|change| !change.reply.is_closed()) else { return };
        self.changing = true;
        let reload = std::mem::take(&mut self.reload_needed) || self.is_outdated;
        let work = run_change(change.plan, self.view.load_full(), reload, Arc::clone(&self.store));
        let done = work.into_actor(self).map(move |changed, actor, ctx| {
            actor.changing = false;
            let was_outdated =
                std::mem::replace(&mut actor.is_outdated, matches!(changed, ChangeOutcome::Unknown { .. }));
            match changed {
                ChangeOutcome::Stored { view, rebuild_crls: true } => {
                    actor.view.store(Arc::new(view));
                    let all = CrlBuildRequest { complete: true, follow: reload, ..CrlBuildRequest::DUE };
                    actor.build(all, BuildRequester::StoredChange(change.reply), ctx);
                }
                ChangeOutcome::Stored { view, rebuild_crls: false } => {
                    actor.view.store(Arc::new(view));
                    if reload {
                        actor.build(FOLLOW_OTHER_NODES, BuildRequester::NoReply, ctx);
                    }
                    let _ = change.reply.send(Ok(Warnings::default()));
                }
                ChangeOutcome::Failed { error, reloaded } => {
                    if let Some(view) = reloaded {
                        // Issuers may have been added or removed, so build their CRLs; no caller waits for that.
                        actor.view.store(Arc::new(view));
                        actor.build(FOLLOW_OTHER_NODES, BuildRequester::NoReply, ctx);
                    }
                    let _ = change.reply.send(Err(error));
                }
                ChangeOutcome::Unknown { error } => {
                    let _ = change.reply.send(Err(error));
                    if !was_outdated {
                        Self::schedule_reload(ctx);
                    }
                }
            }
            actor.start_next_change(ctx);
        });
        ctx.spawn(done);
    }

    /// Queues an empty change after a delay, and repeats this until a change has read the stored state.
    fn schedule_reload(ctx: &mut Context<Self>) {
        ctx.run_later(RELOAD_RETRY_DELAY, |actor, ctx| {
            if !actor.is_outdated || !ctx.connected() {
                return;
            }
            let (reply, done) = oneshot::channel();
            actor.queue_empty_change(reply, ctx);
            ctx.spawn(done.into_actor(actor).map(|_, actor, ctx| {
                if actor.is_outdated {
                    Self::schedule_reload(ctx);
                }
            }));
        });
    }

    fn build(&mut self, wanted: CrlBuildRequest, waiter: BuildRequester, ctx: &mut Context<Self>) {
        self.wanted = self.wanted.union(wanted);
        self.waiting.push(waiter);
        self.throttle.record_request(Instant::now());
        self.start_next_build(ctx);
    }

    fn start_next_build(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_empty() || self.builder.is_none() {
            return;
        }
        if let Some(pause) = self.pause.take() {
            // The pause is computed again below: the request that just arrived may be the last one that the pause
            // waited for.
            ctx.cancel_future(pause);
        }
        if let Some(pause) = self.throttle.remaining_pause(Instant::now()) {
            self.pause = Some(ctx.run_later(pause, |actor, ctx| actor.start_next_build(ctx)));
            return;
        }
        let Some(builder) = self.builder.take() else { return };
        self.throttle.record_start();
        let served = std::mem::take(&mut self.waiting);
        let wanted = std::mem::take(&mut self.wanted);
        let work = run_build(builder, self.view.load_full(), wanted, Arc::clone(&self.shared.builds));
        let done = work.into_actor(self).map(move |(builder, result, took), actor, ctx| {
            actor.builder = Some(builder);
            actor.throttle.record_end(Instant::now(), took);
            if result.is_err() {
                // The next build also builds the CRLs that callers requested from this failed one. It starts after
                // `CRL_CHECK_INTERVAL` at the latest.
                actor.wanted = actor.wanted.union(wanted);
            }
            let outcome = result.and_then(|built| {
                actor.crls.store(Some(Arc::new(built.crls)));
                actor.shared.summaries.report(actor.view.load().mount, Some(built.summary));
                actor.schedule_check(built.next_check, ctx);
                built.failure.map_or(Ok(crl::format_build_warnings(built.warnings)), Err)
            });
            served.into_iter().for_each(|waiter| waiter.reply(&outcome));
            actor.start_next_build(ctx);
        });
        ctx.spawn(done);
    }

    /// Schedules a CRL build at `at` (epoch seconds) if that is before the next periodic check.
    fn schedule_check(&mut self, at: Option<i64>, ctx: &mut Context<Self>) {
        if let Some(earlier) = self.early_check.take() {
            ctx.cancel_future(earlier);
        }
        let Some(at) = at else { return };
        let left = Duration::from_secs((at - self.shared.clock.now().unix_timestamp()).max(0) as u64);
        if left < CRL_CHECK_INTERVAL {
            let check = |actor: &mut Self, ctx: &mut Context<Self>| {
                if ctx.connected() {
                    actor.build(CrlBuildRequest::DUE, BuildRequester::NoReply, ctx);
                }
            };
            self.early_check = Some(ctx.run_later(left.max(MIN_CHECK_DELAY), check));
        }
    }
}

impl Actor for ControlActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(CRL_CHECK_INTERVAL, |actor, ctx| {
            if !ctx.connected() {
                // The mount is closed; the timer alone would keep the actor alive forever.
                return ctx.stop();
            }
            actor.build(FOLLOW_OTHER_NODES, BuildRequester::NoReply, ctx);
        });
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.shared.summaries.report(self.view.load().mount, None);
    }
}

impl Handler<ControlWork> for ControlActor {
    type Result = ();

    fn handle(&mut self, ControlWork(work): ControlWork, ctx: &mut Self::Context) {
        work(self, ctx);
    }
}

fn panic_error() -> Error {
    metrics::counter!(telemetry::PKI_PANICS).increment(1);
    Error::internal("a panic was caught in a mount's actor")
}

/// Handle to a mount's replica actor on one HTTP worker. Cloning is cheap.
#[derive(Clone)]
pub struct ReplicaLink(Addr<ReplicaActor>);

impl ReplicaLink {
    /// Starts a replica actor on the current thread's arbiter; it reads the mount's state from `view`.
    pub fn start(view: Arc<ArcSwap<MountView>>, deps: EngineDeps) -> Self {
        Self(ReplicaActor::new(view, deps).start())
    }

    /// Runs a request for a certificate.
    ///
    /// # Errors
    /// Those of the operation; `Unavailable` when the worker is stopping.
    pub async fn run(&self, mut origin: IssueContext, request: CertificateRequest) -> Result<IssuedCertificate> {
        // The actor handles the message even if the caller disconnects. When this future is dropped, it drops the
        // guard, which ends the actor's wait for a key.
        let presence = CallerGuard::default();
        origin.requester.watch = presence.watch();
        self.0.send(IssueWork(QueueCaller::current(), origin, request)).await.map_err(mount_stopping_error)?
    }
}

#[derive(Message)]
#[rtype(result = "Result<IssuedCertificate>")]
struct IssueWork(QueueCaller, IssueContext, CertificateRequest);

struct ReplicaActor {
    view: Arc<ArcSwap<MountView>>,
    deps: EngineDeps,
    /// The stages of each operation, indexed in the order of [`IssuingOperation::ALL`].
    stages: [IssuanceStages; IssuingOperation::ALL.len()],
}

impl ReplicaActor {
    fn new(view: Arc<ArcSwap<MountView>>, deps: EngineDeps) -> Self {
        let stages = IssuingOperation::ALL.map(|operation| IssuanceStages::new(operation.name()));
        Self { view, deps, stages }
    }
}

impl Actor for ReplicaActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A limit that is never reached: the worker's connection limit bounds the number of requests.
        ctx.set_mailbox_capacity(1 << 16);
    }
}

impl Handler<IssueWork> for ReplicaActor {
    type Result = ResponseFuture<Result<IssuedCertificate>>;

    fn handle(&mut self, IssueWork(caller, origin, request): IssueWork, _: &mut Self::Context) -> Self::Result {
        let views = Arc::clone(&self.view);
        let deps = self.deps.clone();
        let operation = IssuingOperation::of(&request);
        let stages = self.stages[operation as usize].clone();
        Box::pin(async move {
            let work = pin!(pipeline::issue(&views, &deps, &origin, &request, &stages));
            run_guarded(operation, &origin.mount, caller, work).await
        })
    }
}

/// Runs a request and converts a panic into an error. The future is pinned, because moving it is expensive.
async fn run_guarded(
    operation: IssuingOperation,
    mount: &MountMeter,
    caller: QueueCaller,
    work: Pin<&mut impl Future<Output = Result<IssuedCertificate>>>,
) -> Result<IssuedCertificate> {
    let result = AssertUnwindSafe(caller.scope(work)).catch_unwind().await.unwrap_or_else(|_| Err(panic_error()));
    match &result {
        Ok(issued) if issued.repeated => {}
        Ok(_) => operation.count_issued(mount),
        Err(_) => operation.count_refusal(mount),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix::test]
    async fn panic_in_a_request_is_an_error_and_the_next_is_served() {
        let mount = MountMeter::of("guarded/");
        let defect = pin!(async { panic!("a defect") });
        let broken = run_guarded(IssuingOperation::Issue, &mount, QueueCaller::SERVER, defect).await;
        assert_eq!(broken.err().map(|e| e.kind()), Some(Kind::Internal));
        let refusal = pin!(async { Err(Error::invalid("served")) });
        let next = run_guarded(IssuingOperation::Issue, &mount, QueueCaller::SERVER, refusal).await;
        assert_eq!(next.err().map(|e| e.kind()), Some(Kind::Invalid));
    }
}
