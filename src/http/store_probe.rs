//! Availability of the store, for `sys/health`.
//!
//! A probe is an empty write, which takes the usual path of writes, and a read. Its verdict is valid for a second, and
//! only one probe runs at a time, so that frequent health checks do not load the store. An empty write succeeds even on
//! a full disk. So after any write has failed, each probe also starts a trial write in the background, until a write
//! succeeds. Meanwhile the store counts as available, because reads work. The probe also checks if a root token was
//! ever created.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join3};

use crate::auth::Auth;
use crate::auth::store::{AuthStore, TokenHash};
use crate::error::{Error, Kind, Result};
use crate::telemetry::warn_task_failed;

/// Time for which the verdict of a probe is valid.
const PROBE_VERDICT_LIFETIME: Duration = Duration::from_secs(1);
/// Time after which a running probe counts as failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks if the store is available.
pub struct StoreProbe {
    store: Arc<dyn AuthStore>,
    initialized: Arc<InitializationFlag>,
    /// Held during a trial write, so that only one runs. Probes do not wait for it.
    trial_write_lock: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Option<ProbeRun>>,
}

#[derive(Clone)]
struct ProbeRun {
    started: Instant,
    verdict: Shared<BoxFuture<'static, bool>>,
}

impl StoreProbe {
    /// Creates a probe of `store`, which is not queried before the first check. `is_initialized` is `true` if a root
    /// token was ever created in the store.
    pub fn new(store: Arc<dyn AuthStore>, auth: Arc<Auth>, is_initialized: bool) -> Self {
        let initialized = Arc::new(InitializationFlag { auth, is_known: AtomicBool::new(is_initialized) });
        Self { store, initialized, trial_write_lock: Arc::default(), last: Mutex::default() }
    }

    /// `true` if the store responds. Waits for the running probe, but only until it has run for two seconds.
    pub async fn is_available(&self) -> bool {
        let ProbeRun { started, verdict } = self.probe();
        let deadline = started + PROBE_TIMEOUT;
        tokio::time::timeout_at(deadline.into(), verdict).await.unwrap_or(false)
    }

    /// `true` if the latest write failed, for example because the disk is full.
    pub fn writes_fail(&self) -> bool {
        self.store.writes_fail()
    }

    /// Starts a trial write and does not wait for it. It is needed at startup, because a store on a full disk reports
    /// no failure until the first write.
    pub fn try_writing(&self) {
        start_trial_write(&self.store, &self.trial_write_lock);
    }

    /// Records that a root token was created.
    pub fn note_initialized(&self) {
        self.initialized.is_known.store(true, Ordering::Relaxed);
    }

    /// `true` if a root token was ever created in the store. Waits for a probe if no root token is known yet.
    pub async fn is_initialized(&self) -> bool {
        self.initialized.is_known.load(Ordering::Relaxed) || {
            self.is_available().await;
            self.initialized.is_known.load(Ordering::Relaxed)
        }
    }

    /// Returns the running probe, or the latest probe while its verdict is valid, or a new probe.
    fn probe(&self) -> ProbeRun {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match &*last {
            Some(probe) => match probe.verdict.peek() {
                Some(verdict) if probe.started.elapsed() >= PROBE_VERDICT_LIFETIME => *verdict,
                _ => return probe.clone(),
            },
            None => true,
        };
        // The probe runs in a separate task, because it must outlive the request that started it.
        let store = Arc::clone(&self.store);
        let initialized = Arc::clone(&self.initialized);
        let trial_write_lock = Arc::clone(&self.trial_write_lock);
        let task = tokio::spawn(async move {
            let verdict = probe_store(&*store, &initialized, before).await;
            if store.writes_fail() {
                start_trial_write(&store, &trial_write_lock);
            }
            verdict
        });
        let verdict = async move { task.await.unwrap_or(false) }.boxed().shared();
        last.insert(ProbeRun { started: Instant::now(), verdict }).clone()
    }
}

/// Records whether a root token was ever created. Once set, the flag never changes back.
struct InitializationFlag {
    auth: Arc<Auth>,
    is_known: AtomicBool,
}

impl InitializationFlag {
    async fn update(&self) -> Result<()> {
        if !self.is_known.load(Ordering::Relaxed) && self.auth.is_initialized().await? {
            self.is_known.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Commits an empty write and reads a token that does not exist. After `Busy`, which says nothing about the store, the
/// previous verdict `before` applies. Failures are logged.
async fn probe_store(store: &dyn AuthStore, initialized: &InitializationFlag, before: bool) -> bool {
    let answers = |failure: Option<Error>| match failure {
        None => true,
        Some(error) if error.kind() == Kind::Busy => before,
        Some(error) => {
            warn_task_failed("the store is not reachable", &error);
            false
        }
    };
    let empty = store.commit(Vec::new());
    let read = store.token(TokenHash::default());
    let (wrote, read, initialization) = join3(empty, read, initialized.update()).await;
    [wrote.err(), read.err(), initialization.err()].map(answers) == [true; 3]
}

/// Starts a trial write, unless one is running. Its failure is logged.
fn start_trial_write(store: &Arc<dyn AuthStore>, trial_write_lock: &Arc<tokio::sync::Mutex<()>>) {
    let Ok(lock) = Arc::clone(trial_write_lock).try_lock_owned() else { return };
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let _lock = lock;
        if let Err(error) = store.try_writing().await
            && error.kind() != Kind::Busy
        {
            warn_task_failed("the store accepts no writes", &error);
        }
    });
}
