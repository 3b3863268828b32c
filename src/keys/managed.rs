//! The registry of managed keys: their configurations, and one signer actor per key.
//!
//! A record is a sealed (encrypted) document with the name of the key, so names are unique across types. The document
//! version orders concurrent writes. A change is committed, then published, then acknowledged. Readers load the
//! published view without waiting; other nodes reload it after an entry in the change log. A key keeps its UUID and
//! actor until it is deleted. Every write of a record counts as a new configuration, even with the same content:
//! sessions are reopened, and a rejected PIN may be tried again.

mod backend;
mod change;
mod generation_lease;
mod grants;
mod key_permissions;
#[cfg(test)]
mod memory;
mod pending;
mod record;
mod registry;
mod signers;
mod usage;
mod view;

pub use self::backend::{BackendConfig, BackendType, Devices};
pub use self::grants::{ListingMounts, ManagedKeyGrants};
pub use self::key_permissions::KeyPermissions;
pub use self::record::{ManagedKeyRecord, libraries_by_key};
pub use self::registry::ManagedKeys;
pub use self::usage::{ManagedKeyUsage, ManagedKeyUsages};

#[cfg(test)]
mod tests;
