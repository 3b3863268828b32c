//! What keys at cloud services have in common, whichever service it is.
//!
//! | part | owns |
//! |---|---|
//! | `key` | one key as a backend: looked up once and pinned, made once, digests signed, test signatures |
//! | `services` | what the server's configuration says of the services, and the HTTP client for them |
//! | `problems` | which of those settings cannot be used |
//! | `rest` | one exchange over HTTP: bounded in time, size and repetitions; no redirects |
//! | `token` | an access token, fetched once for all who need it |
//! | `rules` | rules of parameters that several services share |
//!
//! A service gets digests and never messages: what some of them take as a message is shorter than a certificate.
//! Where requests go is said by the server's configuration and by checked parameters of a key, never by an answer.

mod key;
mod problems;
mod rest;
pub(super) mod rules;
mod services;
mod token;

pub(super) use self::key::{CloudKey, Found, Service};
pub(super) use self::rest::{Reply, Tries, send};
pub use self::services::{AzureSettings, CloudServices, CloudSettings, GoogleSettings};
pub(super) use self::token::{Token, Tokens};
