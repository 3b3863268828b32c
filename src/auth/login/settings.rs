//! Server settings for authentication methods. API requests cannot change them.

use super::cloudb::{CloudbFallback, CloudbSettings};
use crate::outbound::EgressPolicy;

/// Settings for all mounts of authentication methods.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginSettings {
    /// The network addresses to which this server may connect for URLs in a mount's configuration.
    pub reach: EgressPolicy,
    /// Settings for mounts of the method `cloudb`.
    pub cloudb: CloudbSettings,
}

impl LoginSettings {
    /// Returns the settings with the defaults of `cloudb` read from the cloud provider's environment variables.
    #[must_use]
    pub fn with_environment(self) -> Self {
        Self { cloudb: CloudbSettings { fallback: CloudbFallback::from_environment(), ..self.cloudb }, ..self }
    }
}
