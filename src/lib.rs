//! Signet: an actor-based signing server.

pub mod auth;
pub mod clock;
pub mod documents;
pub mod error;
pub mod fields;
pub mod keys;
pub mod pki;
pub mod random;
pub mod secret;
pub mod storage;
pub mod x509;
