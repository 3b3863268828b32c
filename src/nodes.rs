//! Nodes that share a database: following changes by other nodes.
//!
//! [`Nodes`] reads the change log ([`store`]) when the database notifies it and at least every second, and reloads
//! changed views through [`mounts`](crate::mounts). After [`MAX_STALENESS`] without a successful read, requests that
//! need authorization wait for one, and are rejected if it fails. Expiry is decided by each node's clock, so clocks are
//! compared with the database's ([`Clock::set_reference`]): a node that is too far off rejects such requests, signs no
//! CRL and deletes nothing.

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
use crate::documents::{MountId, SYSTEM_MOUNT};
use crate::error::{Error, Kind, Result};
use crate::mounts::Mounts;
use crate::telemetry;
use skew::ClockSkew;
pub use skew::SKEW_LIMIT;
use store::{ChangeLog, ChangeLogResponse, LogPosition, LoggedMountChange};

/// Maximum time since the last read of the log. After that, requests wait for a read.
pub const MAX_STALENESS: Duration = Duration::from_secs(2);

/// Interval between two reads of the log if there is no notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two reads, so that changes in between share one.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for a response from the log.
const LOG_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// A timer that is later than this means that the process was paused.
const PAUSE_THRESHOLD: Duration = Duration::from_millis(250);
/// Time after a failed read in which requests are rejected without another attempt.
const FAILURE_BACKOFF: Duration = Duration::from_millis(500);
/// After another node has revoked, time to wait for its CRL before this node signs one itself. So one node signs the
/// CRL and the others copy it.
const CRL_WAIT: Duration = Duration::from_millis(300);
/// Interval between two requests to a mount to publish CRLs with another node's revocations.
const CRL_REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// The state of the log before the mounts were opened.
pub struct ChangeLogBaseline {
    log: Arc<dyn ChangeLog>,
    changes: ChangeLogResponse,
    skew: ClockSkew,
}

impl ChangeLogBaseline {
    /// Reads the log and compares this machine's clock with the database's.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Invalid` when the clocks differ by more than `limit`.
    pub async fn read(log: Arc<dyn ChangeLog>, clock: Clock, limit: Duration) -> Result<Self> {
        let skew = ClockSkew::new(clock, limit);
        let changes = read_log(&*log, LogPosition::default(), &skew).await?;
        skew.require_within_limit()?;
        Ok(Self { log, changes, skew })
    }
}

/// Follows the changes by other nodes of a shared database; does nothing for an embedded store.
pub struct Nodes(Option<ChangeFollower>);

struct ChangeFollower {
    log: Arc<dyn ChangeLog>,
    mounts: Arc<Mounts>,
    skew: ClockSkew,
    /// Locked during a read of the log.
    state: tokio::sync::Mutex<FollowerState>,
    last: Mutex<LastReads>,
    /// `true` while a mount waits for the CRL of another node.
    awaits_crls: AtomicBool,
}

/// Results of the last reads of the change log.
struct LastReads {
    /// Start of the last successful read.
    succeeded: Instant,
    /// Time and error of the last failed read, if it failed after the last successful one.
    failed: Option<(Instant, Error)>,
}

struct FollowerState {
    position: LogPosition,
    seen: HashMap<MountId, SeenMount>,
    /// Mounts whose CRLs lack revocations by other nodes.
    missing_revocations: HashMap<MountId, MissingRevocations>,
}

/// The last known state of a mount; all 0 for a mount that is not known yet.
#[derive(Default)]
struct SeenMount {
    version: u64,
    crls: u64,
}

struct MissingRevocations {
    revocations: u64,
    request_at: Instant,
}

impl Nodes {
    /// Follows changes after `baseline`, which must be read before the mounts are opened. Without a baseline there is
    /// nothing to follow.
    pub fn new(baseline: Option<ChangeLogBaseline>, mounts: Arc<Mounts>) -> Self {
        gauge!(telemetry::CHANGES_FOLLOWED).set(1.0);
        Self(baseline.map(|ChangeLogBaseline { log, changes, skew }| {
            let seen =
                |change: &LoggedMountChange| (change.mount, SeenMount { version: change.version, crls: change.crls });
            let seen = changes.mounts.iter().map(seen).collect();
            let state = FollowerState { position: changes.position, seen, missing_revocations: HashMap::new() };
            let last = Mutex::new(LastReads { succeeded: Instant::now(), failed: None });
            let state = tokio::sync::Mutex::new(state);
            let awaits_crls = AtomicBool::new(false);
            ChangeFollower { log, mounts, skew, state, last, awaits_crls }
        }))
    }

