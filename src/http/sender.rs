//! Senders: the identities that per-sender limits count by, such as request rates and memory for bodies.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::auth;
use crate::caller_network::CallerNetwork;
use crate::projects::caller::{self, TokenSubject};
use crate::rationing::{Budget, QueueCaller, Reservation};
use crate::secret::Secret;

/// A sender. All tokens of an entity, a user, a team or an organization are one sender. A token that was created without
/// `sudo` counts as its creator ([`auth::Caller::limit_key`]). A caller without a valid token is identified by network
/// ([`CallerNetwork`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A caller of the secrets service, by its limit key.
    Caller(String),
    /// A user of the projects API, by row id.
    User(i64),
    /// A team of the projects API, by row id.
    Team(i64),
    /// An organization of the projects API, by row id.
    Organization(i64),
    /// A caller without a valid token, by network; `None` if the socket has no address.
    Network(Option<CallerNetwork>),
}

impl Sender {
    /// Returns the sender of a request without a valid token.
    pub fn of_address(address: Option<IpAddr>) -> Self {
        Self::Network(address.map(CallerNetwork::of))
    }

    /// Returns the sender of a request to the secrets service; `caller` is `None` without a valid token.
    pub fn of_token(caller: Option<&auth::Caller>, address: Option<IpAddr>) -> Self {
        match caller {
            Some(caller) => Self::Caller(caller.limit_key().to_owned()),
            None => Self::of_address(address),
        }
    }

    /// Returns the caller whose queues the sender's jobs join.
    pub fn queue_caller(&self) -> QueueCaller {
        match self {
            Self::Network(_) => QueueCaller::without_token(self),
            _ => QueueCaller::with_token(self),
        }
    }

    /// Returns the sender of a request to the projects API; `caller` is `None` without a valid token.
    pub fn of_subject(caller: Option<&caller::ProjectsCaller>, address: Option<IpAddr>) -> Self {
        match caller.map(|caller| &caller.subject) {
            Some(TokenSubject::User { id, .. }) => Self::User(*id),
            Some(TokenSubject::Team { id, .. }) => Self::Team(*id),
            Some(TokenSubject::Organization { id, .. }) => Self::Organization(*id),
            None => Self::of_address(address),
        }
    }
}

/// A budget with a limit per sender.
pub type SenderBudget = Budget<Sender>;
/// A reservation in a [`SenderBudget`].
pub type SenderReservation = Reservation<Sender>;

/// Maximum number of cached tokens.
const MAX_CACHED_TOKENS: usize = 50_000;

/// A cache of the senders of projects API tokens. Only the store can validate a token, and access to the store is
/// scheduled by sender. So until the store responds, a request counts for the cached sender of its token.
#[derive(Default)]
pub struct SenderCache {
    token_hasher: RandomState,
    by_token: Mutex<HashMap<u64, Sender>>,
}

impl SenderCache {
    /// Returns the sender of a request before its token is validated: the cached sender of the token, or else the
    /// network.
    pub fn cached_or_network(&self, token: Option<&Secret>, address: Option<IpAddr>) -> Sender {
        let known = token.and_then(|token| self.lock().get(&self.key(token)).cloned());
        known.unwrap_or_else(|| Sender::of_address(address))
    }

    /// Caches the sender of a valid token, or removes an invalid token (`None`).
    pub fn remember(&self, token: &Secret, caller: Option<&caller::ProjectsCaller>) {
        let key = self.key(token);
        let mut known = self.lock();
        match caller {
            None => drop(known.remove(&key)),
            Some(_) if known.contains_key(&key) => {}
            Some(caller) => {
                // Clearing the cache is cheap: the next request with each token then counts for the network of its
                // client.
                if known.len() >= MAX_CACHED_TOKENS {
                    known.clear();
                }
                known.insert(key, Sender::of_subject(Some(caller), None));
            }
        }
    }

    fn key(&self, token: &Secret) -> u64 {
        self.token_hasher.hash_one(token.expose())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Sender>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_user_are_one_sender_from_the_second_request() {
        let senders = SenderCache::default();
        let here = "192.0.2.1".parse().ok();
        let one = Secret::new("one");
        let other = Secret::new("other");
        let unknown = Secret::new("unknown");
        let subject = TokenSubject::User { id: 7, ext_id: "user-7".to_owned(), username: "mia".to_owned() };
        let caller = caller::ProjectsCaller { token: 1, subject, last_used: None };
        assert_eq!(
            senders.cached_or_network(Some(&one), here),
            Sender::of_address(here),
            "an unknown token counts for its address"
        );
        senders.remember(&one, Some(&caller));
        senders.remember(&other, Some(&caller::ProjectsCaller { token: 2, ..caller }));
        let of = |token| senders.cached_or_network(Some(token), here);
        assert_eq!([of(&one), of(&other)], [Sender::User(7), Sender::User(7)]);
        assert_eq!(
            [of(&unknown), senders.cached_or_network(None, here)],
            [Sender::of_address(here), Sender::of_address(here)]
        );
        senders.remember(&one, None);
        assert_eq!([of(&one), of(&other)], [Sender::of_address(here), Sender::User(7)], "a deleted token has no owner");
    }

    #[test]
    fn sender_cache_is_bounded() {
        let senders = SenderCache::default();
        let subject = TokenSubject::User { id: 7, ext_id: "user-7".to_owned(), username: "mia".to_owned() };
        let caller = caller::ProjectsCaller { token: 1, subject, last_used: None };
        for n in 0..=MAX_CACHED_TOKENS {
            senders.remember(&Secret::new(format!("{n}")), Some(&caller));
        }
        assert_eq!(senders.lock().len(), 1);
    }
}
