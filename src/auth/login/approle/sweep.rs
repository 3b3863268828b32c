//! Deletes secret ids that have expired or whose role was deleted. Logins already reject them.

use crate::auth::Auth;
use crate::error::Result;

/// Maximum number of expired secret ids that one commit deletes. The same maximum applies separately to the secret ids
/// of deleted roles.
const MAX_SECRET_IDS_PER_COMMIT: u32 = 500;
/// Maximum number of commits of one sweep.
const MAX_COMMITS_PER_SWEEP: u32 = 100;

impl Auth {
    /// Deletes secret ids in all mounts, in batches: those that have expired, and those whose role was deleted. Returns
    /// the number of deleted secret ids. Called periodically; safe to cancel.
    ///
    /// # Errors
    /// Store errors.
    pub(crate) async fn sweep_secret_ids(&self) -> Result<u32> {
        let mut removed = 0;
        for _ in 0..MAX_COMMITS_PER_SWEEP {
            match self.store.sweep_secret_ids(self.clock.synchronized_now()?, MAX_SECRET_IDS_PER_COMMIT).await? {
                0 => break,
                count => removed += count,
            }
        }
        Ok(removed)
    }
}
