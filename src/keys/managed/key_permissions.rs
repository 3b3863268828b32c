//! Settings that all managed keys share.

use serde::{Deserialize, Serialize};

use super::usage::ManagedKeyUsages;

/// Permissions of a key, independent of its type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPermissions {
    /// `true` if a missing key may be generated in the backend.
    pub allow_generate_key: bool,
    /// `true` if a key in the backend may be replaced by a new one.
    pub allow_replace_key: bool,
    /// `true` if a private key of this server may be copied into the backend.
    pub allow_store_key: bool,
    /// `true` if mounts that do not list the key may use it.
    pub any_mount: bool,
    /// The allowed uses of the key.
    pub usages: ManagedKeyUsages,
}
