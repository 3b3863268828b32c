//! The published keys of an issuer, as they were last found.
//!
//! Found keys are fresh for an hour, and used for a day while nobody can be asked. The issuer is asked at most every
//! ten seconds, counted from the end of the attempt before, however many tokens come with keys that nobody knows:
//! who needs an answer meanwhile shares the one there was. While there are no keys at all an attempt is repeated within the
//! login, so that one lost connection refuses nobody. What is found replaces the keys only where it can be used.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;

use super::keys::KeySet;
use super::source::{Found, Source};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::outbound::{Outbound, Tries};
use crate::telemetry;
use crate::turns::Caller;

/// How long keys are used without asking again.
const FRESH: Duration = Duration::from_secs(3600);
/// How long keys are used while the issuer cannot be asked.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// How long after an attempt the next one begins at the earliest.
const BETWEEN: Duration = Duration::from_secs(10);
/// How long a login waits for new keys while older ones may be used.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the issuer is asked within one login while there are no keys.
const WITHOUT_KEYS: Tries = Tries {
    more: 2,
    first: Duration::from_millis(200),
    longest: Duration::from_secs(2),
    longest_pause: Duration::from_secs(2),
};

/// The keys of one issuer.
pub(super) struct Cache {
    source: Source,
    outbound: Outbound,
    clock: Clock,
    /// The method, for texts.
    method: &'static str,
    held: ArcSwapOption<Held>,
    /// How the last attempt ended; held by the attempt that is under way.
    last: Arc<Mutex<Option<Attempt>>>,
}

/// Keys that were found.
pub(super) struct Held {
    pub(super) keys: KeySet,
    pub(super) issuer: Option<String>,
    at: Time,
}

struct Attempt {
    ended: Time,
    outcome: Result<()>,
}

impl Cache {
    pub(super) fn new(source: Source, outbound: Outbound, method: &'static str, clock: Clock) -> Arc<Self> {
        let (held, last) = (ArcSwapOption::empty(), Arc::default());
        Arc::new(Self { source, outbound, clock, method, held, last })
    }

    /// Keys that may be used now.
    ///
    /// # Errors
    /// `Unavailable` when there are none, and none can be had.
    pub(super) async fn usable(self: &Arc<Self>) -> Result<Arc<Held>> {
        if let Some(held) = self.within(FRESH) {
            return Ok(held);
        }
        let Some(held) = self.within(STALE) else {
            self.asked(WITHOUT_KEYS).await?;
            return self.within(STALE).ok_or_else(|| Error::internal("keys that were found are not there"));
        };
        // An issuer that is silent holds up nobody whose key is known, for longer than an answer should take.
        match tokio::time::timeout(PATIENCE, self.asked(Tries::ONE)).await {
            Ok(Ok(())) => Ok(self.within(STALE).unwrap_or(held)),
            Ok(Err(_)) | Err(_) => Ok(held),
        }
    }

    /// Keys that are newer than those in which something was not found; `None` when there are none.
    ///
    /// # Errors
    /// `Unavailable` when the issuer was asked in vain, now or a moment ago.
    pub(super) async fn newer(self: &Arc<Self>, than: &Arc<Held>) -> Result<Option<Arc<Held>>> {
        let differs = |held: &Arc<Held>| !Arc::ptr_eq(held, than);
        if let Some(held) = self.within(FRESH).filter(differs) {
            return Ok(Some(held));
        }
        self.asked(Tries::ONE).await?;
        Ok(self.within(FRESH).filter(differs))
    }

    fn within(&self, age: Duration) -> Option<Arc<Held>> {
        let held = self.held.load_full()?;
        (self.clock.now() < held.at + age).then_some(held)
    }

    /// Asks the issuer, or takes the outcome of whoever did a moment ago. The attempt goes on when its caller has
    /// left: others may wait for it.
    async fn asked(self: &Arc<Self>, tries: Tries) -> Result<()> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        let now = self.clock.now();
        // A clock that was set back makes nobody wait.
        let shared = last.as_ref().filter(|last| last.ended <= now && now < last.ended + BETWEEN);
        if let Some(attempt) = shared {
            return attempt.outcome.clone();
        }
        let own = Arc::clone(self);
        let attempt = async move {
            let outcome = own.source.find(&own.outbound, tries, own.method).await;
            let outcome = own.take(outcome);
            *last = Some(Attempt { ended: own.clock.now(), outcome: outcome.clone() });
            outcome
        };
        // Others wait for it, so it is not refused for its caller.
        tokio::spawn(Caller::current().must_run().scope(attempt)).await.map_err(Error::internal)?
    }

    fn take(&self, outcome: Result<Found>) -> Result<()> {
        let result = if outcome.is_ok() { "done" } else { "failed" };
        metrics::counter!(telemetry::AUTH_KEY_SET_REFRESHES, "result" => result).increment(1);
        let Found { keys, issuer } = outcome.inspect_err(|error| {
            if let Some(why) = telemetry::outage::told(error) {
                tracing::warn!(method = self.method, "the keys of an issuer could not be had: {why}");
            }
        })?;
        self.held.store(Some(Arc::new(Held { keys, issuer, at: self.clock.now() })));
        Ok(())
    }
}
