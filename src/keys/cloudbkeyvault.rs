//! Keys in a key store of Azure, through its REST interface.
//!
//! | part | owns |
//! |---|---|
//! | `config` | the parameters of a key and their rules |
//! | `suffixes` | which key stores are given tokens |
//! | `credential` | access tokens for them |
//! | `service` | the calls |
//!
//! A store that refuses a token names the authority to get another one from. That is not read: credentials go to
//! the directory of the key's environment, or of the server's configuration, and tokens to the key store.

mod config;
mod credential;
mod service;
mod suffixes;

use std::sync::Arc;

pub use self::config::{CloudBkeyvaultChange, CloudBkeyvaultConfig};
use super::actor::AsyncBackend;
use super::cloud::{CloudKey, CloudServices};
use crate::error::Result;

/// The backend of a key; made anew whenever its configuration is written. `generate` is whether a key that is not
/// there may be made. Asks nobody.
///
/// # Errors
/// Those of [`CloudBkeyvaultConfig::check`].
pub fn backend(
    services: &Arc<CloudServices>,
    config: CloudBkeyvaultConfig,
    generate: bool,
) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, services)?;
    Ok(CloudKey::backend(service::Vault::new(Arc::clone(services), config), generate))
}
