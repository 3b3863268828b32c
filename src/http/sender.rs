//! Whose a request is, where what one sender may have is bounded: requests a second, bytes of bodies at once.

use std::net::IpAddr;

use crate::auth;
use crate::auth::store::TokenHash;
use crate::projects::caller::{self, Subject};

/// A sender. All tokens of an entity, a user, a team or an organization are one; whoever has no token that stands is
/// told by the address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// An entity, by its id.
    Entity(String),
    /// A token of no entity.
    Token(TokenHash),
    /// A user of the projects API, by the row.
    User(i64),
    /// A team, by the row.
    Team(i64),
    /// An organization, by the row.
    Organization(i64),
    /// Whoever asks from there.
    Address(Option<IpAddr>),
}

impl Sender {
    /// The sender of a request of the secrets service.
    pub fn of_token(caller: Option<&auth::Caller>, address: Option<IpAddr>) -> Self {
        match caller {
            Some(caller) if caller.entity_id.is_empty() => Self::Token(caller.token_hash()),
            Some(caller) => Self::Entity(caller.entity_id.clone()),
            None => Self::Address(address),
        }
    }

    /// The sender of a request of the projects API.
    pub fn of_subject(caller: Option<&caller::Caller>, address: Option<IpAddr>) -> Self {
        match caller.map(|caller| &caller.subject) {
            Some(Subject::User { id, .. }) => Self::User(*id),
            Some(Subject::Team { id, .. }) => Self::Team(*id),
            Some(Subject::Organization { id, .. }) => Self::Organization(*id),
            None => Self::Address(address),
        }
    }
}
