//! The ends of tokens: revocation, and the removal of what has expired or is used up.

use std::sync::Arc;
use std::time::Duration;

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

/// Between two looks at whether others are done.
const LOOK: Duration = Duration::from_millis(20);

/// What a revocation has ended.
#[derive(Default)]
pub(super) struct Ended {
    /// How many tokens.
    number: usize,
    /// Those of them whose descendants have not all ended.
    left: Vec<TokenHash>,
    /// Whether some descendants had ended before.
    met: bool,
}

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
        let unknown = || Error::invalid("token to revoke not found");
        let hash = self.stored(token).await?.ok_or_else(unknown)?;
        loop {
            let ended = self.forget(self.store.commit(vec![AuthWrite::TokenRevokeAlone(hash)]).await?);
            match (ended.number, ended.left.is_empty()) {
                (0, _) => return Err(unknown()),
                (_, true) => return Ok(()),
                // It has made more than one commit takes on.
                (_, false) => {}
            }
        }
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

    pub(super) async fn revoke_hash(&self, hash: TokenHash) -> Result<bool> {
        self.revoke_hashes(vec![hash]).await
    }

    /// Ends tokens and all their descendants; whether there was one.
    pub(super) async fn revoke_hashes(&self, hashes: Vec<TokenHash>) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(hashes)]).await?;
        let ended = self.forget(outcomes);
        let found = ended.number > 0;
        self.revoke_rest(ended).await?;
        Ok(found)
    }

    /// Ends what a revocation has left. Where somebody else may have ended part of it, it waits for them.
    ///
    /// # Errors
    /// Those of the store; sweeps go on then.
    pub(super) async fn revoke_rest(&self, first: Ended) -> Result<()> {
        let mut others = first.number == 0 || first.met;
        if !first.left.is_empty() {
            let _no_sweep = self.ending.read().await;
            others |= self.revoke_all(first.left).await?.met;
        }
        // Nobody who comes later waits for this one.
        while others && self.ending.try_write().is_err() {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Ends tokens and their descendants, a few in each commit: others commit in between.
    async fn revoke_all(&self, mut left: Vec<TokenHash>) -> Result<Ended> {
        let mut all = Ended::default();
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(AT_ONCE));
            let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(some)]).await?;
            let ended = self.forget(outcomes);
            all.number += ended.number - ended.left.len();
            all.met |= ended.met;
            left.extend(ended.left);
        }
        Ok(all)
    }

    /// Drops revoked tokens from the cache.
    pub(super) fn forget(&self, outcomes: Vec<AuthOutcome>) -> Ended {
        let mut ended = Ended::default();
        for outcome in outcomes {
            let AuthOutcome::Revoked(Revoked { gone, left, met }) = outcome else { continue };
            self.tokens.remove(&gone);
            self.tokens.remove(&left);
            ended.number += gone.len() + left.len();
            ended.left.extend(left);
            ended.met |= met;
        }
        ended
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
            // Whoever has begun to end some ends all of them first.
            let Ok(alone) = self.ending.try_write() else { break };
            let Revoked { gone, left, .. } = self.store.sweep_tokens(now, SWEEP_BATCH).await?;
            self.tokens.remove(&left);
            let is_last = gone.len() < SWEEP_BATCH as usize && left.is_empty();
            let _shared = alone.downgrade();
            removed += gone.len() + self.revoke_all(left).await?.number;
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
