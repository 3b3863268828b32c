//! A cache of an issuer's published keys.
//!
//! Keys are fresh for an hour, and usable for a day while the issuer is unavailable. The issuer is queried at most once
//! in ten seconds, counted from the end of the last attempt. All logins share the result of an attempt, however many
//! tokens have unknown keys. If no keys are usable, an attempt includes retries, so that one lost connection does not
//! fail a login. Only a key set with a usable key replaces the cached one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;

use super::keys::KeySet;
use super::source::{FetchedKeySet, KeySetSource};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::outbound::{Outbound, RetryPolicy};
use crate::rationing::QueueCaller;
use crate::telemetry;

/// Time for which fetched keys are used without asking the issuer again.
const MAX_FRESH_AGE: Duration = Duration::from_secs(3600);
/// Time for which fetched keys are used while the issuer is unavailable.
const MAX_STALE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between the end of one attempt to fetch keys and the start of the next.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time that a login waits for new keys while older ones are usable.
const MAX_REFRESH_WAIT: Duration = Duration::from_secs(1);

/// Retries of one attempt to fetch keys while there are no usable keys.
const INITIAL_RETRIES: RetryPolicy = RetryPolicy {
    max_retries: 2,
    first_delay: Duration::from_millis(200),
    max_delay: Duration::from_secs(2),
    max_retry_after: Duration::from_secs(2),
};

pub(super) struct KeySetCache {
    source: KeySetSource,
    outbound: Outbound,
    clock: Clock,
    method: &'static str,
    cached: ArcSwapOption<CachedKeySet>,
    /// Result of the last attempt to fetch keys. An attempt in progress holds the lock.
    last: Arc<Mutex<Option<FetchAttempt>>>,
}

pub(super) struct CachedKeySet {
    pub(super) keys: KeySet,
    pub(super) issuer: Option<String>,
    fetched_at: Time,
}

struct FetchAttempt {
    ended: Time,
    outcome: Result<()>,
}

impl KeySetCache {
    pub(super) fn new(source: KeySetSource, outbound: Outbound, method: &'static str, clock: Clock) -> Arc<Self> {
        let cached = ArcSwapOption::empty();
        let last = Arc::default();
        Arc::new(Self { source, outbound, clock, method, cached, last })
    }

    /// Returns the issuer's keys. While the cached keys are fresh, returns them; otherwise fetches the keys. If
    /// fetching fails or takes too long, returns cached keys that are at most a day old.
    ///
    /// # Errors
    /// `Unavailable` when fetching fails and no such keys are cached.
    pub(super) async fn usable_keys(self: &Arc<Self>) -> Result<Arc<CachedKeySet>> {
        if let Some(cached) = self.keys_younger_than(MAX_FRESH_AGE) {
            return Ok(cached);
        }
        let Some(cached) = self.keys_younger_than(MAX_STALE_AGE) else {
            self.refresh(INITIAL_RETRIES).await?;
            return self
                .keys_younger_than(MAX_STALE_AGE)
                .ok_or_else(|| Error::internal("the fetched keys are not cached"));
        };
        // An unresponsive issuer delays logins with known keys only briefly.
        match tokio::time::timeout(MAX_REFRESH_WAIT, self.refresh(RetryPolicy::SINGLE_ATTEMPT)).await {
            Ok(Ok(())) => Ok(self.keys_younger_than(MAX_STALE_AGE).unwrap_or(cached)),
            Ok(Err(_)) | Err(_) => Ok(cached),
        }
    }

    /// Returns a key set that was fetched later than the key set `than`; `None` if the issuer was queried too recently.
    ///
    /// # Errors
    /// `Unavailable` when the current or the last attempt to fetch keys failed.
    pub(super) async fn key_set_newer_than(
        self: &Arc<Self>,
        than: &Arc<CachedKeySet>,
    ) -> Result<Option<Arc<CachedKeySet>>> {
        let differs = |cached: &Arc<CachedKeySet>| !Arc::ptr_eq(cached, than);
        if let Some(cached) = self.keys_younger_than(MAX_FRESH_AGE).filter(differs) {
            return Ok(Some(cached));
        }
        self.refresh(RetryPolicy::SINGLE_ATTEMPT).await?;
        Ok(self.keys_younger_than(MAX_FRESH_AGE).filter(differs))
    }

    fn keys_younger_than(&self, age: Duration) -> Option<Arc<CachedKeySet>> {
        let cached = self.cached.load_full()?;
        (self.clock.now() < cached.fetched_at + age).then_some(cached)
    }

    /// Queries the issuer, or returns the result of an attempt in the last ten seconds. The attempt continues if this
    /// login is cancelled, because other logins may wait for its result.
    async fn refresh(self: &Arc<Self>, tries: RetryPolicy) -> Result<()> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        let now = self.clock.now();
        // If the clock was set back, the last attempt lies in the future and is ignored.
        let shared = last.as_ref().filter(|last| last.ended <= now && now < last.ended + MIN_FETCH_INTERVAL);
        if let Some(attempt) = shared {
            return attempt.outcome.clone();
        }
        let cache = Arc::clone(self);
        let attempt = async move {
            let outcome = cache.source.fetch(&cache.outbound, tries, cache.method).await;
            let outcome = cache.store_outcome(outcome);
            *last = Some(FetchAttempt { ended: cache.clock.now(), outcome: outcome.clone() });
            outcome
        };
        // The caller's limits must not reject the fetch, because other logins wait for its result.
        tokio::spawn(QueueCaller::current().must_run().scope(attempt)).await.map_err(Error::internal)?
    }

    fn store_outcome(&self, outcome: Result<FetchedKeySet>) -> Result<()> {
        let result = if outcome.is_ok() { "done" } else { "failed" };
        metrics::counter!(telemetry::AUTH_KEY_SET_REFRESHES, "result" => result).increment(1);
        let FetchedKeySet { keys, issuer } = outcome.inspect_err(|error| {
            if let Some(why) = telemetry::outage::describe_for_log(error) {
                tracing::warn!(method = self.method, "the issuer's keys cannot be fetched: {why}");
            }
        })?;
        self.cached.store(Some(Arc::new(CachedKeySet { keys, issuer, fetched_at: self.clock.now() })));
        Ok(())
    }
}
