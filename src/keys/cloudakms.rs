//! Keys in AWS KMS.
//!
//! Requests go to the endpoint of the region, or to the key's `endpoint`. The latter is validated like all addresses
//! from callers. Environment variables and profiles that set an endpoint or a proxy are ignored. The AWS libraries for
//! credentials and signatures come with the cargo feature `keys-aws`; a build without it has only the configuration and
//! no backend.

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

pub use self::config::CloudAkmsConfig;
pub use self::seal::{AkmsSealSettings, seal_device};
use super::actor::AsyncBackend;
use crate::error::Result;
use crate::outbound::EgressPolicy;

/// Creates the backend of a key; called after every write of its configuration. `egress_policy` restricts its endpoint;
/// `generate` allows generating a missing key. Makes no request.
///
/// # Errors
/// Those of [`CloudAkmsConfig::check`]; `Invalid` in a build without the feature `keys-aws`.
#[cfg(feature = "keys-aws")]
pub fn backend(config: CloudAkmsConfig, egress_policy: EgressPolicy, generate: bool) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, egress_policy)?;
    Ok(super::cloud::CloudKey::backend(service::AkmsKeyClient::new(config, egress_policy), generate))
}

/// Always fails: a build without the cargo feature `keys-aws` has no backend for AWS KMS.
///
/// # Errors
/// `Invalid`.
#[cfg(not(feature = "keys-aws"))]
pub fn backend(_: CloudAkmsConfig, _: EgressPolicy, _: bool) -> Result<Arc<dyn AsyncBackend>> {
    Err(crate::error::Error::invalid(format!("this build does not support {}", config::TYPE_NAME)))
}
