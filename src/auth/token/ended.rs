//! The ends of tokens: revocation, and the removal of what has expired or is used up.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::batch::{cannot_be, is_batch};
use super::text::hash_of;
use crate::auth::Auth;
use crate::auth::store::{AT_ONCE, AuthOutcome, AuthWrite, Revoked, TokenHash};
use crate::error::{Error, Result};

/// Tokens that one step of a sweep removes, and steps of one sweep.
const SWEEP_BATCH: u32 = 500;
const SWEEP_STEPS: u32 = 20;
/// When a sweep has removed so many tokens, there may be more.
pub const MOST_SWEPT: u32 = SWEEP_BATCH * SWEEP_STEPS;

impl Auth {
    /// Ends a token and all its descendants; whether there was one.
    ///
    /// # Errors
    /// `Invalid` for a batch token; those of the store.
    pub async fn revoke(&self, token: &str) -> Result<bool> {
        match self.stored(token).await? {
            Some(hash) => self.revoke_hash(hash).await,
            None => Ok(false),
        }
    }

    /// Ends a token; those that it made live on without a parent. Those of a login still end with its method.
    ///
    /// # Errors
    /// `Invalid` for a batch token, and when there is no such token; those of the store.
    pub async fn revoke_orphan(&self, token: &str) -> Result<()> {
        let ended = match self.stored(token).await? {
            Some(hash) => self.forget(self.store.commit(vec![AuthWrite::TokenRevokeAlone(hash)]).await?).0 > 0,
            None => false,
        };
        if ended { Ok(()) } else { Err(Error::invalid("token to revoke not found")) }
    }

    /// Ends the token with this accessor, and its descendants; whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn revoke_accessor(&self, accessor: &str) -> Result<bool> {
        let Some(hash) = hash_of(accessor) else { return Ok(false) };
        match self.store.token_by_accessor(hash).await? {
            // Of one without use there may be descendants that somebody has begun to end.
            Some(row) if self.is_live(&row) || row.uses == Some(0) => self.revoke_hash(row.hash).await,
            _ => Ok(false),
        }
    }

    /// Under which hash a token would be stored, if any.
    async fn stored(&self, token: &str) -> Result<Option<TokenHash>> {
        if !is_batch(token) {
            return Ok(hash_of(token));
        }
        match self.open_batch(token).await? {
            Some(_) => Err(cannot_be("revoked")),
            None => Ok(None),
        }
    }

    async fn revoke_hash(&self, hash: TokenHash) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(vec![hash])]).await?;
        let (ended, left) = self.forget(outcomes);
        self.revoke_rest(left).await?;
        Ok(ended > 0)
    }

    /// Ends what a revocation has left, and waits for those that are going on: some of the descendants may be theirs.
    ///
    /// # Errors
    /// Those of the store; sweeps go on then.
    pub(super) async fn revoke_rest(&self, left: Vec<TokenHash>) -> Result<()> {
        let _alone = self.ending.lock().await;
        self.revoke_all(left).await.map(drop)
    }

    /// Ends tokens and their descendants, a few in each commit: others commit in between. How many went.
    async fn revoke_all(&self, mut left: Vec<TokenHash>) -> Result<usize> {
        let mut gone = 0;
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(AT_ONCE));
            let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(some)]).await?;
            let (ended, more) = self.forget(outcomes);
            gone += ended - more.len();
            left.extend(more);
        }
        Ok(gone)
    }

    /// Drops revoked tokens from the cache: how many have ended, and those of them whose descendants have not.
    pub(super) fn forget(&self, outcomes: Vec<AuthOutcome>) -> (usize, Vec<TokenHash>) {
        let (mut ended, mut all_left) = (0, Vec::new());
        for outcome in outcomes {
            let AuthOutcome::Revoked(Revoked { gone, left }) = outcome else { continue };
            self.tokens.remove(&gone);
            self.tokens.remove(&left);
            ended += gone.len() + left.len();
            all_left.extend(left);
        }
        (ended, all_left)
    }

    /// Removes tokens that have expired or are used up, in small batches, policies that have expired, and entities
    /// that nobody needs; returns how many tokens went. To be called again and again; stopping at any point does no harm.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sweep(&self) -> Result<u32> {
        let now = self.clock.agreed_now()?;
        self.tokens.prune(now);
        self.sweep_policies().await?;
        self.sweep_quotas().await?;
        let mut removed: usize = 0;
        for _ in 0..SWEEP_STEPS {
            // Whoever has begun to end some has ended all of them first.
            let _no_revocation = self.ending.lock().await;
            let Revoked { gone, left } = self.store.sweep_tokens(now, SWEEP_BATCH).await?;
            let is_last = gone.len() < SWEEP_BATCH as usize && left.is_empty();
            removed += gone.len() + self.revoke_all(left).await?;
            if is_last {
                break;
            }
        }
        if removed > 0 {
            // Descendants that have not expired themselves went with them: forget everything.
            self.tokens.clear();
        }
        self.sweep_entities().await?;
        Ok(u32::try_from(removed).unwrap_or(u32::MAX))
    }

    /// The place of the one tidy that is asked for at a time; `None` while one runs.
    pub fn tidying(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.tidying).try_lock_owned().ok()
    }
}
