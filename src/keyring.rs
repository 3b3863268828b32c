//! The keyring: the data keys that seal stored values, their rotation, and re-sealing under the newest key.
//!
//! A data key may seal 2^32 values, because nonces are random (NIST SP 800-38D 8.3). A new key is created on request
//! (`sys/rotate`), or by [`Keyring::tick`] when the current one is used up or too old ([`RotationSettings`]). Each node
//! seals with the newest key that it knows, and loads newer ones when the change log or a sealed value names them.
//! Values sealed with older keys are re-sealed in small steps and counted. Older keys are kept, because clients hold
//! batch tokens, which are sealed values that the server does not store.

pub mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::gauge;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::documents::DocumentWrite;
use crate::error::{Error, Result};
use crate::telemetry;
pub use store::MAX_KEY_OPERATIONS;
use store::{DataKey, KeyringStore, ResealOutcome, rotation_settings_key};

/// Interval of [`Keyring::tick`].
pub const TICK_INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two steps of re-sealing. During it, the store serves other requests.
const RESEAL_PAUSE: Duration = Duration::from_millis(10);

/// Minimum value of [`RotationSettings::max_operations`].
pub const MIN_ROTATION_OPERATIONS: u64 = 1_000_000;
/// Minimum value of [`RotationSettings::interval`], except zero (never).
pub const MIN_ROTATION_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Maximum value of [`RotationSettings::interval`]: a hundred years.
const MAX_ROTATION_INTERVAL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Settings of the automatic rotation of data keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationSettings {
    /// `true` to rotate automatically. A key that has sealed [`MAX_KEY_OPERATIONS`] values is rotated in any case.
    pub enabled: bool,
    /// Number of sealed values after which a data key is rotated.
    pub max_operations: u64,
    /// Age at which a data key is rotated; zero for never.
    pub interval: Duration,
}

impl Default for RotationSettings {
    /// Rotates a data key after 2^31 sealed values, and never because of its age.
    fn default() -> Self {
        Self { enabled: true, max_operations: 1 << 31, interval: Duration::ZERO }
    }
}

/// A change of the [`RotationSettings`]; a field that is `None` keeps its current value.
#[derive(Clone, Copy, Debug, Default)]
pub struct RotationChange {
    /// New value of [`RotationSettings::enabled`].
    pub enabled: Option<bool>,
    /// New value of [`RotationSettings::max_operations`].
    pub max_operations: Option<i64>,
    /// New value of [`RotationSettings::interval`].
    pub interval: Option<Duration>,
}

impl RotationSettings {
    /// Returns these settings with `change` applied.
    ///
    /// # Errors
    /// `Invalid` with the name of the field and its limits.
    pub fn with_change(mut self, change: RotationChange) -> Result<Self> {
        if let Some(max) = change.max_operations {
            let allowed =
                u64::try_from(max).ok().filter(|n| (MIN_ROTATION_OPERATIONS..=MAX_KEY_OPERATIONS).contains(n));
            self.max_operations = allowed.ok_or_else(|| {
                Error::invalid(format!(
                    "max_operations: must be between {MIN_ROTATION_OPERATIONS} and {MAX_KEY_OPERATIONS}"
                ))
            })?;
        }
        if let Some(interval) = change.interval {
            if !interval.is_zero() && !(MIN_ROTATION_INTERVAL..=MAX_ROTATION_INTERVAL).contains(&interval) {
                return Err(Error::invalid("interval: must be 0 (never), or between 24 hours and 100 years"));
            }
            // The limits apply to the exact interval, but only whole seconds are stored.
            self.interval = Duration::from_secs(interval.as_secs());
        }
        self.enabled = change.enabled.unwrap_or(self.enabled);
        Ok(self)
    }

    /// Returns `true` if a key of this age must be rotated, according to these settings or because it is used up.
    fn is_due(&self, key: &DataKey, age: Duration) -> bool {
        let by_count = key.sealed >= self.max_operations;
        let by_age = !self.interval.is_zero() && age >= self.interval;
        key.sealed >= MAX_KEY_OPERATIONS || self.enabled && (by_count || by_age)
    }
}

/// Rotates the data keys of a store, and re-seals values that are sealed with older keys.
pub struct Keyring {
    store: Arc<dyn KeyringStore>,
    clock: Clock,
    /// Notified after a rotation, when stored values must be re-sealed under the new key.
    reseal_needed: Notify,
}

