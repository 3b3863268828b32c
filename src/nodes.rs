//! Coordination of nodes that share a database: each node applies the changes that other nodes have made.
//!
//! [`Nodes`] reads the change log ([`store`]) when the database notifies it and at least every second, and reloads
//! changed views through [`mounts`](crate::mounts). After [`MAX_STALENESS`] without a successful read, requests that
//! need authorization wait for another read, and are rejected if that read fails. Each node decides by its own clock
//! what has expired, so it compares this clock with the database's ([`Clock::set_reference`]). If the clocks differ too
//! much, the node rejects requests that need authorization, signs no CRL and deletes nothing.

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

/// Maximum age of the last successful read of the change log. When it is older, requests wait for another read.
pub const MAX_STALENESS: Duration = Duration::from_secs(2);

/// Interval between two reads of the change log if the database sends no notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two reads of the change log, so that one read covers several notified changes.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a read of the change log.
const LOG_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// If a timer fires later than planned by at least this time, the process was paused.
const PROCESS_PAUSE_THRESHOLD: Duration = Duration::from_millis(250);
/// Time after a failed read of the change log in which waiting requests are rejected without another read.
const LOG_READ_FAILURE_BACKOFF: Duration = Duration::from_millis(500);
/// After another node has revoked a certificate, this node waits this long for that node's CRL before it signs a CRL
/// itself. So normally only one node signs the CRL, and the others copy it.
const OTHER_NODE_CRL_WAIT: Duration = Duration::from_millis(300);
/// Interval between two attempts to make a mount publish CRLs that include the revocations by other nodes.
const CRL_REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// The state of the change log before the mounts were loaded.
pub struct ChangeLogBaseline {
    log: Arc<dyn ChangeLog>,
    changes: ChangeLogResponse,
    skew: ClockSkew,
}

impl ChangeLogBaseline {
    /// Reads the change log and compares this machine's clock with the database's.
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

/// Applies the changes that other nodes of a shared database made; does nothing for an embedded store.
pub struct Nodes(Option<ChangeFollower>);

struct ChangeFollower {
    log: Arc<dyn ChangeLog>,
    mounts: Arc<Mounts>,
    skew: ClockSkew,
    /// Held during a read of the change log, so that reads do not overlap.
    state: tokio::sync::Mutex<FollowerState>,
    last: Mutex<LastReads>,
    /// `true` while a mount waits for the CRL of another node.
    awaits_crls: AtomicBool,
}

/// Results of the last reads of the change log.
struct LastReads {
    /// Start of the last successful read.
    succeeded: Instant,
    /// Time and error of the last read, if it failed.
    failed: Option<(Instant, Error)>,
}

struct FollowerState {
    position: LogPosition,
    seen: HashMap<MountId, SeenMount>,
    /// Mounts whose CRLs lack revocations by other nodes.
    missing_revocations: HashMap<MountId, MissingRevocations>,
}

/// The counters of a mount, from the last change log entry that this node has read; 0 if it has read none.
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
    /// Applies changes made after `baseline`, which must be read before the mounts are loaded. Without a baseline
    /// (embedded store) no other node makes changes.
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

    /// Applies the changes of other nodes until the future is dropped.
    pub async fn follow_changes(&self) {
        let Some(follower) = &self.0 else { return };
        let woken = follower.log.listen();
        let mut warned = false;
        loop {
            let pause = if follower.awaits_crls.load(Ordering::Relaxed) { OTHER_NODE_CRL_WAIT } else { POLL_INTERVAL };
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

    /// Ensures that this node's view is not older than [`MAX_STALENESS`], and that its clock is close to the database's.
    /// Reads the change log if necessary. While a machine is suspended, its monotonic clock stops, so the measured age
    /// of the view is too low; the check of the wall clock detects this.
    ///
    /// # Errors
    /// `Unavailable` when the log cannot be read, or the clocks differ too much.
    pub async fn require_fresh(&self) -> Result<()> {
        let Some(follower) = &self.0 else { return Ok(()) };
        if follower.is_stale() {
            follower.catch_up().await?;
        }
        follower.skew.require_clocks_agree()
    }

    /// Returns `true` if [`Nodes::require_fresh`] succeeds before its timeout, so that this node accepts requests that
    /// need authorization.
    pub async fn is_fresh(&self) -> bool {
        matches!(tokio::time::timeout(LOG_READ_TIMEOUT, self.require_fresh()).await, Ok(Ok(())))
    }
}

/// Reads the change log. Then compares this machine's clock with the database's time in the response.
async fn read_log(log: &dyn ChangeLog, position: LogPosition, skew: &ClockSkew) -> Result<ChangeLogResponse> {
    let mut started = Instant::now();
    let mut answer = tokio::time::timeout(LOG_READ_TIMEOUT, log.since(position)).await;
    if answer.is_err() && started.elapsed() > LOG_READ_TIMEOUT + PROCESS_PAUSE_THRESHOLD {
        // This process was paused, so the database had less time than the timeout. The read is repeated once.
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

    /// Returns `true` if the change log must be read before a request may be authorized.
    fn is_stale(&self) -> bool {
        self.last_reads().succeeded.elapsed() >= MAX_STALENESS || self.skew.has_crossed_limit()
    }

    async fn catch_up(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        // Another request held the lock before and may have read the change log meanwhile.
        if !self.is_stale() {
            return Ok(());
        }
        let failed = self.last_reads().failed.clone();
        if let Some((_, error)) = failed.filter(|(at, _)| at.elapsed() < LOG_READ_FAILURE_BACKOFF) {
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
        // Every error becomes `Unavailable`: whatever the cause, a node that cannot apply changes rejects requests for
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

    /// Reads the change log and applies the changes to the mounts. After an error, the next read starts at the same
    /// position.
    async fn apply_changes(&self, state: &mut FollowerState) -> Result<()> {
        let changes = read_log(&*self.log, state.position, &self.skew).await?;
        let queried_at = Instant::now();
        if let Some(system) = changes.mounts.iter().find(|change| change.mount == SYSTEM_MOUNT)
            && (changes.is_other_timeline || is_unseen(state, system))
        {
            // The policies or the mount table have changed.
            self.mounts.reload_table().await?;
        }
        self.reload_changed_mounts(state, &changes).await?;
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

    async fn reload_changed_mounts(&self, state: &FollowerState, changes: &ChangeLogResponse) -> Result<()> {
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
        // If another node has published a CRL, this mount can copy it now. Otherwise the node that revoked the
        // certificate is about to publish one.
        let request_at = if published { now } else { now + OTHER_NODE_CRL_WAIT };
        let lacking =
            state.missing_revocations.entry(change.mount).or_insert(MissingRevocations { revocations: 0, request_at });
        lacking.revocations = lacking.revocations.max(change.revocations);
        lacking.request_at = lacking.request_at.min(request_at);
    }

    /// If the wait of a mount is over, makes the mount publish CRLs that include the revocations by other nodes.
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

    /// Records in the metrics how old a change is when this node applies it. Both times are from the database's clock.
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
