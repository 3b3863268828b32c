//! What the server's configuration says of authentication methods. None of it can be said by a request.

use super::cloudb::{CloudbSettings, Fallback};
use crate::outbound::Reach;

/// Settings of methods, for all their mounts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginSettings {
    /// Which addresses may be called that a mount's configuration names.
    pub reach: Reach,
    /// Of the method `cloudb`.
    pub cloudb: CloudbSettings,
}

impl LoginSettings {
    /// Takes what the environment says in the provider's own variables.
    #[must_use]
    pub fn in_environment(self) -> Self {
        Self { cloudb: CloudbSettings { fallback: Fallback::of_environment(), ..self.cloudb }, ..self }
    }
}
