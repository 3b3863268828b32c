//! Deletes secret ids that have expired or whose role was deleted. They are already unusable.

use crate::auth::Auth;
use crate::error::Result;

/// Rows deleted in one step.
const SECRET_IDS_PER_STEP: u32 = 500;
/// Steps of one sweep.
const STEPS_PER_SWEEP: u32 = 100;

impl Auth {
    /// Deletes ended secret ids of all mounts in batches; returns their number. Called periodically; safe to cancel.
    ///
    /// # Errors
    /// Store errors.
    pub(crate) async fn sweep_secret_ids(&self) -> Result<u32> {
        let mut removed = 0;
        for _ in 0..STEPS_PER_SWEEP {
            match self.store.sweep_secret_ids(self.clock.synchronized_now()?, SECRET_IDS_PER_STEP).await? {
                0 => break,
                count => removed += count,
            }
        }
        Ok(removed)
    }
}
