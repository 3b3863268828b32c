//! Permissions that managed keys of all types have.

use serde::{Deserialize, Serialize};

use super::usage::ManagedKeyUsages;
use crate::fields::resource;

resource! {
    /// Permissions of a managed key, which all backend types share.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct KeyPermissions {
        /// `true` if a missing key may be generated in the backend.
        flag allow_generate_key;
        /// `true` if a key in the backend may be replaced by a new one.
        flag allow_replace_key;
        /// `true` if a private key of this server may be copied into the backend.
        flag allow_store_key;
        /// `true` if mounts that do not list the key may use it.
        flag any_mount;
        /// The operations for which the key may be used.
        value usages: ManagedKeyUsages;
    }
}
