//! Which mounts may use which managed key. Mounts list names ([`ManagedKeys`](super::ManagedKeys) does not know
//! them), so whoever has the mount table answers.

use futures_util::future::BoxFuture;

use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;

/// What mounts list.
pub trait Grants: Send + Sync {
    /// Whether the mount lists the name. Called for every signature: it does not block.
    fn lists(&self, mount: MountId, name: &str) -> bool;

    /// The mount's path, with a trailing `/`; empty for one that is gone.
    fn path(&self, mount: MountId) -> String;

    /// Who lists the name, as it is stored.
    ///
    /// # Errors
    /// Those of the store.
    fn users(&self, name: String) -> BoxFuture<'static, Result<Users>>;
}

/// The mounts that list a name.
pub struct Users {
    /// Their paths.
    pub paths: Vec<String>,
    /// A write that fails with `Conflict` where any mount came to list any name since: whoever relies on the paths
    /// commits it in the same unit.
    pub unchanged: DocumentWrite,
}
