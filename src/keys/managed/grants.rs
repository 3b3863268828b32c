//! Grants of managed keys to mounts. A mount lists the names of the keys that it may use, so the mount table implements
//! this trait.

use futures_util::future::BoxFuture;

use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;

/// The lists of managed keys that mounts may use, by key name.
pub trait ManagedKeyGrants: Send + Sync {
    /// `true` if the mount lists this key name. Called for every signature, so it must not block.
    fn lists_key(&self, mount: MountId, name: &str) -> bool;

    /// The mount's path, with a trailing `/`; empty if the mount does not exist.
    fn mount_path(&self, mount: MountId) -> String;

    /// Reads from the store which mounts list this key name.
    ///
    /// # Errors
    /// Errors of the store.
    fn listing_mounts(&self, name: String) -> BoxFuture<'static, Result<ListingMounts>>;
}

/// The mounts that list one key name.
pub struct ListingMounts {
    /// The paths of these mounts.
    pub paths: Vec<String>,
    /// A write that fails with `Conflict` if any mount has added a name to its list since `paths` was read. A change
    /// that relies on `paths` commits this write in the same unit.
    pub unchanged: DocumentWrite,
}
