//! Private keys: made and loaded here ([`local`]), with a pool of quiet threads for the slow kind
//! ([`pool`]).
//!
//! EC and Ed25519 keys cost 10 to 20 µs and are made where the request is. An RSA key costs 60 ms to
//! seconds, which would hold up everything else on that worker, so it comes from the pool. Private key
//! operations happen in aws-lc-rs; P-224, which it does not sign with, in the `p224` crate.

pub mod local;
mod local_der;
pub mod pool;

pub use local::{KeySpec, PrivateKey};
pub use pool::{KeyPool, Presence, Watch};
