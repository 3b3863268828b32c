//! What all managed keys are configured with.

use serde::{Deserialize, Serialize};

use super::usage::Usages;

/// What may be done with a key, whatever its type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Whether a key that is missing in the backend is made there.
    pub allow_generate_key: bool,
    /// Whether a key in the backend may be replaced by a new one.
    pub allow_replace_key: bool,
    /// Whether a private key of this server may be copied into the backend.
    pub allow_store_key: bool,
    /// Whether mounts that do not list the key may use it.
    pub any_mount: bool,
    /// What the key may be used for.
    pub usages: Usages,
}
