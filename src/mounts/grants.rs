//! Looks up which mounts may use a managed key, for the registry of keys ([`managed`](crate::keys::managed)).

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::auth::Auth;
use crate::documents::MountId;
use crate::error::Result;
use crate::keys::managed::{ListingMounts, ManagedKeyGrants};

/// Reads the `allowed_managed_keys` of mounts from the mount table.
pub struct MountGrants(Arc<Auth>);

impl MountGrants {
    /// Creates the lookup in the mount table of `auth`.
    pub fn new(auth: Arc<Auth>) -> Self {
        Self(auth)
    }
}

impl ManagedKeyGrants for MountGrants {
    fn lists_key(&self, mount: MountId, name: &str) -> bool {
        let mounts = self.0.mounts();
        mounts.by_id(mount).is_some_and(|mount| mount.allowed_managed_keys.iter().any(|listed| listed == name))
    }

    fn mount_path(&self, mount: MountId) -> String {
        self.0.mounts().by_id(mount).map(|mount| mount.path.clone()).unwrap_or_default()
    }

    fn listing_mounts(&self, name: String) -> BoxFuture<'static, Result<ListingMounts>> {
        let auth = Arc::clone(&self.0);
        async move {
            let (paths, unchanged) = auth.mounts_allowing_managed_key(&name).await?;
            Ok(ListingMounts { paths, unchanged })
        }
        .boxed()
    }
}
