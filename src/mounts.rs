//! The life of mounts: whatever stands in the mount table is opened, followed and closed here.
//!
//! The table ([`auth::mounts`](crate::auth::mounts)) says what is mounted; the engines hold what is open.
//! [`Mounts`] keeps the two together, for whoever has a reason to: the start opens what is stored, a request
//! that enables or disables a mount changes the table and the engine with it, a request to a mount that is not
//! open yet wakes it, the follower of other nodes (`follow`) hands on what they changed, and what engines do
//! by themselves now and then is begun in `background`. Nobody else opens or closes a mount. Which managed keys a
//! mount may use stands in the table, too: `grants` tells the registry of keys, which is followed with the table.
//!
//! A kind of mount is one variant of [`MountKind`]. What it opens and how it is closed are its arms in this
//! file; what happens when another node changed it is its arm of `Open` in `follow`.
//!
//! The table decides: whatever overlaps, a mount that is not in it does not stay open.

mod background;
mod follow;
mod grants;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::Auth;
use crate::auth::login::From;
use crate::auth::login::method::Method;
use crate::auth::login::open::Open;
use crate::auth::mounts::{Mount, MountKind, Move};
use crate::documents::MountId;
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::keys::managed::BackendType;
use crate::keys::{Known, ManagedKeys};
use crate::pki::check::validity::Limits;
use crate::pki::{Authority, Engine};
use crate::x509::public_key::PublicKey;

pub use grants::MountGrants;

/// Most issuers that a warning names.
const MOST_NAMED: usize = 20;
/// Most keys of one managed key that are tested.
const MOST_KEYS: usize = 16;

/// How long certificates of a mount live.
pub fn lifetimes(mount: &Mount) -> Limits {
    Limits { mount_default: mount.default_ttl(), mount_max: mount.max_ttl(), authority_default: mount.authority_ttl() }
}

/// All mounts of one server.
pub struct Mounts {
    auth: Arc<Auth>,
    keys: Arc<ManagedKeys>,
    pki: Arc<Engine>,
}

impl Mounts {
    /// Opens every mount of the table.
    ///
    /// # Errors
    /// `Unavailable` from storage, `Internal` when what is stored of a mount cannot be read.
    pub async fn open(auth: Arc<Auth>, keys: Arc<ManagedKeys>, pki: Arc<Engine>) -> Result<Arc<Self>> {
        // Before any mount signs, and also where the first one is made later.
        pki.compromised().reload().await?;
        let mounts = Self { auth, keys, pki };
        for mount in mounts.auth.mounts().iter() {
            mounts.open_one(mount, From::Stored).await?;
        }
        Ok(Arc::new(mounts))
    }

    /// Mounts a secret engine, which answers as soon as this is done.
    ///
    /// # Errors
    /// As [`Auth::mount_enable`].
    pub async fn enable(&self, path: &str, fields: &Fields) -> Result<Arc<Mount>> {
        let mount = self.auth.mount_enable(path, fields).await?;
        self.open_one(&mount, From::Nothing).await?;
        Ok(mount)
    }

    /// Mounts an authentication method at `auth/<path>`.
    ///
    /// # Errors
    /// As [`Auth::auth_enable`].
    pub async fn enable_method(&self, path: &str, fields: &Fields, known_as: Option<&str>) -> Result<Arc<Mount>> {
        let mount = self.auth.auth_enable(path, fields, known_as).await?;
        self.open_one(&mount, From::Nothing).await?;
        Ok(mount)
    }

