//! Whose rights are asked about, and why they are what they are: for whoever looks for the reason of a refusal.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::policy::Place;
use super::policy::explain::{self, Explanation, Merged};
use super::store::TokenRow;
use super::token::{hash_of, is_batch};
use super::{Auth, Caller, live};
use crate::error::Result;

/// A token that somebody asks about.
#[derive(Clone)]
pub struct Subject {
    /// Who would be calling with it.
    pub caller: Arc<Caller>,
    /// Whether it can be used.
    pub state: TokenState,
}

/// Whether a token can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It can.
    Live,
    /// Its time is over, and it has not been swept away yet.
    Expired,
    /// It was used as often as it might be.
    UsedUp,
}

impl TokenState {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::UsedUp => "used up",
        }
    }
}

impl Auth {
    /// The token with this accessor, also one that cannot be used any more, as long as it is stored;
    /// `None` also when its entity is gone or disabled.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subject_by_accessor(&self, accessor: &str) -> Result<Option<Subject>> {
        let Some(hash) = hash_of(accessor) else { return Ok(None) };
        match self.store.token_by_accessor(hash).await? {
            Some(row) => live(self.subject(&row).await),
            None => Ok(None),
        }
    }

    /// As [`Auth::subject_by_accessor`], by the token itself, of which no use is taken.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subject_by_token(&self, token: &str) -> Result<Option<Subject>> {
        if is_batch(token) {
            // One that has ended cannot be told from one that never was: it is stored nowhere.
            let caller = live(self.batch_caller(token).await)?;
            return Ok(caller.map(|caller| Subject { caller, state: TokenState::Live }));
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        match self.store.token(hash).await? {
            Some(row) => live(self.subject(&row).await),
            None => Ok(None),
        }
    }

    async fn subject(&self, row: &TokenRow) -> Result<Subject> {
        let now = self.clock.now();
        let state = match (row.expires_at, row.uses) {
            (Some(end), _) if end <= now => TokenState::Expired,
            (_, Some(0)) => TokenState::UsedUp,
            _ => TokenState::Live,
        };
        Ok(Subject { caller: self.caller(row).await?, state })
    }

    /// Why policies decide over a path as they do, for this caller; the path of a `list` ends in `/`. Who holds
    /// `root` is asked for no rule.
    pub fn explain(&self, caller: &Caller, place: Place<'_>, list: bool) -> Explanation {
        let (policies, now) = (self.policies.load(), self.clock.now());
        explain::explain(policies.named(&caller.all_policies(), now), caller.identity(), place, list, now)
    }

    /// All rules of a caller by their paths; `None` for more than are looked at, which grant nothing.
    pub fn rules(&self, caller: &Caller) -> Option<BTreeMap<String, Merged>> {
        let (policies, now) = (self.policies.load(), self.clock.now());
        explain::merged(policies.named(&caller.all_policies(), now), caller.identity(), now)
    }
}
