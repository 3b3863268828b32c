//! Sweeping secret ids that have ended: by their time, or with their role. They are dead before that.

use crate::auth::Auth;
use crate::error::Result;

/// Rows that one step removes, and steps of one sweep.
const BATCH: u32 = 500;
const STEPS: u32 = 100;

impl Auth {
    /// Removes secret ids that have ended, of every mount, in small batches; how many went. To be called again and
    /// again; stopping at any point does no harm.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn sweep_secret_ids(&self) -> Result<u32> {
        let mut removed = 0;
        for _ in 0..STEPS {
            match self.store.sweep_secret_ids(self.clock.agreed_now()?, BATCH).await? {
                0 => break,
                count => removed += count,
            }
        }
        Ok(removed)
    }
}
