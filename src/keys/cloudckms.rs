//! Keys in Google Cloud KMS, through its REST interface.
//!
//! Five kinds of call suffice, so they use the same HTTP client as [`cloudbkeyvault`](super::cloudbkeyvault). Google's
//! library would more than double the number of packages that the two services need.

mod algorithm;
mod checksum;
mod config;
mod credential;
mod file;
mod service;

use std::sync::Arc;

pub use self::config::CloudCkmsConfig;
use super::actor::AsyncBackend;
use super::cloud::{CloudKey, CloudServices};
use crate::error::Result;

/// Creates the backend of a key; called after every write of its configuration. `generate` allows generating a missing
/// key. Makes no request.
///
/// # Errors
/// Those of [`CloudCkmsConfig::check`].
pub fn backend(
    services: &Arc<CloudServices>,
    config: CloudCkmsConfig,
    generate: bool,
) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, services)?;
    Ok(CloudKey::backend(service::CkmsKeyClient::new(Arc::clone(services), &config)?, generate))
}
