//! PLACEHOLDER of the authentication branch.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read.
    Read,
    /// List.
    List,
    /// Create.
    Create,
    /// Update.
    Update,
    /// Patch.
    Patch,
    /// Delete.
    Delete,
}

/// The decision.
pub struct Decision {
    /// May.
    pub allowed: bool,
    /// Sudo.
    pub sudo: bool,
}
