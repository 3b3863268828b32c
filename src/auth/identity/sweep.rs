//! Removal of entities that only a login created and that have no token.
//!
//! An index finds the entities whose `kept_until` is due. An entity that has tokens is checked again when the last
//! token ends. Tokens that are not stored postpone the check until they end ([`Auth::postpone_entity_removal`]).

use std::time::Duration;

use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite};
use crate::error::Result;

/// Entities checked in one step.
const ENTITIES_PER_STEP: u32 = 200;
/// Steps of one sweep.
const STEPS_PER_SWEEP: u32 = 20;
/// Minimum time until an entity with tokens is checked again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(3_600);
/// Allowance for tokens that are being stored, and for clocks that differ.
const REMOVAL_GRACE: Duration = Duration::from_secs(300);

impl Auth {
    /// Removes unused entities in small batches. Called periodically; safe to cancel.
    pub(crate) async fn sweep_entities(&self) -> Result<()> {
        let now = self.clock.synchronized_now()?;
        self.entities.prune(now);
        for _ in 0..STEPS_PER_SWEEP {
            let step = AuthWrite::EntitySweep {
                now: now - REMOVAL_GRACE,
                again: now + RECHECK_INTERVAL,
                limit: ENTITIES_PER_STEP,
            };
            match self.store.commit(vec![step]).await?.as_slice() {
                // Removed entities had no token, so no caller holds them and the cache needs no mark.
                [AuthOutcome::Swept(looked)] if *looked == ENTITIES_PER_STEP => {}
                _ => break,
            }
        }
        Ok(())
    }
}
