//! Grants of managed keys to mounts. Mounts list the names of keys, so the owner of the mount table implements this.

use futures_util::future::BoxFuture;

use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;

/// The names of managed keys that mounts list.
pub trait ManagedKeyGrants: Send + Sync {
    /// `true` if the mount lists the name. Called for every signature, so it must not block.
    fn lists(&self, mount: MountId, name: &str) -> bool;

    /// The mount's path, with a trailing `/`; empty if the mount does not exist.
    fn path(&self, mount: MountId) -> String;

    /// Returns the mounts that list the name, as stored.
    ///
    /// # Errors
    /// Those of the store.
    fn listing_mounts(&self, name: String) -> BoxFuture<'static, Result<ListingMounts>>;
}

/// The mounts that list a name.
pub struct ListingMounts {
    /// Their paths.
    pub paths: Vec<String>,
    /// A write that fails with `Conflict` if a mount has added a name to its list since `paths` was read. A change that
    /// relies on `paths` commits this write in the same unit.
    pub unchanged: DocumentWrite,
}
