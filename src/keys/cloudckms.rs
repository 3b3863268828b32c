//! Keys at the key management service of Google, through its REST interface.
//!
//! | part | owns |
//! |---|---|
//! | `config` | the parameters of a key and their rules |
//! | `algorithm` | the algorithms: each is of one kind of key and fixes scheme and hash |
//! | `file` | which credential files may be read, and reading one |
//! | `credential` | access tokens: of a service account's file, or of the machine's own account |
//! | `service` | the calls |
//! | `checksum` | CRC-32C, which goes with everything that is signed |
//!
//! Five calls are all that is needed, and made by the HTTP client that the other REST service uses. The provider's
//! library for them would more than double the packages that both cloud services add.

mod algorithm;
mod checksum;
mod config;
mod credential;
mod file;
mod service;

use std::sync::Arc;

pub use self::config::{CloudCkmsChange, CloudCkmsConfig};
use super::actor::AsyncBackend;
use super::cloud::{CloudKey, CloudServices};
use crate::error::Result;

/// The backend of a key; made anew whenever its configuration is written. `generate` is whether a key that is not
/// there may be made. Asks nobody.
///
/// # Errors
/// Those of [`CloudCkmsConfig::check`].
pub fn backend(
    services: &Arc<CloudServices>,
    config: CloudCkmsConfig,
    generate: bool,
) -> Result<Arc<dyn AsyncBackend>> {
    config.check(generate, services)?;
    Ok(CloudKey::backend(service::Kms::new(Arc::clone(services), &config)?, generate))
}