    /// Changes the settings of a mount; authentication methods are named with their `auth/`. Warns of issuers that
    /// cannot sign any more because the mount may not use their keys now.
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
            let (named, more) = (lost[..lost.len().min(MOST_NAMED)].join(", "), lost.len().saturating_sub(MOST_NAMED));
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let text =
                "allowed_managed_keys: issuers that cannot sign any more, because the mount may not use their keys";
            warnings.add(format!("{text}: {named}{more}"));
        }
        Ok(warnings)
    }

    /// The keys that issuers of mounts sign with by a managed key, as they were when the mounts took them into use.
    pub fn keys_in_use(&self, kind: BackendType, name: &str) -> Vec<Known> {
        let Some(uuid) = self.keys.uuid(kind, name) else { return Vec::new() };
        let mut keys: Vec<Known> = Vec::new();
        for key in self.pki.keys_of(&uuid) {
            if keys.len() < MOST_KEYS && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The keys of the certificates of all mounts that may use a managed key.
    pub fn candidate_keys(&self, kind: BackendType, name: &str) -> Vec<PublicKey> {
        let Some(record) = self.keys.read(kind, name) else { return Vec::new() };
        let mounts = self.auth.mounts();
        let may_use = |mount: MountId| {
            let lists = |mount: &Arc<Mount>| mount.allowed_managed_keys.contains(&record.name);
            record.terms.any_mount || mounts.by_id(mount).is_some_and(lists)
        };
        self.pki.certificate_keys(may_use)
    }

    fn refused_issuers(&self, path: &str) -> BTreeSet<String> {
        let mount = self.auth.mounts().get(path).map(|mount| mount.id);
        let authority = mount.and_then(|mount| self.pki.authority(mount).ok());
        authority.map(|authority| authority.refused_issuers()).unwrap_or_default()
    }

    /// Unmounts a secret engine and drops everything it stored; an absent one too.
    ///
    /// # Errors
    /// As [`Auth::mount_disable`].
    pub async fn disable(&self, path: &str) -> Result<()> {
        let disabled = self.auth.mount_disable(path).await;
        // After an error too: the mount may be gone all the same.
        self.close_absent();
        disabled.map(drop)
    }

    /// Disables the authentication method at `auth/<path>`, which ends the tokens of its logins; an absent one
    /// too.
    ///
    /// # Errors
    /// As [`Auth::auth_disable`].
    pub async fn disable_method(&self, path: &str) -> Result<()> {
        let disabled = self.auth.auth_disable(path).await;
        self.close_absent();
        self.tokens_ended();
        disabled.map(drop)
    }

    /// Moves a mount to another path. What is open stays open: it is known by the mount's id.
    ///
    /// # Errors
    /// As [`Auth::mount_move`].
    pub async fn remount(&self, from: &str, to: &str) -> Result<Move> {
        self.auth.mount_move(from, to).await
    }

    /// The authority of a mount that a request was led to. One that is in the table and not open here (its
    /// enabling was cut short) is opened now.
    ///
    /// # Errors
    /// `NotFound` when it was just disabled; as [`Mounts::open`].
    pub async fn authority(&self, mount: &Mount) -> Result<Arc<Authority>> {
        if let Ok(open) = self.pki.authority(mount.id) {
            return Ok(open);
        }
        if self.is_mounted(mount.id) {
            self.open_one(mount, From::Stored).await?;
        }
        self.pki.authority(mount.id)
    }

    /// The authentication method of a mount that a request was led to; as [`Mounts::authority`].
    ///
    /// # Errors
    /// `NotFound` when it was just disabled; as [`Mounts::open`].
    pub(crate) async fn method<M: Method>(&self, mount: &Mount) -> Result<Arc<Open<M>>> {
        if let Some(open) = self.auth.logins().of(mount.id) {
            return Ok(open);
        }
        if self.is_mounted(mount.id) {
            self.open_one(mount, From::Stored).await?;
        }
        self.auth.logins().of(mount.id).ok_or_else(Error::not_found)
    }

    /// To be called when tokens have ended: wakes whoever ends what they made.
    pub fn tokens_ended(&self) {
        self.pki.wake_leases();
    }

    /// Has secret ids that have ended swept now rather than later.
    pub(crate) fn sweep_secret_ids(&self) {
        self.auth.logins().wake_sweep();
    }

    async fn open_one(&self, mount: &Mount, from: From) -> Result<()> {
        match (&mount.kind, from) {
            (MountKind::Pki, From::Stored) => self.pki.open(mount.id).await?,
            (MountKind::Pki, From::Nothing) => self.pki.open_new(mount.id).await,
            (MountKind::AppRole | MountKind::Jwt | MountKind::Cloudb, from) => {
                self.auth.logins().open(mount, from).await?;
            }
            // Their state is the whole server's.
            (MountKind::Token | MountKind::System | MountKind::Identity, _) => {}
            // Nothing answers there.
            (MountKind::Cubbyhole | MountKind::Unknown(_), _) => {}
        }
        // It may have been disabled while it was read, when there was nothing to close yet.
        if !self.is_mounted(mount.id) {
            self.close(mount.id);
        }
        Ok(())
    }

    fn close(&self, mount: MountId) {
        self.pki.close(mount);
        self.auth.logins().close(mount);
    }

    /// Closes whatever is not in the table any more.
    fn close_absent(&self) {
        let mounts = self.auth.mounts();
        let is_there = |id| mounts.by_id(id).is_some();
        self.pki.close_others(is_there);
        self.auth.logins().close_others(is_there);
    }

    fn is_mounted(&self, id: MountId) -> bool {
        self.auth.mounts().iter().any(|mount| mount.id == id)
    }
}
