//! Revocation of tokens, and the sweep that deletes expired and used-up tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::batch::{is_batch, unsupported_for_batch};
use super::encoding::hash_of;
use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite, MAX_TOKENS_PER_REVOCATION, RevokedTokens, TokenHash};
use crate::error::{Error, Result};

/// Maximum number of expired tokens that one step of a sweep deletes. The same maximum applies separately to used-up
/// tokens.
const TOKENS_PER_SWEEP_STEP: u32 = 500;
/// Maximum number of steps of one sweep.
const STEPS_PER_SWEEP: u32 = 20;
/// If a sweep deleted at least this many tokens, there may be more to delete.
pub const MAX_TOKENS_PER_SWEEP: u32 = TOKENS_PER_SWEEP_STEP * STEPS_PER_SWEEP;

/// Interval at which a revocation checks if concurrent revocations are finished.
const REVOCATION_POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct RevocationResult {
    /// Number of deleted tokens, plus the number of tokens in `left`.
    ended_count: usize,
    /// Tokens that are not deleted yet and must be revoked again.
    left: Vec<TokenHash>,
    /// `true` if some descendants were already marked as used up, perhaps by a concurrent revocation.
    met: bool,
}

impl Auth {
    /// Revokes the token with this text, and all its descendants. Returns `true` if the token existed.
    ///
    /// # Errors
    /// `Invalid` for a batch token; store errors.
    pub async fn revoke(&self, token: &str) -> Result<bool> {
        match self.stored_token_hash(token).await? {
            Some(hash) => self.revoke_hash(hash).await,
            None => Ok(false),
        }
    }

    /// Revokes a token, and makes its children orphans instead of revoking them. Children that descend from a login are
    /// still revoked when the login's mount is disabled.
    ///
    /// # Errors
    /// `Invalid` for a batch token and an unknown token; store errors.
    pub async fn revoke_orphan(&self, token: &str) -> Result<()> {
        let unknown = || Error::invalid("token to revoke not found");
        let hash = self.stored_token_hash(token).await?.ok_or_else(unknown)?;
        loop {
            let ended = self.evict_revoked(self.store.commit(vec![AuthWrite::TokenRevokeAlone(hash)]).await?);
            match (ended.ended_count, ended.left.is_empty()) {
                (0, _) => return Err(unknown()),
                (_, true) => return Ok(()),
                // The token has more children than one commit processes, so the write is repeated.
                (_, false) => {}
            }
        }
    }

    /// Revokes the token with this accessor, and its descendants. Returns `true` if the token existed.
    ///
    /// # Errors
    /// Store errors.
    pub async fn revoke_accessor(&self, accessor: &str) -> Result<bool> {
        let Some(hash) = hash_of(accessor) else { return Ok(false) };
        match self.store.token_by_accessor(hash).await? {
            // A used-up token is revoked too: an unfinished revocation may have marked it, and then it still has
            // descendants.
            Some(row) if self.is_live(&row) || row.uses == Some(0) => self.revoke_hash(row.hash).await,
            _ => Ok(false),
        }
    }

    /// Returns the hash of a token text; the token may not exist. Returns `None` for a batch token that is no longer
    /// valid, and `Invalid` for a valid batch token.
    async fn stored_token_hash(&self, token: &str) -> Result<Option<TokenHash>> {
        if !is_batch(token) {
            return Ok(hash_of(token));
        }
        match self.decrypt_batch_token(token).await? {
            Some(_) => Err(unsupported_for_batch("revoked")),
            None => Ok(None),
        }
    }

    pub(super) async fn revoke_hash(&self, hash: TokenHash) -> Result<bool> {
        self.revoke_hashes(vec![hash]).await
    }

    /// Revokes the tokens with these hashes, and all their descendants. Returns `true` if there were any.
    pub(super) async fn revoke_hashes(&self, hashes: Vec<TokenHash>) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(hashes)]).await?;
        let ended = self.evict_revoked(outcomes);
        let found = ended.ended_count > 0;
        self.finish_revocation(ended).await?;
        Ok(found)
    }

    /// Completes a revocation after its first commit: revokes the tokens that are left. Then waits for concurrent
    /// revocations that may be deleting some of the same tokens.
    ///
    /// # Errors
    /// Store errors; sweeps then delete the rest.
    pub(super) async fn finish_revocation(&self, first: RevocationResult) -> Result<()> {
        let mut others = first.ended_count == 0 || first.met;
        if !first.left.is_empty() {
            let _no_sweep = self.revocation_lock.read().await;
            others |= self.revoke_in_batches(first.left).await?.met;
        }
        // This polls `try_write`, because a waiting `write` would block revocations that begin later.
        while others && self.revocation_lock.try_write().is_err() {
            tokio::time::sleep(REVOCATION_POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Revokes tokens and their descendants in small commits, so that other commits can run in between.
    async fn revoke_in_batches(&self, mut left: Vec<TokenHash>) -> Result<RevocationResult> {
        let mut all = RevocationResult::default();
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(MAX_TOKENS_PER_REVOCATION));
            let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(some)]).await?;
            let ended = self.evict_revoked(outcomes);
            all.ended_count += ended.ended_count - ended.left.len();
            all.met |= ended.met;
            left.extend(ended.left);
        }
        Ok(all)
    }

    /// Removes the revoked tokens in `outcomes` from the cache, and returns the combined result.
    pub(super) fn evict_revoked(&self, outcomes: Vec<AuthOutcome>) -> RevocationResult {
        let mut ended = RevocationResult::default();
        for outcome in outcomes {
            let AuthOutcome::Revoked(RevokedTokens { gone, left, met }) = outcome else { continue };
            self.tokens.remove(&gone);
            self.tokens.remove(&left);
            ended.ended_count += gone.len() + left.len();
            ended.left.extend(left);
            ended.met |= met;
        }
        ended
    }

    /// Deletes expired and used-up tokens in small batches. Also deletes expired policies, quotas of deleted mounts,
    /// and unused entities. Returns the number of deleted tokens. Called periodically; safe to cancel.
    ///
    /// # Errors
    /// Store errors.
    pub async fn sweep(&self) -> Result<u32> {
        let now = self.clock.synchronized_now()?;
        self.tokens.prune(now);
        self.sweep_policies().await?;
        self.sweep_quotas().await?;
        let mut removed: usize = 0;
        for _ in 0..STEPS_PER_SWEEP {
            // If a revocation with several commits is in progress, the sweep stops: the revocation still needs tokens
            // that the sweep would delete.
            let Ok(alone) = self.revocation_lock.try_write() else { break };
            let RevokedTokens { gone, left, .. } = self.store.sweep_tokens(now, TOKENS_PER_SWEEP_STEP).await?;
            self.tokens.remove(&left);
            let is_last = gone.len() < TOKENS_PER_SWEEP_STEP as usize && left.is_empty();
            let _shared = alone.downgrade();
            removed += gone.len() + self.revoke_in_batches(left).await?.ended_count;
            if is_last {
                break;
            }
        }
        if removed > 0 {
            // The sweep deleted descendants too, and some of their hashes are not known here, so the whole cache is
            // cleared.
            self.tokens.clear();
        }
        self.sweep_entities().await?;
        Ok(u32::try_from(removed).unwrap_or(u32::MAX))
    }

    /// Returns the permit to run the token tidy (cleanup) that an operator requests; `None` while another tidy runs.
    pub fn try_tidy_permit(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.tidy_lock).try_lock_owned().ok()
    }
}
