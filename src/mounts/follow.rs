//! Applies changes that other nodes have made to the open mounts of this node. Called by [`nodes`](crate::nodes).

use std::sync::Arc;

use metrics::counter;

use super::{InitialMountState, Mounts};
use crate::auth::login::method_mount::AnyMethodMount;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::pki::Authority;
use crate::telemetry;

enum OpenMount {
    Pki(Arc<Authority>),
    Method(Arc<dyn AnyMethodMount>),
}

impl OpenMount {
    async fn reload(&self) -> Result<()> {
        match self {
            Self::Pki(authority) => authority.reload().await,
            Self::Method(method) => method.reload().await,
        }
    }

    /// Drops the revocations and CRLs in memory, and reloads them from the store in the background.
    fn reload_revocations(&self) {
        match self {
            Self::Pki(authority) => authority.rebuild_crls_from_storage(),
            Self::Method(_) => {}
        }
    }

    /// `true` if this node's CRLs contain all revocations up to the number `revocations`; `None` for a mount without
    /// CRLs.
    fn has_published_revocations(&self, revocations: u64) -> Option<bool> {
        match self {
            Self::Pki(authority) => Some(authority.are_crls_up_to_date(revocations)),
            Self::Method(_) => None,
        }
    }

    /// Fetches or builds CRLs that contain the revocations by other nodes, in the background.
    fn update_crls_from_other_nodes(&self) {
        match self {
            Self::Pki(authority) => authority.update_crls_from_other_nodes(),
            Self::Method(_) => {}
        }
    }
}

impl Mounts {
    /// Reloads policies, mount table and managed keys after a change by another node, and opens and closes mounts
    /// accordingly.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage. A mount whose documents cannot be read stays closed, and the error is
    /// logged.
    pub async fn reload_table(&self) -> Result<()> {
        self.auth.reload().await?;
        let compromised = self.pki.compromised().reload().await;
        compromised.or_else(|error| {
            log_if_unreadable("reload of compromised keys after a change by another node failed", error)
        })?;
        self.keys.reload().await.or_else(|error| {
            log_if_unreadable("reload of managed keys after a change by another node failed", error)
        })?;
        counter!(telemetry::CHANGES_RELOADS, "part" => "system").increment(1);
        self.close_unmounted();
        for mount in self.auth.mounts().iter() {
            if let Err(error) = self.open_mount(mount, InitialMountState::Stored).await {
                log_if_unreadable(
                    &format!("mount {:?}: cannot be opened after a change by another node", mount.path),
                    error,
                )?;
            }
        }
        Ok(())
    }

    /// Reloads a mount after another node has changed it. Does nothing if the mount is not open on this node.
    ///
    /// # Errors
    /// As [`Mounts::reload_table`]; the mount then keeps its previous state.
    pub async fn reload_mount(&self, mount: MountId) -> Result<()> {
        let Some(open) = self.find_open_mount(mount) else { return Ok(()) };
        let reload = open.reload().await;
        counter!(telemetry::CHANGES_RELOADS, "part" => "mount").increment(1);
        reload.or_else(|error| {
            let path = self.auth.mounts().by_id(mount).map(|mount| mount.path.clone()).unwrap_or_default();
            log_if_unreadable(&format!("mount {path:?}: reload after a change by another node failed"), error)
        })
    }

    /// Reloads all state of a mount that is open on this node. Called after the database has lost committed writes, for
    /// example in a failover. Revocations and CRLs are reloaded in the background.
    ///
    /// # Errors
    /// As [`Mounts::reload_mount`].
    pub async fn reload_mount_and_revocations(&self, mount: MountId) -> Result<()> {
        self.reload_mount(mount).await?;
        if let Some(open) = self.find_open_mount(mount) {
            open.reload_revocations();
        }
        Ok(())
    }

    /// `true` if this node's CRLs of the mount contain all revocations up to the number `revocations`; `None` if the
    /// mount is not open or has no CRLs.
    pub fn has_published_revocations(&self, mount: MountId, revocations: u64) -> Option<bool> {
        self.find_open_mount(mount)?.has_published_revocations(revocations)
    }

    /// Updates the mount's CRLs with revocations by other nodes, in the background.
    pub fn update_crls_from_other_nodes(&self, mount: MountId) {
        if let Some(open) = self.find_open_mount(mount) {
            open.update_crls_from_other_nodes();
            counter!(telemetry::CHANGES_RELOADS, "part" => "crls").increment(1);
        }
    }

    fn find_open_mount(&self, mount: MountId) -> Option<OpenMount> {
        let authority = self.pki.authority(mount).ok().map(OpenMount::Pki);
        authority.or_else(|| self.auth.logins().any_mount(mount).map(OpenMount::Method))
    }
}

/// Logs an `Internal` error, so that this node still applies other changes; returns all other errors. An `Internal`
/// error occurs, for example, if a newer version of Signet wrote a document that this version cannot read.
fn log_if_unreadable(what: &str, error: Error) -> Result<()> {
    if error.kind() == Kind::Internal {
        telemetry::warn_task_failed(what, &error);
        return Ok(());
    }
    Err(error)
}
