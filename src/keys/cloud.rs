//! Common parts of the cloud services: a key as backend (`key`), identifiers of keys in use (`pinned_keys`), server
//! settings (`services`, `problems`) and shared validation (`rules`).
//!
//! Services sign digests and never messages, because some accept only messages that are shorter than a certificate.
//! URLs come from the server's configuration and from validated parameters of a key, never from a response.

mod key;
mod pinned_keys;
mod problems;
pub(super) mod rules;
mod services;

pub(super) use self::key::{CloudKey, CloudKeyService};
pub use self::rules::MAX_CLOUD_PARAMETER_BYTES;
pub use self::services::{AzureSettings, CloudServices, CloudSettings, GoogleSettings};
use crate::fields::Resource;

/// The configuration of a key: text parameters, where `""` means absent, and secrets.
pub trait CloudKeyConfig: Resource + Clone {
    /// Returns the form in which the value of a parameter is stored, such as in upper case.
    fn normalize(name: &str, text: String) -> String;

    /// Returns the value that reads show for an absent parameter.
    fn default_value(&self, _name: &str) -> String {
        String::new()
    }
}