impl Keyring {
    /// Creates the keyring of a store.
    pub fn new(store: Arc<dyn KeyringStore>, clock: Clock) -> Self {
        Self { store, clock, reseal_needed: Notify::new() }
    }

    /// Returns the current data key.
    ///
    /// # Errors
    /// Store errors.
    pub async fn status(&self) -> Result<DataKey> {
        self.store.status().await
    }

    /// Creates a data key, with which all nodes seal new values from now on, and returns its term (number). Concurrent
    /// calls create a single key.
    ///
    /// # Errors
    /// Store errors; `Busy` when other nodes keep changing the keys, and then no key was created.
    pub async fn rotate(&self) -> Result<u32> {
        let from = self.store.status().await?.term;
        self.rotate_from(from).await
    }

    /// Creates a data key, unless a data key with a higher term than `from` exists already. Returns the current term.
    async fn rotate_from(&self, from: u32) -> Result<u32> {
        let term = self.store.rotate(from).await?;
        tracing::info!(term, "data key rotated");
        gauge!(telemetry::DATA_KEY_TERM).set(term);
        self.reseal_needed.notify_one();
        Ok(term)
    }

    /// Returns the settings of automatic rotation.
    ///
    /// # Errors
    /// Store errors.
    pub async fn rotation_settings(&self) -> Result<RotationSettings> {
        Ok(self.stored_settings().await?.0)
    }

    /// Changes the settings of automatic rotation.
    ///
    /// # Errors
    /// `Invalid` with the name of the field and its limits; `Conflict` when they are changed concurrently; store
    /// errors.
    pub async fn write_rotation_settings(&self, change: RotationChange) -> Result<()> {
        let (stored, expected) = self.stored_settings().await?;
        let body = serde_json::to_vec(&stored.with_change(change)?).map_err(Error::internal)?;
        self.store.write_settings(DocumentWrite { key: rotation_settings_key(), expected, body: Some(body) }).await
    }

    /// Returns the stored settings and the version of their document; the default settings and 0 if there is none.
    async fn stored_settings(&self) -> Result<(RotationSettings, u64)> {
        let Some(document) = self.store.settings().await? else { return Ok((RotationSettings::default(), 0)) };
        Ok((document.parse()?, document.version))
    }

    /// Runs [`Keyring::tick`] at every interval, and re-seals old values in between, until the future is dropped.
    pub async fn run(&self) {
        loop {
            let until = Instant::now() + TICK_INTERVAL;
            if let Err(error) = self.tick().await {
                telemetry::warn_task_failed("data key maintenance failed; it is retried", &error);
            } else if let Err(error) = self.re_seal(until).await {
                telemetry::warn_task_failed("re-sealing of stored values failed; it is retried", &error);
            }
            let _ = tokio::time::timeout_at(until.into(), self.reseal_needed.notified()).await;
        }
    }

    /// Stores how many values the current data key has sealed, rotates the key if it is due, and updates the metrics.
    ///
    /// # Errors
    /// Store errors.
    pub async fn tick(&self) -> Result<()> {
        self.store.record_use().await?;
        let mut key = self.store.status().await?;
        let age = Duration::try_from(self.clock.now() - key.created_at).unwrap_or_default();
        if self.clock.is_synchronized() && self.rotation_settings().await?.is_due(&key, age) {
            self.rotate_from(key.term).await?;
            key = self.store.status().await?;
        }
        let age = Duration::try_from(self.clock.now() - key.created_at).unwrap_or_default();
        gauge!(telemetry::DATA_KEY_TERM).set(key.term);
        gauge!(telemetry::DATA_KEY_AGE_SECONDS).set(age.as_secs_f64());
        if let Some(older) = key.older {
            gauge!(telemetry::DATA_KEY_OLDER_VALUES).set(older as f64);
        }
        Ok(())
    }

    /// Re-seals values that are sealed with older keys, until the store has no more work for this node or `until` is
    /// reached.
    ///
    /// # Errors
    /// Store errors; completed steps are kept.
    async fn re_seal(&self, until: Instant) -> Result<()> {
        while Instant::now() < until && self.store.re_seal().await? == ResealOutcome::More {
            tokio::time::sleep(RESEAL_PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
