//! Keys in Azure Key Vault, through its REST interface.
//!
//! A vault that rejects a token names a directory from which to get another token. This server ignores that directory:
//! credentials are sent only to the directory of the key's environment or of the server's configuration, and tokens
//! only to the vault.

mod config;
mod credential;
mod service;
mod suffixes;

use std::sync::Arc;

pub use self::config::CloudBkeyvaultConfig;
use super::actor::AsyncBackend;
use super::cloud::{CloudKey, CloudServices};
use crate::error::Result;

/// Creates the backend of a key; called after every write of its configuration. `generate` allows generating a missing
/// key. Makes no request.
///
/// # Errors
/// Those of [`CloudBkeyvaultConfig::check`].
pub fn backend(
    services: &Arc<CloudServices>,
    config: CloudBkeyvaultConfig,
    generate: bool,
) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, services)?;
    Ok(CloudKey::backend(service::VaultKeyClient::new(Arc::clone(services), config), generate))
}
