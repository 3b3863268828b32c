//! Keys at the key management service of AWS, through its official SDK.
//!
//! | part | owns |
//! |---|---|
//! | `config` | the parameters of a key and their rules |
//! | `endpoints` | which endpoints are given the process's own credential |
//! | `client` | the way to the service: credentials, region, endpoint; bounds of time and size |
//! | `service` | the calls |
//! | `seal` | a symmetric key that wraps the root key of a store |
//! | `failure` | what an error of the SDK is to whoever asked |
//!
//! The endpoint is the region's own, or the one of the key's `endpoint`, which is held to the rules for addresses of
//! callers; variables and profiles that name another one are not read, and none that names a proxy. The SDK comes with the cargo feature `keys-aws`; in a build without it there is the
//! configuration alone, and no backend.

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
/// Those of [`CloudAkmsConfig::check`]; `Invalid` in a build without the SDK.
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
