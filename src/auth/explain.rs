//! Explains the rights of a token, for operators who want to know why a request was denied.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::policy::explain::{self, Explanation, MergedRule};
use super::policy::{Policy, RequestPath};
use super::token::{TokenRecord, hash_of, is_batch};
use super::{Auth, Caller, TokenState, none_if_forbidden};
use crate::clock::Time;
use crate::error::Result;
use crate::rationing::cpu;
use crate::templates::TemplateValues;

/// Policies, each with its name.
type NamedPolicies<'p> = Vec<(&'p str, &'p Policy)>;

/// The token whose rights are explained.
#[derive(Clone)]
pub struct ExplainedToken {
    /// The caller that the server would identify in a request with this token.
    pub caller: Arc<Caller>,
    /// State of the token. A token that cannot be used, such as an expired one, can be explained too.
    pub state: TokenStatus,
}

/// The state of a token whose rights are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStatus {
    /// The token can be used.
    Live,
    /// The token has expired but has not been removed from the store yet.
    Expired,
    /// The token has no uses left.
    UsedUp,
    /// The token's entity is disabled.
    EntityDisabled,
}

impl TokenStatus {
    /// The word that responses contain for this state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::UsedUp => "used up",
            Self::EntityDisabled => "entity disabled",
        }
    }
}

impl Auth {
    /// Finds a stored token by accessor, even if the token is expired or used up. Returns `None` if there is no such
    /// token or its entity is deleted.
    ///
    /// # Errors
    /// Store errors.
    pub async fn explained_token_by_accessor(&self, accessor: &str) -> Result<Option<ExplainedToken>> {
        let Some(hash) = hash_of(accessor) else { return Ok(None) };
        match self.store.token_by_accessor(hash).await? {
            Some(row) => none_if_forbidden(self.explained_token(TokenRecord::of(&row)?, TokenState::of(&row)).await),
            None => Ok(None),
        }
    }

    /// Finds a token by its text, like [`Auth::explained_token_by_accessor`]. Does not count as a use of the token.
    ///
    /// # Errors
    /// Store errors.
    pub async fn explained_token_by_token(&self, token: &str) -> Result<Option<ExplainedToken>> {
        if is_batch(token) {
            // A batch token is not stored, so an expired one cannot be told apart from one that never existed.
            return match self.decrypt_batch_token_state(token).await? {
                Some((record, token_state)) => none_if_forbidden(self.explained_token(record, token_state).await),
                None => Ok(None),
            };
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        match self.store.token(hash).await? {
            Some(row) => none_if_forbidden(self.explained_token(TokenRecord::of(&row)?, TokenState::of(&row)).await),
            None => Ok(None),
        }
    }

    async fn explained_token(&self, record: TokenRecord, token_state: TokenState) -> Result<ExplainedToken> {
        let entity = self.existing_entity(&record.entity_id).await?;
        let state = match (token_state.expires_at, token_state.uses) {
            (Some(end), _) if end <= self.clock.now() => TokenStatus::Expired,
            (_, Some(0)) => TokenStatus::UsedUp,
            _ if entity.as_ref().is_some_and(|entity| entity.disabled) => TokenStatus::EntityDisabled,
            _ => TokenStatus::Live,
        };
        Ok(ExplainedToken { caller: self.build_caller(record, token_state, entity).await?, state })
    }

    /// Explains the decision of the caller's policies on `request_path`. If `list` is `true`, `request_path` must end
    /// in `/`. The explanation names no rule for a root token, which is allowed everything.
    ///
    /// # Errors
    /// `Internal` when the explanation panics.
    pub async fn explain(
        &self,
        caller: &Arc<Caller>,
        request_path: RequestPath<'_>,
        list: bool,
    ) -> Result<Explanation> {
        let path = request_path.path.to_owned();
        let spelt = request_path.spelt.to_vec();
        self.inspect_policies(caller, move |policies, identity, now| {
            explain::explain(policies, identity, RequestPath { path: &path, spelt: &spelt }, list, now)
        })
        .await
    }

    /// Merges all rules of a caller by path, passes them to `shape` and returns its result. The map is empty if the
    /// caller has too many rules.
    ///
    /// # Errors
    /// `Internal` when `shape` panics.
    pub async fn rules<T: Send + 'static>(
        &self,
        caller: &Arc<Caller>,
        shape: impl FnOnce(BTreeMap<String, MergedRule>) -> T + Send + 'static,
    ) -> Result<T> {
        self.inspect_policies(caller, |policies, identity, now| {
            shape(explain::merge_rules(policies, identity, now).unwrap_or_default())
        })
        .await
    }

    /// Runs `inspect` on the policies of a caller. If the policies are long, it runs in the queue for CPU-bound work.
    async fn inspect_policies<T: Send + 'static>(
        &self,
        caller: &Arc<Caller>,
        inspect: impl for<'p> FnOnce(NamedPolicies<'p>, Option<&dyn TemplateValues>, Time) -> T + Send + 'static,
    ) -> Result<T> {
        let policies = self.policies.load_full();
        let now = self.clock.now();
        let caller = Arc::clone(caller);
        let names = caller.all_policies();
        let long = policies.have_long_texts(&names, now);
        cpu::run_if(long, move || inspect(policies.existing_policies(&names, now).collect(), caller.identity(), now))
            .await
    }
}
