//! Whether the store can be reached, and whether anything was begun in it: what `sys/health` tells load balancers and
//! clients.
//!
//! Owns the last probe of the store: an empty write, which takes the way of every write, and a read; and of a store in
//! which nobody had a root token, whether somebody has by now. An empty write says nothing of a disk that is full: once a
//! write has failed each probe lets one be tried that is not empty, until that is stored, and does not wait for it. Reads
//! go on meanwhile, and so the store is within reach. A verdict holds for a second and one probe runs at a time, so busy
//! probers cost the store nothing, and a store that hangs holds one probe and not one for each of them. Called by the
//! pages of health.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join3};

use crate::auth::Auth;
use crate::auth::store::{AuthStore, TokenHash};
use crate::error::{Error, Kind, Result};
use crate::telemetry::not_done;

/// How long a verdict holds.
const HOLDS: Duration = Duration::from_secs(1);
/// How long a probe may take before the store counts as out of reach.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of the store's reach.
pub struct Reach {
    store: Arc<dyn AuthStore>,
    begun: Arc<Begun>,
    /// Held by a trial write, which may take longer than anybody waits.
    trying: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Option<Probe>>,
}

#[derive(Clone)]
struct Probe {
    started: Instant,
    verdict: Shared<BoxFuture<'static, bool>>,
}

impl Reach {
    /// Of a store of which it is known whether a root token was ever made in it; the first question probes.
    pub fn new(store: Arc<dyn AuthStore>, auth: Arc<Auth>, is_begun: bool) -> Self {
        let begun = Arc::new(Begun { auth, is_known: AtomicBool::new(is_begun) });
        Self { store, begun, trying: Arc::default(), last: Mutex::default() }
    }

    /// Whether the store answers. Waits for the probe under way, but no longer than until that is two
    /// seconds old.
    pub async fn is_within(&self) -> bool {
        let Probe { started, verdict } = self.probe();
        let deadline = started + PATIENCE;
        tokio::time::timeout_at(deadline.into(), verdict).await.unwrap_or(false)
    }

    /// Whether the store did not take the last that was to be written, as far as it is known at this moment.
    pub fn writes_fail(&self) -> bool {
        self.store.writes_fail()
    }

    /// Has a write tried that is not empty, without waiting for it: what was opened on a disk that is full knows nothing
    /// of that yet.
    pub fn try_writing(&self) {
        try_once(&self.store, &self.trying);
    }

    /// Notes that a root token was made a moment ago.
    pub fn begin(&self) {
        self.begun.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether a root token was made in the store, ever; as far as the last probe saw.
    pub async fn is_begun(&self) -> bool {
        self.begun.is_known.load(Ordering::Relaxed) || {
            self.is_within().await;
            self.begun.is_known.load(Ordering::Relaxed)
        }
    }

    /// The probe under way or the last one, while it holds; else a new one.
    fn probe(&self) -> Probe {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match &*last {
            Some(probe) => match probe.verdict.peek() {
                Some(verdict) if probe.started.elapsed() >= HOLDS => *verdict,
                _ => return probe.clone(),
            },
            None => true,
        };
        // A task of its own: it goes on when the request that started it ends.
        let (store, begun, trying) = (Arc::clone(&self.store), Arc::clone(&self.begun), Arc::clone(&self.trying));
        let task = tokio::spawn(async move {
            let verdict = ask(&*store, &begun, before).await;
            if store.writes_fail() {
                try_once(&store, &trying);
            }
            verdict
        });
        let verdict = async move { task.await.unwrap_or(false) }.boxed().shared();
        last.insert(Probe { started: Instant::now(), verdict }).clone()
    }
}

/// Whether the store was ever of any use. Once it was it stays so.
struct Begun {
    auth: Arc<Auth>,
    is_known: AtomicBool,
}

impl Begun {
    async fn look(&self) -> Result<()> {
        if !self.is_known.load(Ordering::Relaxed) && self.auth.is_initialized().await? {
            self.is_known.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Writes nothing and reads a token that nobody has. A full queue tells nothing: the store may be busy
/// or hang, so the verdict `before` stands. Why the store does not answer goes to the log.
async fn ask(store: &dyn AuthStore, begun: &Begun, before: bool) -> bool {
    let answers = |failure: Option<Error>| match failure {
        None => true,
        Some(error) if error.kind() == Kind::Busy => before,
        Some(error) => {
            not_done("the store was not reached", &error);
            false
        }
    };
    let (empty, read) = (store.commit(Vec::new()), store.token(TokenHash::default()));
    let (wrote, read, looked) = join3(empty, read, begun.look()).await;
    [wrote.err(), read.err(), looked.err()].map(answers) == [true; 3]
}

/// Lets a write be tried, unless one is on its way. Its failure is told as every failure of the store.
fn try_once(store: &Arc<dyn AuthStore>, trying: &Arc<tokio::sync::Mutex<()>>) {
    let Ok(turn) = Arc::clone(trying).try_lock_owned() else { return };
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let _turn = turn;
        if let Err(error) = store.try_writing().await
            && error.kind() != Kind::Busy
        {
            not_done("the store takes no writes", &error);
        }
    });
}
