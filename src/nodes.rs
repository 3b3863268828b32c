//! Nodes that share a database: how this one follows what the others change.
//!
//! All nodes are equal and write; the database settles who was first (versions of documents, numbers of
//! revocations and of CRLs). Each node keeps views of policies, mounts, and the state of every mount.
//! [`Nodes`] reads the change log ([`store`]) when the database says that there is something new, and
//! every second whether it does or not, and has the owner of those views ([`mounts`](crate::mounts)) read again what
//! another node changed. So a node is behind by a second at most; for tokens that is the age of the token cache. A node
//! that could not read the log for [`STALENESS`] (it was paused, or the database is away) reads it before
//! it serves the next request that asks for rights, and refuses the request when it cannot; as long as it refuses it is
//! not healthy.
//!
//! It watches the clocks too: what expires is decided by each node's clock, so nodes whose clocks differ
//! disagree. The database's clock is the common measure ([`Clock::compared`]): a node that is too far from it answers
//! no request that asks for rights, signs no list and removes nothing, until the clocks agree again.
//!
//! A server whose store is its own has nobody to follow: then nothing of this runs. Called by the
//! composition root and, before every decision, by `http`.

mod skew;
pub mod store;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use metrics::{counter, gauge, histogram};

use crate::clock::Clock;
use crate::documents::{MountId, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::mounts::Mounts;
use crate::telemetry;
pub use skew::LIMIT as SKEW_LIMIT;
use skew::Skew;
use store::{Change, ChangeLog, Changes, Point};

/// Longest time without a look at the log before requests wait for one.
pub const STALENESS: Duration = Duration::from_secs(2);

/// Between two looks at the log when nothing wakes this node.
const POLL: Duration = Duration::from_secs(1);
/// Least time between two looks: what comes in between shares one.
const PACE: Duration = Duration::from_millis(50);
/// How long an answer of the log may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A timer that is later than this was not served: the node stood still.
const STOOD_STILL: Duration = Duration::from_millis(250);
/// After a look that failed: how long requests are refused without another one.
const FAILED: Duration = Duration::from_millis(500);
/// How long the CRLs of a node that revoked are waited for, so that one node signs and the others take it over.
const SETTLE: Duration = Duration::from_millis(300);
/// Between two requests to a mount to build CRLs that hold another node's revocations.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The log as it stood before the domains were opened.
pub struct Baseline {
    log: Arc<dyn ChangeLog>,
    changes: Changes,
    skew: Skew,
}

impl Baseline {
    /// Reads the log, and holds this machine's clock against the database's.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Invalid` when the clocks differ by more than `limit`.
    pub async fn read(log: Arc<dyn ChangeLog>, clock: Clock, limit: Duration) -> Result<Self> {
        let skew = Skew::new(clock, limit);
        let changes = ask(&*log, Point::default(), &skew).await?;
        skew.refuse_beyond_limit()?;
        Ok(Self { log, changes, skew })
    }
}

/// The nodes of one database, as one of them sees the others.
pub struct Nodes(Option<Follower>);

struct Follower {
    log: Arc<dyn ChangeLog>,
    mounts: Arc<Mounts>,
    skew: Skew,
    /// One look at a time.
    state: tokio::sync::Mutex<State>,
    last: Mutex<Last>,
    /// Some CRLs are waited for.
    settling: AtomicBool,
}

/// How the last looks went.
struct Last {
    /// When the last one that went well began.
    well: Instant,
    /// When the last one failed, and why, if it is the last of all.
    failed: Option<(Instant, Error)>,
}

struct State {
    point: Point,
    seen: HashMap<MountId, Seen>,
    /// Mounts whose CRLs lack revocations of other nodes.
    lacking: HashMap<MountId, Lacking>,
}

/// What was seen of a mount; all 0 for one that is new.
#[derive(Default)]
struct Seen {
    version: u64,
    crls: u64,
}

struct Lacking {
    revocations: u64,
    ask_at: Instant,
}

impl Nodes {
    /// Follows the others from where `baseline` was read; the domains must have been opened since.
    /// Without one there are no others.
    pub fn new(baseline: Option<Baseline>, mounts: Arc<Mounts>) -> Self {
        gauge!(telemetry::CHANGES_FOLLOWED).set(1.0);
        Self(baseline.map(|Baseline { log, changes, skew }| {
            let seen = |change: &Change| (change.mount, Seen { version: change.version, crls: change.crls });
            let seen = changes.mounts.iter().map(seen).collect();
            let state = State { point: changes.point, seen, lacking: HashMap::new() };
            let last = Mutex::new(Last { well: Instant::now(), failed: None });
            let (state, settling) = (tokio::sync::Mutex::new(state), AtomicBool::new(false));
            Follower { log, mounts, skew, state, last, settling }
        }))
    }

    /// Follows the others until it is dropped.
    pub async fn follow(&self) {
        let Some(follower) = &self.0 else { return };
        let woken = follower.log.listen();
        let mut warned = false;
        loop {
            let pause = if follower.settling.load(Ordering::Relaxed) { SETTLE } else { POLL };
            let _ = tokio::time::timeout(pause, woken.notified()).await;
            let result = follower.look().await;
            if let (Err(error), false) = (&result, warned) {
                telemetry::not_done("not following the other nodes at present", error);
            }
            warned = result.is_err();
            tokio::time::sleep(PACE).await;
        }
    }

    /// That what this node knows of the others' changes is not older than [`STALENESS`], and its clock near the
    /// database's; looks when it is not. A machine that was suspended has a clock that was set, and no more.
    ///
    /// # Errors
    /// `Unavailable` when the log cannot be read, or the clocks differ too much.
    pub async fn fresh(&self) -> Result<()> {
        let Some(follower) = &self.0 else { return Ok(()) };
        if follower.is_stale() {
            follower.catch_up().await?;
        }
        follower.skew.require_agreed()
    }

    /// Whether requests that ask for rights are served here, as [`Nodes::fresh`] says; no when that takes long.
    pub async fn is_fresh(&self) -> bool {
        matches!(tokio::time::timeout(PATIENCE, self.fresh()).await, Ok(Ok(())))
    }
}

/// Asks the log; measures the clocks by the answer.
async fn ask(log: &dyn ChangeLog, point: Point, skew: &Skew) -> Result<Changes> {
    let mut started = Instant::now();
    let mut answer = tokio::time::timeout(PATIENCE, log.since(point)).await;
    if answer.is_err() && started.elapsed() > PATIENCE + STOOD_STILL {
        // It was this node that took so long: it was paused meanwhile, and the log has not had its time.
        started = Instant::now();
        answer = tokio::time::timeout(PATIENCE, log.since(point)).await;
    }
    let answer = answer.unwrap_or_else(|late| Err(Error::unavailable("storage: the change log takes too long", late)));
    let result = if answer.is_ok() { "done" } else { "failed" };
    counter!(telemetry::CHANGES_POLLS, "result" => result).increment(1);
    if let Ok(changes) = &answer {
        skew.measure(started.elapsed(), changes.at);
    }
    answer
}

fn is_news(state: &State, change: &Change) -> bool {
    change.is_news(state.seen.get(&change.mount).map_or(0, |seen| seen.version))
}

impl Follower {
    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the log must be read before anything is decided.
    fn is_stale(&self) -> bool {
        self.last().well.elapsed() >= STALENESS || self.skew.has_moved()
    }

    async fn catch_up(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        // Whoever had the lock before may have looked.
        if !self.is_stale() {
            return Ok(());
        }
        let failed = self.last().failed.clone();
        if let Some((_, error)) = failed.filter(|(at, _)| at.elapsed() < FAILED) {
            return Err(error);
        }
        self.look_held(&mut state).await
    }

    async fn look(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.look_held(&mut state).await
    }

    async fn look_held(&self, state: &mut State) -> Result<()> {
        let started = Instant::now();
        // Whatever it is: who cannot follow serves nobody just now.
        let result = self.take_over(state).await.map_err(|error| match error.kind() {
            Kind::Unavailable => error,
            _ => Error::unavailable("storage: what other nodes changed cannot be taken over", error),
        });
        let mut last = self.last();
        match &result {
            Ok(()) => *last = Last { well: started, failed: None },
            Err(error) => last.failed = Some((Instant::now(), error.clone())),
        }
        let follows = result.is_ok() || last.well.elapsed() < STALENESS;
        gauge!(telemetry::CHANGES_FOLLOWED).set(if follows { 1.0 } else { 0.0 });
        result
    }

    /// Reads what changed and has it read by whom it concerns. What fails stays to be done: the next look
    /// begins at the same point.
    async fn take_over(&self, state: &mut State) -> Result<()> {
        let changes = ask(&*self.log, state.point, &self.skew).await?;
        let asked = Instant::now();
        if let Some(system) = changes.mounts.iter().find(|change| change.mount == SYSTEM)
            && (changes.is_other_course || is_news(state, system))
        {
            // Policies and the mount table.
            self.mounts.follow_table().await?;
        }
        self.mounts(state, &changes).await?;
        if changes.is_other_course {
            tracing::warn!("the database goes on from an earlier state, or elsewhere: everything was read again");
            state.seen.clear();
        }
        for change in &changes.mounts {
            self.note(state, change);
            if !changes.is_other_course {
                self.measure_lag(state, change, &changes, asked);
            }
            state.seen.insert(change.mount, Seen { version: change.version, crls: change.crls });
        }
        state.point = changes.point;
        self.ask_for_crls(state);
        Ok(())
    }

    /// The state of mounts that are open here.
    async fn mounts(&self, state: &State, changes: &Changes) -> Result<()> {
        let other = changes.is_other_course;
        let changed = changes.mounts.iter().filter(|change| other || is_news(state, change));
        let follow = |change: &Change| match other {
            true => self.mounts.follow_anew(change.mount).boxed(),
            false => self.mounts.follow(change.mount).boxed(),
        };
        join_all(changed.map(follow)).await.into_iter().collect()
    }

    /// Notes whose CRLs are behind.
    fn note(&self, state: &mut State, change: &Change) {
        let Some(covered) = self.mounts.covers(change.mount, change.revocations) else { return };
        let published = state.seen.get(&change.mount).map_or(0, |seen| seen.crls) != change.crls;
        let now = Instant::now();
        if !published && covered {
            return;
        }
        // A published one is there to be taken over; otherwise the node that revoked is about to publish.
        let ask_at = if published { now } else { now + SETTLE };
        let lacking = state.lacking.entry(change.mount).or_insert(Lacking { revocations: 0, ask_at });
        lacking.revocations = lacking.revocations.max(change.revocations);
        lacking.ask_at = lacking.ask_at.min(ask_at);
    }

    /// Has CRLs built, or taken over, that were waited for long enough.
    fn ask_for_crls(&self, state: &mut State) {
        let now = Instant::now();
        state.lacking.retain(|mount, lacking| {
            if lacking.ask_at <= now {
                self.mounts.follow_revocations(*mount);
                lacking.ask_at = now + ASK_AGAIN;
            }
            self.mounts.covers(*mount, lacking.revocations) == Some(false)
        });
        self.settling.store(!state.lacking.is_empty(), Ordering::Relaxed);
    }

    /// How old a change is when this node has taken it over; by the database's clock alone.
    fn measure_lag(&self, state: &State, change: &Change, changes: &Changes, asked: Instant) {
        let seen = state.seen.get(&change.mount);
        if seen.is_some_and(|seen| seen.version == change.version && seen.crls == change.crls) {
            return;
        }
        let age = Duration::try_from(changes.at - change.changed_at).unwrap_or_default();
        histogram!(telemetry::CHANGES_LAG_SECONDS).record((age + asked.elapsed()).as_secs_f64());
    }
}
