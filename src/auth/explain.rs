//! Whose rights are asked about, and why they are what they are: for whoever looks for the reason of a refusal.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::policy::explain::{self, Explanation, Merged};
use super::policy::{Place, Policy};
use super::token::{Record, hash_of, is_batch};
use super::{Auth, Caller, Held, live};
use crate::clock::Time;
use crate::error::Result;
use crate::templates::Identity;
use crate::turns::cpu;

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
    /// Whoever is behind it is disabled, for now.
    EntityDisabled,
}

impl TokenState {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::UsedUp => "used up",
            Self::EntityDisabled => "entity disabled",
        }
    }
}

impl Auth {
    /// The token with this accessor, also one that cannot be used any more, as long as it is stored;
    /// `None` also when its entity is gone.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subject_by_accessor(&self, accessor: &str) -> Result<Option<Subject>> {
        let Some(hash) = hash_of(accessor) else { return Ok(None) };
        match self.store.token_by_accessor(hash).await? {
            Some(row) => live(self.subject(Record::of(&row)?, Held::of(&row)).await),
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
            return match self.batch_held(token).await? {
                Some((record, held)) => live(self.subject(record, held).await),
                None => Ok(None),
            };
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        match self.store.token(hash).await? {
            Some(row) => live(self.subject(Record::of(&row)?, Held::of(&row)).await),
            None => Ok(None),
        }
    }

    async fn subject(&self, record: Record, held: Held) -> Result<Subject> {
        let entity = self.entity_named(&record.entity_id).await?;
        let state = match (held.expires_at, held.uses) {
            (Some(end), _) if end <= self.clock.now() => TokenState::Expired,
            (_, Some(0)) => TokenState::UsedUp,
            _ if entity.as_ref().is_some_and(|entity| entity.disabled) => TokenState::EntityDisabled,
            _ => TokenState::Live,
        };
        Ok(Subject { caller: self.caller_with(record, held, entity).await?, state })
    }

    /// Why policies decide over a path as they do, for this caller; the path of a `list` ends in `/`. Who holds
    /// `root` is asked for no rule.
    ///
    /// # Errors
    /// `Internal` when it panics.
    pub async fn explain(&self, caller: &Arc<Caller>, place: Place<'_>, list: bool) -> Result<Explanation> {
        let (path, spelt) = (place.path.to_owned(), place.spelt.to_vec());
        self.looked_through(caller, move |policies, identity, now| {
            explain::explain(policies, identity, Place { path: &path, spelt: &spelt }, list, now)
        })
        .await
    }

    /// What `shape` makes of all rules of a caller by their paths; of none for more than are looked at, which grant
    /// nothing.
    ///
    /// # Errors
    /// `Internal` when it panics.
    pub async fn rules<T: Send + 'static>(
        &self,
        caller: &Arc<Caller>,
        shape: impl FnOnce(BTreeMap<String, Merged>) -> T + Send + 'static,
    ) -> Result<T> {
        self.looked_through(caller, |policies, identity, now| {
            shape(explain::merged(policies, identity, now).unwrap_or_default())
        })
        .await
    }

    /// Looks through the policies of a caller, long ones in their turn beside the workers.
    async fn looked_through<T: Send + 'static>(
        &self,
        caller: &Arc<Caller>,
        look: impl for<'p> FnOnce(Vec<(&'p str, &'p Policy)>, Option<&dyn Identity>, Time) -> T + Send + 'static,
    ) -> Result<T> {
        let (policies, now, caller) = (self.policies.load_full(), self.clock.now(), Arc::clone(caller));
        let names = caller.all_policies();
        let long = policies.are_long(&names, now);
        cpu::run_if(long, move || look(policies.named(&names, now).collect(), caller.identity(), now)).await
    }
}
