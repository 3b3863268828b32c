//! The ends of tokens: revocation, and the removal of what has expired or is used up.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::batch::cannot_be;
use super::{hash_of, is_batch};
use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite, TokenHash};
use crate::error::{Error, Result};

/// Tokens that one step of a sweep removes, and steps of one sweep.
const SWEEP_BATCH: u32 = 500;
const SWEEP_STEPS: u32 = 20;

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
            Some(hash) => self.forget(&self.store.commit(vec![AuthWrite::TokenRevokeAlone(hash)]).await?),
            None => false,
        };
        if ended { Ok(()) } else { Err(Error::invalid("token to revoke not found")) }
    }

    /// Ends the token with this accessor, and its descendants; whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn revoke_accessor(&self, accessor: &str) -> Result<bool> {
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

    async fn revoke_hash(&self, hash: TokenHash) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(hash)]).await?;
        Ok(self.forget(&outcomes))
    }

    /// Drops revoked tokens from the cache; whether there were any.
    pub(super) fn forget(&self, outcomes: &[AuthOutcome]) -> bool {
        let revoked = outcomes.iter().filter_map(|outcome| match outcome {
            AuthOutcome::Revoked(hashes) if !hashes.is_empty() => Some(hashes),
            _ => None,
        });
        revoked.fold(false, |_, hashes| {
            self.tokens.remove(hashes);
            true
        })
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
