//! Keys at the key management service of AWS.
//!
//! | part | owns |
//! |---|---|
//! | `config` | the parameters of a key and their rules |
//! | `endpoints` | the endpoint of a region, and which endpoints are given the process's own credential |
//! | `client` | signed requests: credentials, region, endpoint, repetitions |
//! | `service` | the calls |
//! | `seal` | a symmetric key that wraps the root key of a store |
//! | `failure` | errors of the service by its codes |
//!
//! The endpoint is the region's own, or the one of the key's `endpoint`, which is held to the rules for addresses of
//! callers; variables and profiles that name another one are not read, and none that names a proxy. The official libraries for
//! credentials and signatures come with the cargo feature `keys-aws`; a build without it has the configuration alone, and no
//! backend.

#[cfg(feature = "keys-aws")]
mod client;
mod config;
mod endpoints;
#[cfg(feature = "keys-aws")]
mod failure;
mod seal;
#[cfg(feature = "keys-aws")]
mod service;

use std::sync::Arc;

pub use self::config::{CloudAkmsChange, CloudAkmsConfig};
pub use self::seal::{AkmsSealSettings, seal_device};
use super::actor::AsyncBackend;
use crate::error::Result;
use crate::outbound::Reach;

/// The backend of a key; made anew whenever its configuration is written. `reach` has the rules for its endpoint,
/// `generate` is whether a key that is not there may be made. Asks nobody.
///
/// # Errors
/// Those of [`CloudAkmsConfig::check`]; `Invalid` in a build without the feature `keys-aws`.
#[cfg(feature = "keys-aws")]
pub fn backend(config: CloudAkmsConfig, reach: Reach, generate: bool) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, reach)?;
    Ok(super::cloud::CloudKey::backend(service::Kms::new(config, reach), generate))
}

/// There is none in this build.
///
/// # Errors
/// `Invalid`.
#[cfg(not(feature = "keys-aws"))]
pub fn backend(_: CloudAkmsConfig, _: Reach, _: bool) -> Result<Arc<dyn AsyncBackend>> {
    Err(crate::error::Error::invalid(format!("this build has no {}", config::NAME)))
}