    /// Follows the other nodes until the future is dropped.
    pub async fn follow(&self) {
        let Some(follower) = &self.0 else { return };
        let woken = follower.log.listen();
        let mut warned = false;
        loop {
            let pause = if follower.awaits_crls.load(Ordering::Relaxed) { CRL_WAIT } else { POLL_INTERVAL };
            let _ = tokio::time::timeout(pause, woken.notified()).await;
            let result = follower.poll().await;
            if let (Err(error), false) = (&result, warned) {
                telemetry::warn_task_failed(
                    "the changes of other nodes cannot be followed; retried every second",
                    error,
                );
            }
            warned = result.is_err();
            tokio::time::sleep(MIN_POLL_INTERVAL).await;
        }
    }

    /// Ensures that this node's view is not older than [`MAX_STALENESS`] and its clock near the database's; reads the
    /// log if necessary. When a machine resumes from suspension, only its wall clock shows the elapsed time, so the
    /// clock is checked too.
    ///
    /// # Errors
    /// `Unavailable` when the log cannot be read, or the clocks differ too much.
    pub async fn require_fresh(&self) -> Result<()> {
        let Some(follower) = &self.0 else { return Ok(()) };
        if follower.is_stale() {
            follower.catch_up().await?;
        }
        follower.skew.require_agreed()
    }

    /// `true` if [`Nodes::require_fresh`] succeeds in time, so that this node accepts requests that need authorization.
    pub async fn is_fresh(&self) -> bool {
        matches!(tokio::time::timeout(LOG_READ_TIMEOUT, self.require_fresh()).await, Ok(Ok(())))
    }
}

/// Reads the log, and measures the difference of the clocks by the database's time in the response.
async fn read_log(log: &dyn ChangeLog, position: LogPosition, skew: &ClockSkew) -> Result<ChangeLogResponse> {
    let mut started = Instant::now();
    let mut answer = tokio::time::timeout(LOG_READ_TIMEOUT, log.since(position)).await;
    if answer.is_err() && started.elapsed() > LOG_READ_TIMEOUT + PAUSE_THRESHOLD {
        // This process was paused, so the database did not have the full time to respond.
        started = Instant::now();
        answer = tokio::time::timeout(LOG_READ_TIMEOUT, log.since(position)).await;
    }
    let answer = answer.unwrap_or_else(|late| {
        Err(Error::unavailable("storage: the database did not answer a read of the change log in time", late))
    });
    let result = if answer.is_ok() { "done" } else { "failed" };
    counter!(telemetry::CHANGES_POLLS, "result" => result).increment(1);
    if let Ok(changes) = &answer {
        skew.measure(started.elapsed(), changes.database_time);
    }
    answer
}

fn is_unseen(state: &FollowerState, change: &LoggedMountChange) -> bool {
    change.is_unseen(state.seen.get(&change.mount).map_or(0, |seen| seen.version))
}

impl ChangeFollower {
    fn last_reads(&self) -> std::sync::MutexGuard<'_, LastReads> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `true` if the log must be read before a request may be authorized.
    fn is_stale(&self) -> bool {
        self.last_reads().succeeded.elapsed() >= MAX_STALENESS || self.skew.has_moved()
    }

    async fn catch_up(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        // The previous holder of the lock may have read the log.
        if !self.is_stale() {
            return Ok(());
        }
        let failed = self.last_reads().failed.clone();
        if let Some((_, error)) = failed.filter(|(at, _)| at.elapsed() < FAILURE_BACKOFF) {
            return Err(error);
        }
        self.poll_locked(&mut state).await
    }

    async fn poll(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.poll_locked(&mut state).await
    }

