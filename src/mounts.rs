//! The lifecycle of mounts: opens and closes the engines of the mounts in the mount table.
//!
//! The table ([`auth::mounts`](crate::auth::mounts)) lists the mounts; the engines hold the open mounts. [`Mounts`]
//! keeps both consistent: at start-up, when a request enables or disables a mount, when a request arrives for a mount
//! that is not open yet, and when another node changed the table (`follow`). No other code opens or closes mounts.
//! `background` runs periodic work; `grants` looks up the managed keys that a mount may use.
//!
//! A new [`MountKind`] needs an arm in `open_mount`; a new secret engine also needs a variant of `OpenMount` in
//! `follow`.

mod background;
mod follow;
mod grants;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::Auth;
use crate::auth::login::InitialMountState;
use crate::auth::login::method::AuthMethod;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::mounts::{Mount, MountKind, MountMove};
use crate::documents::MountId;
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::keys::managed::BackendType;
use crate::keys::{KeyIdentity, ManagedKeys};
use crate::pki::check::validity::MountLifetimes;
use crate::pki::{Authority, Engine};
use crate::x509::public_key::PublicKey;

pub use grants::MountGrants;

/// Maximum number of issuers that are named in one warning.
const MAX_ISSUERS_IN_WARNING: usize = 20;
/// Maximum number of public keys that are tested for one managed key.
const MAX_TESTED_KEYS_PER_MANAGED_KEY: usize = 16;

/// Returns the default and maximum lifetimes of certificates that a mount issues.
pub fn lifetime_limits(mount: &Mount) -> MountLifetimes {
    MountLifetimes {
        mount_default: mount.default_ttl(),
        mount_max: mount.max_ttl(),
        authority_default: mount.authority_ttl(),
    }
}

/// Opens, closes and maintains all mounts of one server.
pub struct Mounts {
    auth: Arc<Auth>,
    keys: Arc<ManagedKeys>,
    pki: Arc<Engine>,
}

impl Mounts {
    /// Opens every mount in the mount table.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Internal` when the stored state of a mount cannot be read.
    pub async fn open(auth: Arc<Auth>, keys: Arc<ManagedKeys>, pki: Arc<Engine>) -> Result<Arc<Self>> {
        // The list of compromised keys must be loaded before any mount signs, so it is loaded even if there are no
        // mounts yet.
        pki.compromised().reload().await?;
        let mounts = Self { auth, keys, pki };
        for mount in mounts.auth.mounts().iter() {
            mounts.open_mount(mount, InitialMountState::Stored).await?;
        }
        Ok(Arc::new(mounts))
    }

    /// Adds a secret engine to the mount table at `path`, and opens the mount.
    ///
    /// # Errors
    /// As [`Auth::mount_enable`].
    pub async fn enable(&self, path: &str, fields: &Fields) -> Result<Arc<Mount>> {
        let mount = self.auth.mount_enable(path, fields).await?;
        self.open_mount(&mount, InitialMountState::Empty).await?;
        Ok(mount)
    }

    /// Adds an authentication method to the mount table at `auth/<path>`, and opens the mount.
    ///
    /// # Errors
    /// As [`Auth::auth_enable`].
    pub async fn enable_method(&self, path: &str, fields: &Fields, known_as: Option<&str>) -> Result<Arc<Mount>> {
        let mount = self.auth.auth_enable(path, fields, known_as).await?;
        self.open_mount(&mount, InitialMountState::Empty).await?;
        Ok(mount)
    }

    /// Changes the settings of a mount; the path of an authentication method includes `auth/`. Returns a warning if
    /// issuers can no longer sign, because the mount may no longer use their managed keys. The warning names these
    /// issuers.
    ///
    /// # Errors
    /// As [`Auth::mount_tune`].
    pub async fn tune(&self, path: &str, fields: &Fields) -> Result<Warnings> {
        let before = self.refused_issuers(path);
        self.auth.mount_tune(path, fields).await?;
        let refused = self.refused_issuers(path);
        let lost: Vec<&str> = refused.difference(&before).map(String::as_str).collect();
        let mut warnings = Warnings::default();
        if !lost.is_empty() {
            let named = lost[..lost.len().min(MAX_ISSUERS_IN_WARNING)].join(", ");
            let more = lost.len().saturating_sub(MAX_ISSUERS_IN_WARNING);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let text =
                "allowed_managed_keys: these issuers can no longer sign, because the mount may not use their keys";
            warnings.add(format!("{text}: {named}{more}"));
        }
        Ok(warnings)
    }

