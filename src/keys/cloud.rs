//! What keys at cloud services have in common, whichever service it is.
//!
//! | part | owns |
//! |---|---|
//! | `key` | one key as a backend: looked up, made once, digests signed, test signatures |
//! | `pins` | what signs for a key that was taken into use, wherever its name leads now |
//! | `services` | what the server's configuration says of the services, and the HTTP client for them |
//! | `problems` | which of those settings cannot be used |
//! | `rules` | rules of parameters that several services share |
//!
//! A service gets digests and never messages: what some of them take as a message is shorter than a certificate.
//! Where requests go is said by the server's configuration and by checked parameters of a key, never by an answer.

mod key;
mod pins;
mod problems;
pub(super) mod rules;
mod services;

pub(super) use self::key::{CloudKey, Service};
pub use self::services::{AzureSettings, CloudServices, CloudSettings, GoogleSettings};
