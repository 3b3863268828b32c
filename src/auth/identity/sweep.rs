//! The end of entities that only a login made and that no token is of any more.
//!
//! An entity is kept until some time, and from then on until its last token ends: it is looked at once then, by an
//! index. Tokens that are nowhere stored have it kept until they end ([`Auth::keep_entity`]).

use std::time::Duration;

use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite};
use crate::error::Result;

/// Entities that one step looks at, and steps of one sweep.
const BATCH: u32 = 200;
const STEPS: u32 = 20;
/// An entity with a token is not looked at again before that.
const AGAIN: Duration = Duration::from_secs(3_600);
/// What a token that is just being stored, and clocks that differ, may take.
const GRACE: Duration = Duration::from_secs(300);

impl Auth {
    /// Removes entities that nobody needs, in small batches. To be called again and again; stopping at any point
    /// does no harm.
    pub(crate) async fn sweep_entities(&self) -> Result<()> {
        let now = self.clock.agreed_now()?;
        self.entities.prune(now);
        for _ in 0..STEPS {
            let step = AuthWrite::EntitySweep { now: now - GRACE, again: now + AGAIN, limit: BATCH };
            match self.store.commit(vec![step]).await?.as_slice() {
                // Nobody holds one that went: it had no token.
                [AuthOutcome::Swept(looked)] if *looked == BATCH => {}
                _ => break,
            }
        }
        Ok(())
    }
}
