//! A cache of an issuer's published keys.
//!
//! Keys are fresh for an hour, and usable for a day while the issuer is unavailable. The issuer is queried at most once
//! in ten seconds, counted from the end of the last attempt, however many tokens have unknown keys: other logins share
//! the result. Without any usable keys, an attempt includes retries, so that one lost connection does not fail a login.
//! Only a usable key set replaces the cached one.

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

/// Time for which keys are used without a new request.
const FRESH: Duration = Duration::from_secs(3600);
/// Time for which keys are used while the issuer is unavailable.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between the end of an attempt and the next one.
const BETWEEN: Duration = Duration::from_secs(10);
/// Maximum time that a login waits for new keys while older ones are usable.
const PATIENCE: Duration = Duration::from_secs(1);

/// Attempts of one login while there are no keys.
const WITHOUT_KEYS: Tries = Tries {
    more: 2,
    first: Duration::from_millis(200),
    longest: Duration::from_secs(2),
    longest_pause: Duration::from_secs(2),
};

pub(super) struct Cache {
    source: Source,
    outbound: Outbound,
    clock: Clock,
    method: &'static str,
    held: ArcSwapOption<Held>,
    /// Result of the last attempt. The attempt in progress holds the lock.
    last: Arc<Mutex<Option<Attempt>>>,
}

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

    /// Returns keys that may be used now.
    ///
    /// # Errors
    /// `Unavailable` when there are none and none can be fetched.
    pub(super) async fn usable(self: &Arc<Self>) -> Result<Arc<Held>> {
        if let Some(held) = self.within(FRESH) {
            return Ok(held);
        }
        let Some(held) = self.within(STALE) else {
            self.asked(WITHOUT_KEYS).await?;
            return self.within(STALE).ok_or_else(|| Error::internal("keys that were found are not there"));
        };
        // An unresponsive issuer delays logins with known keys only briefly.
        match tokio::time::timeout(PATIENCE, self.asked(Tries::ONE)).await {
            Ok(Ok(())) => Ok(self.within(STALE).unwrap_or(held)),
            Ok(Err(_)) | Err(_) => Ok(held),
        }
    }

    /// Returns a key set that is newer than `than`; `None` if there is none.
    ///
    /// # Errors
    /// `Unavailable` when the current or the last attempt failed.
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

    /// Queries the issuer, or returns the result of a recent attempt. The attempt continues if the caller is cancelled,
    /// because others may wait for it.
    async fn asked(self: &Arc<Self>, tries: Tries) -> Result<()> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        let now = self.clock.now();
        // After the clock was set back, the time of the last attempt is ignored.
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
        // Must not be rejected by the caller's limits, because others wait for the result.
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
