//! Signet: an actor-based signing server.

pub mod auth;
pub mod clock;
pub mod config;
pub mod documents;
pub mod error;
pub mod fields;
pub mod http;
pub mod keys;
pub mod pki;
pub mod random;
pub mod secret;
pub mod server;
pub mod storage;
pub mod telemetry;
pub mod x509;
