//! The keyring: the data keys that stored values are sealed with, when the next one is made, and the re-sealing of
//! what earlier ones sealed.
//!
//! A data key is good for 2^32 values (random nonces, NIST SP 800-38D 8.3). The next one is made when an operator
//! asks (`sys/rotate`), and by [`Keyring::tick`] when the present one has sealed enough or is old enough
//! ([`Rotation`]). Every node seals with the newest key it knows, and learns of a newer one by the change log or from
//! the first value that it meets; no value becomes unreadable. What earlier keys sealed is sealed again in small
//! steps beside everything else, by any node, and is counted: 0 left means that only the newest key is needed for
//! what the store holds. Tokens that were given away sealed (batch tokens) are not the store's to seal again: earlier
//! keys stay on the ring for them.
//!
//! Owns the settings of rotation, a document of the server. The keys themselves are in `storage`, which implements
//! [`store`]. Called by `http` (`sys/rotate`, `sys/key-status`) and, for the ticks, by the composition root.

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
pub use store::MOST_OPERATIONS;
use store::{DataKey, KeyringStore, Step, settings_key};

/// Between two ticks.
pub const TICK: Duration = Duration::from_secs(10);
/// Between two steps of re-sealing: others come first.
const PAUSE: Duration = Duration::from_millis(10);

/// Fewest values after which a key may be changed by itself.
pub const LEAST_OPERATIONS: u64 = 1_000_000;
/// Shortest age at which a key may be changed by itself.
pub const LEAST_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Longest such age: a hundred years.
const MOST_INTERVAL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// When the next data key is made by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// Whether it is at all; at [`MOST_OPERATIONS`] it is in any case.
    pub enabled: bool,
    /// After how many values.
    pub max_operations: u64,
    /// At which age; zero is never.
    pub interval: Duration,
}

impl Default for Rotation {
    /// After 2^31 values, at no age.
    fn default() -> Self {
        Self { enabled: true, max_operations: 1 << 31, interval: Duration::ZERO }
    }
}

/// What is written over the settings. `None` leaves what stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct RotationChange {
    /// As [`Rotation::enabled`].
    pub enabled: Option<bool>,
    /// As [`Rotation::max_operations`].
    pub max_operations: Option<i64>,
    /// As [`Rotation::interval`].
    pub interval: Option<Duration>,
}

impl Rotation {
    /// These settings with a change.
    ///
    /// # Errors
    /// `Invalid`, naming the field and the rule.
    pub fn changed(mut self, change: RotationChange) -> Result<Self> {
        if let Some(most) = change.max_operations {
            let allowed = u64::try_from(most).ok().filter(|n| (LEAST_OPERATIONS..=MOST_OPERATIONS).contains(n));
            self.max_operations = allowed.ok_or_else(|| {
                Error::invalid(format!("max_operations: must be between {LEAST_OPERATIONS} and {MOST_OPERATIONS}"))
            })?;
        }
        if let Some(interval) = change.interval {
            if !interval.is_zero() && !(LEAST_INTERVAL..=MOST_INTERVAL).contains(&interval) {
                return Err(Error::invalid("interval: must be 0 (never), or between 24 hours and 100 years"));
            }
            // Parts of a second count for the rule, and for nothing else.
            self.interval = Duration::from_secs(interval.as_secs());
        }
        self.enabled = change.enabled.unwrap_or(self.enabled);
        Ok(self)
    }

    /// Whether a key has sealed enough, or is old enough, at an age.
    fn is_due(&self, key: &DataKey, age: Duration) -> bool {
        let by_count = key.sealed >= self.max_operations;
        let by_age = !self.interval.is_zero() && age >= self.interval;
        key.sealed >= MOST_OPERATIONS || self.enabled && (by_count || by_age)
    }
}

/// The keyring of one server.
pub struct Keyring {
    store: Arc<dyn KeyringStore>,
    clock: Clock,
    /// There is something to seal again.
    changed: Notify,
}

impl Keyring {
    /// The keyring of a store.
    pub fn new(store: Arc<dyn KeyringStore>, clock: Clock) -> Self {
        Self { store, clock, changed: Notify::new() }
    }

    /// The key that seals at present.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn status(&self) -> Result<DataKey> {
        self.store.status().await
    }

    /// Adds a data key that seals everything from now on, on every node; returns its term. When another node does so
    /// at the same moment, one key is made.
    ///
    /// # Errors
    /// Those of the store; `Busy` when others change the keys all the time. No key was made then.
    pub async fn rotate(&self) -> Result<u32> {
        let from = self.store.status().await?.term;
        self.rotate_from(from).await
    }

    /// Adds a data key after that of a term, unless there is one by now.
    async fn rotate_from(&self, from: u32) -> Result<u32> {
        let term = self.store.rotate(from).await?;
        tracing::info!(term, "data key rotated");
        gauge!(telemetry::DATA_KEY_TERM).set(term);
        self.changed.notify_one();
        Ok(term)
    }

    /// When the next key is made by itself.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rotation(&self) -> Result<Rotation> {
        Ok(self.stored().await?.0)
    }

    /// Changes that.
    ///
    /// # Errors
    /// `Invalid`, naming field and rule; `Conflict` when somebody else changed it at the same moment; those of the
    /// store.
    pub async fn rotation_write(&self, change: RotationChange) -> Result<()> {
        let (stored, expected) = self.stored().await?;
        let body = serde_json::to_vec(&stored.changed(change)?).map_err(Error::internal)?;
        self.store.write_settings(DocumentWrite { key: settings_key(), expected, body: Some(body) }).await
    }

    /// The settings, and the version of their document.
    async fn stored(&self) -> Result<(Rotation, u64)> {
        let Some(document) = self.store.settings().await? else { return Ok((Rotation::default(), 0)) };
        Ok((document.parse()?, document.version))
    }

    /// Ticks for as long as it is polled.
    pub async fn run(&self) {
        loop {
            let until = Instant::now() + TICK;
            if let Err(error) = self.tick().await {
                telemetry::not_done("the data keys were not looked after and are soon", &error);
            } else if let Err(error) = self.re_seal(until).await {
                telemetry::not_done("re-sealing of stored values stopped and goes on soon", &error);
            }
            let _ = tokio::time::timeout_at(until.into(), self.changed.notified()).await;
        }
    }

    /// Notes what was sealed, makes the next key when it is due, and measures.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn tick(&self) -> Result<()> {
        self.store.note_use().await?;
        let mut key = self.store.status().await?;
        let age = Duration::try_from(self.clock.now() - key.made_at).unwrap_or_default();
        if self.clock.is_agreed() && self.rotation().await?.is_due(&key, age) {
            self.rotate_from(key.term).await?;
            key = self.store.status().await?;
        }
        let age = Duration::try_from(self.clock.now() - key.made_at).unwrap_or_default();
        gauge!(telemetry::DATA_KEY_TERM).set(key.term);
        gauge!(telemetry::DATA_KEY_AGE_SECONDS).set(age.as_secs_f64());
        if let Some(older) = key.older {
            gauge!(telemetry::DATA_KEY_OLDER_VALUES).set(older as f64);
        }
        Ok(())
    }

    /// Takes steps of re-sealing until there is nothing to do, or it is late.
    ///
    /// # Errors
    /// Those of the store; what was done stays done.
    async fn re_seal(&self, until: Instant) -> Result<()> {
        while Instant::now() < until && self.store.re_seal().await? == Step::More {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
