//! A mount of an authentication method that is open: its view, and the one way in which that changes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::method::{CONFIG, Method, ROLE, View};
use crate::auth::store::{AuthStore, AuthWrite};
use crate::auth::token::TokenTerms;
use crate::documents::{MountId, TOO_MANY_CHANGES, repeated, unreadable};
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::turns::{self, Entrance};

/// An open mount of the method `M`.
pub(crate) struct Open<M: Method> {
    mount: MountId,
    store: Arc<dyn AuthStore>,
    view: ArcSwap<View<M>>,
    /// Held while something changes.
    writing: Entrance,
    /// A write failed, perhaps after it was stored, and what is stored could not be read since. Changes only
    /// under `writing`.
    behind: AtomicBool,
}

/// An open mount of whatever method, for whoever opens, follows and closes them.
pub(crate) trait Opened: Send + Sync {
    /// Reads what is stored again and publishes it.
    fn reload(&self) -> BoxFuture<'_, Result<()>>;

    /// The same, when a write failed that may be stored all the same.
    fn catch_up(&self) -> BoxFuture<'_, Result<()>>;

    /// What a role says of the tokens that it makes; `None` when there is no such role.
    fn terms(&self, role: &str) -> Option<TokenTerms>;

    /// The name of the role that a login is under, as far as what is sent tells.
    fn role_of(&self, sent: &Fields) -> Option<String>;

    /// Publishes that nothing is there: the mount is gone.
    fn close(&self);

    /// Itself, for who knows its method.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// What a change comes to, on the view that it was worked out on.
pub(super) enum Plan<M: Method, T> {
    /// There is nothing to do.
    Nothing(T),
    /// To be stored together; then the next view, and the answer.
    Write(Vec<AuthWrite>, View<M>, T),
}

impl<M: Method> Open<M> {
    /// One with nothing stored.
    pub(super) fn new(mount: MountId, store: Arc<dyn AuthStore>) -> Result<Self> {
        let (view, writing) = (ArcSwap::from_pointee(View::empty()?), Entrance::new(1));
        Ok(Self { mount, store, view, writing, behind: AtomicBool::new(false) })
    }

    /// What is stored of the mount, as it was published last.
    pub(crate) fn view(&self) -> Arc<View<M>> {
        self.view.load_full()
    }

    /// The mount's id in storage.
    pub(super) fn mount(&self) -> MountId {
        self.mount
    }

    /// Where what belongs to the mount is stored, for rows that are no part of the view.
    pub(super) fn store(&self) -> &dyn AuthStore {
        &*self.store
    }

    /// Works a change out, stores it and publishes the view that it leads to. It is worked out again when another
    /// node changed the same at that moment; and once more on what is stored now when there seems to be nothing to
    /// do, or something is taken already (`Conflict`): what this node does not know another may have changed.
    pub(super) async fn change<T>(&self, plan: impl Fn(&View<M>) -> Result<Plan<M, T>>) -> Result<T> {
        let _one_writer = self.writing.enter_bounded(TOO_MANY_CHANGES).await?;
        let attempt = async || {
            if self.behind.load(Ordering::Relaxed) {
                self.reload_held().await?;
            }
            let mut planned = plan(&self.view());
            let taken = |error: &Error| error.kind() == Kind::Conflict;
            if matches!(planned, Ok(Plan::Nothing(_))) || planned.as_ref().is_err_and(taken) {
                self.reload_held().await?;
                planned = plan(&self.view());
            }
            match planned.map_err(standing)? {
                Plan::Nothing(answer) => Ok(answer),
                Plan::Write(unit, next, answer) => self.written(unit, next).await.map(|()| answer),
            }
        };
        repeated("the auth method", attempt).await
    }

    /// Stores a unit, then publishes the view that it leads to.
    async fn written(&self, unit: Vec<AuthWrite>, next: View<M>) -> Result<()> {
        let Err(error) = self.store.commit(unit).await else {
            self.view.store(Arc::new(next));
            return Ok(());
        };
        self.recheck(&error).await;
        Err(error)
    }

    /// After a write that failed with `error`: it may be stored all the same, or another node's is.
    async fn recheck(&self, error: &Error) {
        let is_behind = match error.kind() {
            // What was not admitted is not stored.
            Kind::Busy => return,
            // Read when it is tried again, not before: the fresher it is, the less comes between.
            Kind::Conflict => true,
            _ => self.reload_held().await.is_err(),
        };
        self.behind.store(is_behind, Ordering::Relaxed);
    }

    async fn reload_held(&self) -> Result<()> {
        let mut documents = self.store.documents_of(self.mount, ROLE).await?;
        documents.extend(self.store.documents_of(self.mount, CONFIG.0).await?);
        // What cannot be read has its name already; else the method can make nothing of its configuration.
        let next = View::load(&documents, &self.view()).map_err(|error| match error.kind() {
            Kind::Internal => error,
            _ => unreadable(self.mount, CONFIG.0, CONFIG.1, error.text()),
        })?;
        self.view.store(Arc::new(next));
        self.behind.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Opened::reload`].
    pub(super) async fn reload(&self) -> Result<()> {
        let _one_writer = self.writing.enter(turns::Caller::SERVER.asker()).await;
        self.reload_held().await
    }
}

impl<M: Method> Opened for Open<M> {
    fn reload(&self) -> BoxFuture<'_, Result<()>> {
        Self::reload(self).boxed()
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<()>> {
        let behind = self.behind.load(Ordering::Relaxed);
        async move { if behind { Self::reload(self).await } else { Ok(()) } }.boxed()
    }

    fn terms(&self, role: &str) -> Option<TokenTerms> {
        self.view.load().terms(role)
    }

    fn role_of(&self, sent: &Fields) -> Option<String> {
        M::role_of(&self.view.load(), sent)
    }

    fn close(&self) {
        if let Ok(empty) = View::empty() {
            self.view.store(Arc::new(empty));
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A refusal by what is stored now: to try again leads nowhere.
fn standing(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => Error::invalid(error.text().to_owned()),
        _ => error,
    }
}
