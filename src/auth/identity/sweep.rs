//! Removal of unused entities: an entity is removed if a login created it, no operator has changed it, and no token
//! uses it.
//!
//! An index finds the entities whose `kept_until` has passed. An entity that still has tokens is checked again later.
//! Batch tokens are not stored, so they postpone the check until they end ([`Auth::postpone_entity_removal`]).

use std::time::Duration;

use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite};
use crate::error::Result;

/// Maximum number of entities checked in one commit of a sweep.
const MAX_ENTITIES_PER_COMMIT: u32 = 200;
/// Maximum number of commits of one sweep.
const MAX_COMMITS_PER_SWEEP: u32 = 20;
/// Time until an entity that still has tokens is checked again.
const ENTITY_RECHECK_INTERVAL: Duration = Duration::from_secs(3_600);
/// Time for which an entity is kept after its `kept_until`, because a login may still be storing the entity's token,
/// and the clocks of the nodes may differ.
const ENTITY_REMOVAL_GRACE: Duration = Duration::from_secs(300);

impl Auth {
    /// Removes unused entities in small batches. Called periodically; safe to cancel at any await point.
    pub(crate) async fn sweep_entities(&self) -> Result<()> {
        let now = self.clock.synchronized_now()?;
        self.entities.prune(now);
        for _ in 0..MAX_COMMITS_PER_SWEEP {
            let step = AuthWrite::EntitySweep {
                now: now - ENTITY_REMOVAL_GRACE,
                again: now + ENTITY_RECHECK_INTERVAL,
                limit: MAX_ENTITIES_PER_COMMIT,
            };
            match self.store.commit(vec![step]).await?.as_slice() {
                // No token used the removed entities, so no cached caller refers to them, and they are not marked as
                // changed in the cache.
                [AuthOutcome::Swept(looked)] if *looked == MAX_ENTITIES_PER_COMMIT => {}
                _ => break,
            }
        }
        Ok(())
    }
}