    /// Returns the public keys that issuers expect the managed key `name` to have. Each was recorded when an issuer
    /// first used the managed key.
    pub fn keys_in_use(&self, kind: BackendType, name: &str) -> Vec<KeyIdentity> {
        let Some(uuid) = self.keys.uuid(kind, name) else { return Vec::new() };
        let mut keys: Vec<KeyIdentity> = Vec::new();
        for key in self.pki.keys_using_managed_key(&uuid) {
            if keys.len() < MAX_TESTED_KEYS_PER_MANAGED_KEY && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Returns the public keys of the issuers in all mounts that may use the managed key `name`.
    pub fn candidate_keys(&self, kind: BackendType, name: &str) -> Vec<PublicKey> {
        let Some(record) = self.keys.read(kind, name) else { return Vec::new() };
        let mounts = self.auth.mounts();
        let may_use = |mount: MountId| {
            let lists = |mount: &Arc<Mount>| mount.allowed_managed_keys.contains(&record.name);
            record.terms.any_mount || mounts.by_id(mount).is_some_and(lists)
        };
        self.pki.issuer_public_keys(may_use)
    }

    fn refused_issuers(&self, path: &str) -> BTreeSet<String> {
        let mount = self.auth.mounts().get(path).map(|mount| mount.id);
        let authority = mount.and_then(|mount| self.pki.authority(mount).ok());
        authority.map(|authority| authority.refused_issuers()).unwrap_or_default()
    }

    /// Unmounts a secret engine and deletes everything that the engine stored. Succeeds if there is no secret engine at
    /// `path`.
    ///
    /// # Errors
    /// As [`Auth::mount_disable`].
    pub async fn disable(&self, path: &str) -> Result<()> {
        let disabled = self.auth.mount_disable(path).await;
        // Mounts are closed even after an error, because the commit may have deleted the mount nevertheless.
        self.close_unmounted();
        disabled.map(drop)
    }

    /// Disables the authentication method at `auth/<path>`, and revokes the tokens of its logins. Succeeds if there is
    /// no such method.
    ///
    /// # Errors
    /// As [`Auth::auth_disable`].
    pub async fn disable_method(&self, path: &str) -> Result<()> {
        let disabled = self.auth.auth_disable(path).await;
        self.close_unmounted();
        self.notify_tokens_ended();
        disabled.map(drop)
    }

    /// Moves a mount to another path. The mount stays open, because open mounts are indexed by id.
    ///
    /// # Errors
    /// As [`Auth::mount_move`].
    pub async fn remount(&self, from: &str, to: &str) -> Result<MountMove> {
        self.auth.mount_move(from, to).await
    }

    /// Returns the certificate authority of a mount. Opens a mount that is in the table but not open, for example after
    /// an interrupted request to enable it.
    ///
    /// # Errors
    /// `NotFound` when the mount was just disabled; the errors of [`Mounts::open`].
    pub async fn authority(&self, mount: &Mount) -> Result<Arc<Authority>> {
        if let Ok(open) = self.pki.authority(mount.id) {
            return Ok(open);
        }
        if self.is_mounted(mount.id) {
            self.open_mount(mount, InitialMountState::Stored).await?;
        }
        self.pki.authority(mount.id)
    }

    /// Returns the authentication method of a mount. Opens a mount that is not open yet, like [`Mounts::authority`].
    ///
    /// # Errors
    /// `NotFound` when the mount was just disabled; the errors of [`Mounts::open`].
    pub(crate) async fn method<M: AuthMethod>(&self, mount: &Mount) -> Result<Arc<MethodMount<M>>> {
        if let Some(open) = self.auth.logins().method_mount(mount.id) {
            return Ok(open);
        }
        if self.is_mounted(mount.id) {
            self.open_mount(mount, InitialMountState::Stored).await?;
        }
        self.auth.logins().method_mount(mount.id).ok_or_else(Error::not_found)
    }

    /// Starts the revocation of leases whose token was revoked or has expired. Must be called after tokens are revoked.
    pub fn notify_tokens_ended(&self) {
        self.pki.wake_lease_sweep();
    }

    /// Requests a sweep of expired secret ids.
    pub(crate) fn sweep_secret_ids(&self) {
        self.auth.logins().request_sweep();
    }

    async fn open_mount(&self, mount: &Mount, from: InitialMountState) -> Result<()> {
        match (&mount.kind, from) {
            (MountKind::Pki, InitialMountState::Stored) => self.pki.open(mount.id).await?,
            (MountKind::Pki, InitialMountState::Empty) => self.pki.open_new(mount.id).await,
            (MountKind::AppRole | MountKind::Jwt | MountKind::Cloudb, from) => {
                self.auth.logins().open(mount, from).await?;
            }
            // Mounts of these kinds have no state to open.
            (MountKind::Token | MountKind::System | MountKind::Identity, _) => {}
            // Mounts of these kinds have nothing to open either.
            (MountKind::Cubbyhole | MountKind::Unknown(_), _) => {}
        }
        // A concurrent request may have disabled the mount before this call opened it. That request found no open
        // mount, so this call closes the mount.
        if !self.is_mounted(mount.id) {
            self.close(mount.id);
        }
        Ok(())
    }

    fn close(&self, mount: MountId) {
        self.pki.close(mount);
        self.auth.logins().close(mount);
    }

    /// Closes all open mounts that are no longer in the mount table.
    fn close_unmounted(&self) {
        let mounts = self.auth.mounts();
        let is_there = |id| mounts.by_id(id).is_some();
        self.pki.close_others(is_there);
        self.auth.logins().close_others(is_there);
    }

    fn is_mounted(&self, id: MountId) -> bool {
        self.auth.mounts().iter().any(|mount| mount.id == id)
    }
}
