//! Authentication methods: a client without a token presents another credential and receives a token.
//!
//! An [`AuthMethod`] defines the configuration and roles of its mounts. Each open mount is a [`MethodMount`], which
//! publishes both as one immutable snapshot ([`View`](method::MethodView)). A login reads one snapshot. A change
//! commits its documents by compare-and-set, and publishes the next snapshot before its response is sent.
//! [`mounts`](crate::mounts) opens and closes the mounts in [`Logins`].
//!
//! A new method needs a variant of [`MountKind`], a module with its [`AuthMethod`], and an arm in
//! `Logins::create_mount`.

pub(crate) mod approle;
pub(crate) mod cloudb;
mod config;
pub(crate) mod jwt;
pub(crate) mod method;
pub(crate) mod method_mount;
pub(crate) mod role;
mod roles;
mod settings;
#[cfg(test)]
mod tests;
mod verifier;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use self::method::AuthMethod;
use self::method_mount::{AnyMethodMount, MethodMount};
pub use self::settings::LoginSettings;
use super::mounts::{Mount, MountKind};
use super::store::AuthStore;
use super::token::TokenTerms;
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};

/// The open mounts of authentication methods on this node.
pub(crate) struct Logins {
    store: Arc<dyn AuthStore>,
    settings: LoginSettings,
    cloudb: Arc<cloudb::CloudbServices>,
    open: ArcSwap<HashMap<MountId, Arc<dyn AnyMethodMount>>>,
    /// Held while a mount is opened, so that concurrent calls do not open it twice.
    opening: tokio::sync::Mutex<()>,
    sweep: tokio::sync::Notify,
}

/// The initial state of a mount when this node opens it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialMountState {
    /// Load the configuration and roles from the stored documents.
    Stored,
    /// Start without configuration and roles, because the mount was just created. Nothing is read from the store, so
    /// opening cannot fail.
    Empty,
}

impl Logins {
    /// Creates the registry, without open mounts.
    ///
    /// # Errors
    /// `Invalid` for unusable `settings`.
    pub(super) fn new(store: Arc<dyn AuthStore>, settings: LoginSettings, clock: Clock) -> Result<Self> {
        let cloudb = cloudb::CloudbServices::new(settings.cloudb.clone(), clock)?;
        let open = ArcSwap::default();
        let opening = tokio::sync::Mutex::default();
        let sweep = tokio::sync::Notify::new();
        Ok(Self { store, settings, cloudb, open, opening, sweep })
    }

    /// The HTTP client and settings that all `cloudb` mounts share.
    pub(crate) fn cloudb(&self) -> &Arc<cloudb::CloudbServices> {
        &self.cloudb
    }

    /// The server's settings for all authentication methods.
    pub(crate) fn settings(&self) -> &LoginSettings {
        &self.settings
    }

    /// Requests a sweep of expired secret ids.
    pub(crate) fn request_sweep(&self) {
        self.sweep.notify_one();
    }

    /// Waits until [`Logins::request_sweep`] is called.
    pub(crate) async fn wait_for_sweep(&self) {
        self.sweep.notified().await;
    }

    /// Opens a mount. Does nothing if the mount is open already, or if it is no authentication method.
    ///
    /// # Errors
    /// Store errors; `Internal` when a stored document cannot be parsed.
    pub(crate) async fn open(&self, mount: &Mount, from: InitialMountState) -> Result<()> {
        let _one_at_a_time = self.opening.lock().await;
        if self.open.load().contains_key(&mount.id) {
            return Ok(());
        }
        let Some(created) = self.create_mount(mount, from).await? else { return Ok(()) };
        self.open.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(mount.id, Arc::clone(&created));
            all
        });
        Ok(())
    }

    /// Creates the open mount for the method that `mount.kind` names; `None` for other kinds. A new method needs an arm
    /// here.
    async fn create_mount(&self, mount: &Mount, from: InitialMountState) -> Result<Option<Arc<dyn AnyMethodMount>>> {
        Ok(match &mount.kind {
            MountKind::AppRole => Some(self.load::<approle::AppRoleMethod>(mount.id, from).await?),
            MountKind::Jwt => Some(self.load::<jwt::JwtMethod>(mount.id, from).await?),
            MountKind::Cloudb => Some(self.load::<cloudb::CloudbMethod>(mount.id, from).await?),
            MountKind::Pki
            | MountKind::Token
            | MountKind::System
            | MountKind::Identity
            | MountKind::Cubbyhole
            | MountKind::Unknown(_) => None,
        })
    }

    async fn load<M: AuthMethod>(&self, mount: MountId, from: InitialMountState) -> Result<Arc<dyn AnyMethodMount>> {
        let open = MethodMount::<M>::new(mount, Arc::clone(&self.store))?;
        if from == InitialMountState::Stored {
            open.reload().await?;
        }
        Ok(Arc::new(open))
    }

    /// Returns the open mount with this id if it belongs to the method `M`.
    pub(crate) fn method_mount<M: AuthMethod>(&self, mount: MountId) -> Option<Arc<MethodMount<M>>> {
        self.any_mount(mount)?.into_any().downcast().ok()
    }

    /// Returns the open mount with this id, whichever method it belongs to.
    pub(crate) fn any_mount(&self, mount: MountId) -> Option<Arc<dyn AnyMethodMount>> {
        self.open.load().get(&mount).cloned()
    }

    /// Closes a mount. Code that still holds the mount sees an empty view from then on.
    pub(crate) fn close(&self, mount: MountId) {
        if let Some(open) = self.any_mount(mount) {
            open.close();
            self.open.rcu(|all| {
                let mut all = HashMap::clone(all);
                all.remove(&mount);
                all
            });
        }
    }

    /// Closes every mount for which `is_mounted` returns `false`.
    pub(crate) fn close_others(&self, is_mounted: impl Fn(MountId) -> bool) {
        let open: Vec<MountId> = self.open.load().keys().copied().collect();
        open.into_iter().filter(|mount| !is_mounted(*mount)).for_each(|mount| self.close(mount));
    }

    /// Reloads each mount whose last write failed with an unknown outcome. Called periodically.
    ///
    /// # Errors
    /// Store errors; the views stay unchanged.
    pub(crate) async fn reload_after_unknown_write(&self) -> Result<()> {
        let open: Vec<_> = self.open.load().values().cloned().collect();
        for open in open {
            open.reload_after_unknown_write().await?;
        }
        Ok(())
    }

    /// Returns the current token settings of a role. They apply when a token from a login with the role is renewed.
    ///
    /// # Errors
    /// `Invalid` when the role no longer exists; `Unavailable` when the mount is not open on this node yet.
    pub(crate) fn terms(&self, mount: MountId, role: &str) -> Result<TokenTerms> {
        let open = self
            .any_mount(mount)
            .ok_or_else(|| Error::new(Kind::Unavailable, "auth method: not loaded on this node yet; retry"))?;
        open.terms(role).ok_or_else(|| Error::invalid(format!("role {role} does not exist during renewal")))
    }
}
