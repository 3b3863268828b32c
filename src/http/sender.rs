//! Whose a request is, where what one sender may have is bounded: requests a second, bytes of bodies at once.

use std::net::IpAddr;

use crate::auth;
use crate::projects::caller::{self, Subject};

/// A sender. All tokens of an entity, a user, a team or an organization are one, and so are the tokens that one token
/// has made ([`auth::Caller::counts_as`]); whoever has no token that stands is told by the address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A caller of the secrets service.
    Caller(String),
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
            Some(caller) => Self::Caller(caller.counts_as().to_owned()),
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
