//! The last use of tokens, and the activation of invited users.
//!
//! A use is recorded in a separate store session, at most once a minute per token and node. The first request of an
//! invited user activates the user's memberships.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::caller::{ProjectsCaller, TokenSubject};
use super::tx::Tx;
use crate::clock::Time;
use crate::projects::rejection::WorkResult;
use crate::sql::SqlValue;

/// Minimum interval between two recorded uses of one token.
const MIN_RECORD_INTERVAL: Duration = Duration::from_secs(60);
/// Number of tokens in memory that triggers the removal of tokens without a recorded use in the last minute.
const PRUNE_THRESHOLD: usize = 10_000;

/// The time of the last recorded use of each token on this node. Of several concurrent requests with a token, only one
/// records the use.
#[derive(Clone, Default)]
pub struct RecentTokenUses(Arc<Mutex<HashMap<i64, Time>>>);

impl RecentTokenUses {
    /// Returns `true`, and marks the token as recorded, if its use at `now` must be recorded.
    pub fn should_record(&self, caller: &ProjectsCaller, now: Time) -> bool {
        self.should_record_at(caller.token, caller.last_used, now)
    }

    fn should_record_at(&self, token: i64, stored: Option<Time>, now: Time) -> bool {
        let recent =
            |at: Time| now < at.saturating_add(time::Duration::try_from(MIN_RECORD_INTERVAL).unwrap_or_default());
        if stored.is_some_and(recent) {
            return false;
        }
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(&token).is_some_and(|at| recent(*at)) {
            return false;
        }
        if noted.len() >= PRUNE_THRESHOLD {
            noted.retain(|_, at| recent(*at));
        }
        noted.insert(token, now);
        true
    }
}

/// Stores the time of the last use of a caller's token. Activates the user's memberships on the first use.
///
/// # Errors
/// Those of the store.
pub async fn record_use(tx: &mut Tx<'_>, caller: &ProjectsCaller) -> WorkResult<()> {
    let update = "UPDATE api_tokens SET last_used_at = $1 WHERE id = $2";
    tx.execute(update, &[tx.now.into(), caller.token.into()]).await?;
    if let (TokenSubject::User { id, .. }, None) = (&caller.subject, caller.last_used) {
        let activate =
            "UPDATE organization_memberships SET status = 'active' WHERE user_id = $1 AND status = 'invited'";
        let user: [SqlValue; 1] = [(*id).into()];
        tx.execute(activate, &user).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn last_use_is_recorded_once_a_minute() {
        let noted = RecentTokenUses::default();
        let at = datetime!(2026-01-02 03:04:05 UTC);
        let later = |seconds| at + time::Duration::seconds(seconds);
        assert!(noted.should_record_at(1, None, at) && !noted.should_record_at(1, None, later(59)));
        assert!(noted.should_record_at(2, Some(later(-60)), at) && !noted.should_record_at(3, Some(later(-59)), at));
        assert!(noted.should_record_at(1, Some(at), later(60)));
    }
}
