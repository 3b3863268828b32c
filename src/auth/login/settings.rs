//! What the server's configuration says of authentication methods. None of it can be said by a request.

use crate::outbound::Reach;

/// Settings of methods, for all their mounts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginSettings {
    /// Which addresses may be called that a mount's configuration names.
    pub reach: Reach,
}
