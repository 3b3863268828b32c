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
    pub async fn revoke(self: &Arc<Self>, token: &str) -> Result<bool> {
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
            Some(hash) => self.forget(self.store.commit(vec![AuthWrite::TokenRevokeAlone(hash)]).await?).0,
            None => false,
        };
        if ended { Ok(()) } else { Err(Error::invalid("token to revoke not found")) }
    }

    /// Ends the token with this accessor, and its descendants; whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn revoke_accessor(self: &Arc<Self>, accessor: &str) -> Result<bool> {
        match self.row_by_accessor(accessor).await? {
            Some(row) => self.revoke_hash(row.hash).await,
            None => Ok(false),
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

    async fn revoke_hash(self: &Arc<Self>, hash: TokenHash) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(vec![hash])]).await?;
        let (found, left) = self.forget(outcomes);
        self.revoke_rest(left).await?;
        Ok(found)
    }

    /// Ends the descendants that a revocation has left, a few in each commit: others commit in between. Goes on when
    /// nobody waits for it any more.
    ///
    /// # Errors
    /// Those of the store; sweeps go on then.
    pub(super) async fn revoke_rest(self: &Arc<Self>, mut left: Vec<TokenHash>) -> Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        let auth = Arc::clone(self);
        let rest = async move {
            while !left.is_empty() {
                let some = left.split_off(left.len().saturating_sub(AT_ONCE));
                let outcomes = auth.store.commit(vec![AuthWrite::TokenRevoke(some)]).await?;
                left.extend(auth.forget(outcomes).1);
            }
            Ok(())
        };
        tokio::spawn(rest).await.map_err(Error::internal)?
    }

    /// Drops revoked tokens from the cache: whether there were any, and those whose descendants have not all ended.
    pub(super) fn forget(&self, outcomes: Vec<AuthOutcome>) -> (bool, Vec<TokenHash>) {
        let (mut any, mut all_left) = (false, Vec::new());
        for outcome in outcomes {
            let AuthOutcome::Revoked(Revoked { gone, left }) = outcome else { continue };
            any |= !gone.is_empty() || !left.is_empty();
            self.tokens.remove(&gone);
            self.tokens.remove(&left);
            all_left.extend(left);
        }
        (any, all_left)
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
        let mut removed = 0;
        for _ in 0..SWEEP_STEPS {
            let batch = self.store.sweep_tokens(now, SWEEP_BATCH).await?;
            removed += batch;
            if batch < SWEEP_BATCH {
                break;
            }
        }
        if removed > 0 {
            // Descendants that have not expired themselves went with them: forget everything.
            self.tokens.clear();
        }
        self.sweep_entities().await?;
        Ok(removed)
    }

    /// The place of the one tidy that is asked for at a time; `None` while one runs.
    pub fn tidying(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.tidying).try_lock_owned().ok()
    }
}
