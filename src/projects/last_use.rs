//! When tokens were last used, and who came for the first time.
//!
//! Written beside the request that says so, never in it, and at most once a minute for each token on each
//! node. The first request of an invited user makes the invitation a membership.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::caller::{Caller, Subject};
use super::tx::Tx;
use crate::clock::Time;
use crate::projects::refusal::Outcome;
use crate::sql::Value;

/// Between two notes of one token.
const BETWEEN: Duration = Duration::from_secs(60);
/// Notes are looked through for old ones when there are this many.
const MANY: usize = 10_000;

/// What this node has noted already: one request notes, and those beside it do not.
#[derive(Clone, Default)]
pub struct Noted(Arc<Mutex<HashMap<i64, Time>>>);

impl Noted {
    /// Whether it is to be noted that a caller's token is in use at `now`.
    pub fn begins(&self, caller: &Caller, now: Time) -> bool {
        self.begins_for(caller.token, caller.last_used, now)
    }

    fn begins_for(&self, token: i64, stored: Option<Time>, now: Time) -> bool {
        let recent = |at: Time| now < at.saturating_add(time::Duration::try_from(BETWEEN).unwrap_or_default());
        if stored.is_some_and(recent) {
            return false;
        }
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(&token).is_some_and(|at| recent(*at)) {
            return false;
        }
        if noted.len() >= MANY {
            noted.retain(|_, at| recent(*at));
        }
        noted.insert(token, now);
        true
    }
}

/// Stores that a caller's token is in use.
///
/// # Errors
/// Those of the store.
pub async fn note(tx: &mut Tx<'_>, caller: &Caller) -> Outcome<()> {
    let used = "UPDATE api_tokens SET last_used_at = $1 WHERE id = $2";
    tx.execute(used, &[tx.now.into(), caller.token.into()]).await?;
    if let (Subject::User { id, .. }, None) = (&caller.subject, caller.last_used) {
        let arrived = "UPDATE organization_memberships SET status = 'active' WHERE user_id = $1 AND status = 'invited'";
        let user: [Value; 1] = [(*id).into()];
        tx.execute(arrived, &user).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_use_is_noted_once_a_minute() {
        let noted = Noted::default();
        let at = datetime!(2026-01-02 03:04:05 UTC);
        let later = |seconds| at + time::Duration::seconds(seconds);
        assert!(noted.begins_for(1, None, at) && !noted.begins_for(1, None, later(59)));
        assert!(noted.begins_for(2, Some(later(-60)), at) && !noted.begins_for(3, Some(later(-59)), at));
        assert!(noted.begins_for(1, Some(at), later(60)));
    }
}
