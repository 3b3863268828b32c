//! Server settings for authentication methods. Requests cannot change them.

use super::cloudb::{CloudbFallback, CloudbSettings};
use crate::outbound::EgressPolicy;

/// Settings for all mounts of authentication methods.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginSettings {
    /// The network addresses to which the URLs in a mount's configuration may lead.
    pub reach: EgressPolicy,
    /// Settings of `cloudb`.
    pub cloudb: CloudbSettings,
}

impl LoginSettings {
    /// Adds defaults from the provider's environment variables.
    #[must_use]
    pub fn with_environment(self) -> Self {
        Self { cloudb: CloudbSettings { fallback: CloudbFallback::from_environment(), ..self.cloudb }, ..self }
    }
}