    async fn poll_locked(&self, state: &mut FollowerState) -> Result<()> {
        let started = Instant::now();
        // Every error becomes `Unavailable`: whatever the cause, a node that cannot follow changes rejects requests for
        // now.
        let result = self.apply_changes(state).await.map_err(|error| match error.kind() {
            Kind::Unavailable => error,
            _ => Error::unavailable("storage: changes of other nodes cannot be applied", error),
        });
        let mut last = self.last_reads();
        match &result {
            Ok(()) => *last = LastReads { succeeded: started, failed: None },
            Err(error) => last.failed = Some((Instant::now(), error.clone())),
        }
        let follows = result.is_ok() || last.succeeded.elapsed() < MAX_STALENESS;
        gauge!(telemetry::CHANGES_FOLLOWED).set(if follows { 1.0 } else { 0.0 });
        result
    }

    /// Reads changes and applies them to the mounts. After an error the next read starts at the same position.
    async fn apply_changes(&self, state: &mut FollowerState) -> Result<()> {
        let changes = read_log(&*self.log, state.position, &self.skew).await?;
        let queried_at = Instant::now();
        if let Some(system) = changes.mounts.iter().find(|change| change.mount == SYSTEM_MOUNT)
            && (changes.is_other_timeline || is_unseen(state, system))
        {
            // The change is in the policies or the mount table.
            self.mounts.reload_table().await?;
        }
        self.follow_mounts(state, &changes).await?;
        if changes.is_other_timeline {
            tracing::warn!("the database lost commits or was replaced; this node reloaded all mounts and policies");
            state.seen.clear();
        }
        for change in &changes.mounts {
            self.note_outdated_crls(state, change);
            if !changes.is_other_timeline {
                self.measure_lag(state, change, &changes, queried_at);
            }
            state.seen.insert(change.mount, SeenMount { version: change.version, crls: change.crls });
        }
        state.position = changes.position;
        self.request_crls(state);
        Ok(())
    }

    async fn follow_mounts(&self, state: &FollowerState, changes: &ChangeLogResponse) -> Result<()> {
        let other = changes.is_other_timeline;
        let changed = changes.mounts.iter().filter(|change| other || is_unseen(state, change));
        let follow = |change: &LoggedMountChange| match other {
            true => self.mounts.reload_mount_and_revocations(change.mount).boxed(),
            false => self.mounts.reload_mount(change.mount).boxed(),
        };
        join_all(changed.map(follow)).await.into_iter().collect()
    }

    /// Records a mount whose CRLs lack revocations by other nodes.
    fn note_outdated_crls(&self, state: &mut FollowerState, change: &LoggedMountChange) {
        let Some(covered) = self.mounts.has_published_revocations(change.mount, change.revocations) else { return };
        let published = state.seen.get(&change.mount).map_or(0, |seen| seen.crls) != change.crls;
        let now = Instant::now();
        if !published && covered {
            return;
        }
        // A published CRL can be copied now. Otherwise the node that revoked is about to publish one.
        let request_at = if published { now } else { now + CRL_WAIT };
        let lacking =
            state.missing_revocations.entry(change.mount).or_insert(MissingRevocations { revocations: 0, request_at });
        lacking.revocations = lacking.revocations.max(change.revocations);
        lacking.request_at = lacking.request_at.min(request_at);
    }

    /// Requests CRLs for mounts that have waited long enough.
    fn request_crls(&self, state: &mut FollowerState) {
        let now = Instant::now();
        state.missing_revocations.retain(|mount, lacking| {
            if lacking.request_at <= now {
                self.mounts.update_crls_from_other_nodes(*mount);
                lacking.request_at = now + CRL_REQUEST_INTERVAL;
            }
            self.mounts.has_published_revocations(*mount, lacking.revocations) == Some(false)
        });
        self.awaits_crls.store(!state.missing_revocations.is_empty(), Ordering::Relaxed);
    }

    /// Measures how old a change is when it is applied here. Both times are those of the database's clock.
    fn measure_lag(
        &self,
        state: &FollowerState,
        change: &LoggedMountChange,
        changes: &ChangeLogResponse,
        queried_at: Instant,
    ) {
        let seen = state.seen.get(&change.mount);
        if seen.is_some_and(|seen| seen.version == change.version && seen.crls == change.crls) {
            return;
        }
        let age = Duration::try_from(changes.database_time - change.changed_at).unwrap_or_default();
        histogram!(telemetry::CHANGES_LAG_SECONDS).record((age + queried_at.elapsed()).as_secs_f64());
    }
}
