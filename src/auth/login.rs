//! Authentication methods: who has no token yet shows something else, and gets one.
//!
//! A method is a [`Method`]: what its configuration and its roles are, and what is made of them for logins. Each of
//! its mounts that is open here is an [`Open`] with one published [`View`](method::View) of both: a login loads it
//! by one atomic swap, a change commits its documents by compare-and-set and publishes the next view before it is
//! answered. [`Logins`] holds the open mounts, whatever their methods; [`mounts`](crate::mounts) opens, closes and
//! follows them as the mount table says.
//!
//! The parts: `role` (what every role is), `method` (what every method is, and its view), `open` (a mount of one),
//! `roles` and `config` (changes of both), `verifier` (signed tokens); and a part for each method. A new method is a variant of
//! [`MountKind`], a part with its [`Method`], and its line in [`Logins::start`].

#![allow(dead_code)]

pub(crate) mod approle;
pub(crate) mod cloudb;
mod config;
pub(crate) mod jwt;
pub(crate) mod method;
pub(crate) mod open;
pub(crate) mod role;
mod roles;
#[allow(unused_imports, reason = "the methods that call it come next")]
mod verifier;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use self::method::Method;
use self::open::{Open, Opened};
use super::mounts::{Mount, MountKind};
use super::store::AuthStore;
use super::token::TokenTerms;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};

/// The mounts of authentication methods that are open.
pub(crate) struct Logins {
    store: Arc<dyn AuthStore>,
    open: ArcSwap<HashMap<MountId, Arc<dyn Opened>>>,
    /// Held while one is read, so that no mount is open twice.
    opening: tokio::sync::Mutex<()>,
}

/// What a mount is opened from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// What is stored of it.
    Stored,
    /// Nothing: it was made this moment. Nothing is read, so nothing can fail.
    Nothing,
}

impl Logins {
    /// None open yet.
    pub(super) fn new(store: Arc<dyn AuthStore>) -> Self {
        Self { store, open: ArcSwap::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Opens a mount, unless it is open or its kind is no authentication method with roles of its own.
    ///
    /// # Errors
    /// Those of the store; `Internal` when what is stored cannot be read.
    pub(crate) async fn open(&self, mount: &Mount, from: From) -> Result<()> {
        let _one_at_a_time = self.opening.lock().await;
        if self.open.load().contains_key(&mount.id) {
            return Ok(());
        }
        let Some(opened) = self.start(mount, from).await? else { return Ok(()) };
        self.open.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(mount.id, Arc::clone(&opened));
            all
        });
        Ok(())
    }

    /// What a kind of mount is opened as: the one list that a new method joins.
    async fn start(&self, mount: &Mount, from: From) -> Result<Option<Arc<dyn Opened>>> {
        Ok(match &mount.kind {
            MountKind::AppRole => Some(self.opened::<approle::AppRoles>(mount.id, from).await?),
            MountKind::Jwt => Some(self.opened::<jwt::Jwt>(mount.id, from).await?),
            MountKind::Cloudb => Some(self.opened::<cloudb::Cloudb>(mount.id, from).await?),
            MountKind::Pki
            | MountKind::Token
            | MountKind::System
            | MountKind::Identity
            | MountKind::Cubbyhole
            | MountKind::Unknown(_) => None,
        })
    }

    async fn opened<M: Method>(&self, mount: MountId, from: From) -> Result<Arc<dyn Opened>> {
        let open = Open::<M>::new(mount, Arc::clone(&self.store))?;
        if from == From::Stored {
            open.reload().await?;
        }
        Ok(Arc::new(open))
    }

    /// The open mount with this id, when it is of the method `M`.
    pub(crate) fn of<M: Method>(&self, mount: MountId) -> Option<Arc<Open<M>>> {
        self.any(mount)?.into_any().downcast().ok()
    }

    /// The open mount with this id, whatever its method.
    pub(crate) fn any(&self, mount: MountId) -> Option<Arc<dyn Opened>> {
        self.open.load().get(&mount).cloned()
    }

    /// Forgets a mount. Whoever still holds it finds it empty.
    pub(crate) fn close(&self, mount: MountId) {
        if let Some(open) = self.any(mount) {
            open.close();
            self.open.rcu(|all| {
                let mut all = HashMap::clone(all);
                all.remove(&mount);
                all
            });
        }
    }

    /// Forgets every mount that is not `there` any more, as [`Logins::close`] does.
    pub(crate) fn close_others(&self, there: impl Fn(MountId) -> bool) {
        let open: Vec<MountId> = self.open.load().keys().copied().collect();
        open.into_iter().filter(|mount| !there(*mount)).for_each(|mount| self.close(mount));
    }

    /// Reads again what was written and perhaps not stored. To be called again and again.
    ///
    /// # Errors
    /// Those of the store; the views then stay as they were.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let open: Vec<_> = self.open.load().values().cloned().collect();
        for open in open {
            open.catch_up().await?;
        }
        Ok(())
    }

    /// What the role says now of the tokens that it made: for their renewals.
    ///
    /// # Errors
    /// `Invalid` when there is no such role any more; `Unavailable` when the mount is not open here yet.
    pub(crate) fn terms(&self, mount: MountId, role: &str) -> Result<TokenTerms> {
        let open = self.any(mount).ok_or_else(|| Error::new(Kind::Unavailable, "auth: the method is not open here"))?;
        open.terms(role).ok_or_else(|| Error::invalid(format!("role {role} does not exist during renewal")))
    }
}
