//! Signed JSON objects: JWS in compact form (RFC 7515), public keys as JWK (RFC 7517), and their signature algorithms.
//!
//! This module does not decide which algorithms, keys or headers are acceptable; the code that verifies tokens of a
//! protocol decides that.

mod algorithm;
mod jwk;
mod jws;
mod unique_json;

pub(crate) use self::algorithm::{JwsAlgorithm, JwsVerificationKey};
pub(crate) use self::jwk::JsonWebKey;
pub(crate) use self::jws::CompactJws;
