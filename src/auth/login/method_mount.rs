//! An open mount of an authentication method. It holds the mount's view, and no other code replaces that view.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::method::{AuthMethod, CONFIG_DOCUMENT, MethodView, ROLE_DOCUMENT_KIND};
use crate::auth::store::{AuthStore, AuthWrite};
use crate::auth::token::TokenTerms;
use crate::documents::{MountId, TOO_MANY_CHANGES, retry_on_conflict, unreadable_document};
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::rationing::{FairSemaphore, QueueCaller};

/// An open mount of the authentication method `M`.
pub(crate) struct MethodMount<M: AuthMethod> {
    mount: MountId,
    store: Arc<dyn AuthStore>,
    view: ArcSwap<MethodView<M>>,
    /// Held during a change, so that changes run one at a time.
    write_lock: FairSemaphore,
    /// `true` if a write failed, the store may nevertheless have committed it, and the state was not reloaded
    /// afterwards. Changes only while `write_lock` is held.
    write_outcome_unknown: AtomicBool,
}

/// An open mount of any authentication method, for code that does not depend on the method.
pub(crate) trait AnyMethodMount: Send + Sync {
    /// Reloads the configuration and roles from the store, and publishes them as a new view.
    fn reload(&self) -> BoxFuture<'_, Result<()>>;

    /// Calls [`AnyMethodMount::reload`] if an earlier write failed with an unknown outcome.
    fn reload_after_unknown_write(&self) -> BoxFuture<'_, Result<()>>;

    /// Returns the token settings of a role; `None` if the role does not exist.
    fn terms(&self, role: &str) -> Option<TokenTerms>;

    /// Returns the role that a login request names; `None` if the request does not determine it.
    fn login_role_name(&self, sent: &Fields) -> Option<String>;

    /// Publishes an empty view, because the mount was disabled; logins fail from then on.
    fn close(&self);

    /// Converts the mount to `Any`, for downcasting to the method's type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A planned change of a mount, computed from its current view. `T` is the result for the caller of the change.
pub(super) enum MethodChangePlan<M: AuthMethod, T> {
    /// The view already has the requested state, so nothing is written.
    Unchanged(T),
    /// The writes to commit together, the view to publish after the commit, and the result.
    Write(Vec<AuthWrite>, MethodView<M>, T),
}

impl<M: AuthMethod> MethodMount<M> {
    pub(super) fn new(mount: MountId, store: Arc<dyn AuthStore>) -> Result<Self> {
        let view = ArcSwap::from_pointee(MethodView::empty()?);
        let write_lock = FairSemaphore::new(1);
        Ok(Self { mount, store, view, write_lock, write_outcome_unknown: AtomicBool::new(false) })
    }

    /// Returns the current view of the mount.
    pub(crate) fn view(&self) -> Arc<MethodView<M>> {
        self.view.load_full()
    }

    pub(super) fn mount(&self) -> MountId {
        self.mount
    }

    /// The store, for rows that are not part of the view, such as secret ids.
    pub(super) fn store(&self) -> &dyn AuthStore {
        &*self.store
    }

    /// Plans a change, commits it and publishes the next view. Starts again after a conflict with another node. If the
    /// plan changes nothing or fails with a conflict, `plan` is called once more on freshly loaded state, because this
    /// node's view may lack a change by another node.
    pub(super) async fn change<T>(&self, plan: impl Fn(&MethodView<M>) -> Result<MethodChangePlan<M, T>>) -> Result<T> {
        let _one_writer = self.write_lock.acquire_bounded(TOO_MANY_CHANGES).await?;
        let attempt = async || {
            if self.write_outcome_unknown.load(Ordering::Relaxed) {
                self.reload_locked().await?;
            }
            let mut planned = plan(&self.view());
            let is_conflict = |error: &Error| error.kind() == Kind::Conflict;
            if matches!(planned, Ok(MethodChangePlan::Unchanged(_))) || planned.as_ref().is_err_and(is_conflict) {
                self.reload_locked().await?;
                planned = plan(&self.view());
            }
            match planned.map_err(conflict_as_invalid)? {
                MethodChangePlan::Unchanged(answer) => Ok(answer),
                MethodChangePlan::Write(unit, next, answer) => {
                    self.commit_and_publish(unit, next).await.map(|()| answer)
                }
            }
        };
        retry_on_conflict("the auth method", attempt).await
    }

    async fn commit_and_publish(&self, unit: Vec<AuthWrite>, next: MethodView<M>) -> Result<()> {
        let Err(error) = self.store.commit(unit).await else {
            self.view.store(Arc::new(next));
            return Ok(());
        };
        self.reload_after_failed_write(&error).await;
        Err(error)
    }

    /// Reloads the view after a failed write, because the store may have committed the write nevertheless, or another
    /// node may have changed the state first.
    async fn reload_after_failed_write(&self, error: &Error) {
        let is_behind = match error.kind() {
            // `Busy` means that the store did not accept the write, so nothing has changed.
            Kind::Busy => return,
            // The next attempt reloads the state, so that it plans on the most recent state.
            Kind::Conflict => true,
            _ => self.reload_locked().await.is_err(),
        };
        self.write_outcome_unknown.store(is_behind, Ordering::Relaxed);
    }

    async fn reload_locked(&self) -> Result<()> {
        let mut documents = self.store.documents_of(self.mount, ROLE_DOCUMENT_KIND).await?;
        documents.extend(self.store.documents_of(self.mount, CONFIG_DOCUMENT.0).await?);
        // A parse error already names its document. Any other error is about the configuration document.
        let next = MethodView::load(&documents, &self.view()).map_err(|error| match error.kind() {
            Kind::Internal => error,
            _ => unreadable_document(self.mount, CONFIG_DOCUMENT.0, CONFIG_DOCUMENT.1, error.text()),
        })?;
        self.view.store(Arc::new(next));
        self.write_outcome_unknown.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn reload(&self) -> Result<()> {
        let _one_writer = self.write_lock.acquire(QueueCaller::SERVER.caller_id()).await;
        self.reload_locked().await
    }
}

impl<M: AuthMethod> AnyMethodMount for MethodMount<M> {
    fn reload(&self) -> BoxFuture<'_, Result<()>> {
        Self::reload(self).boxed()
    }

    fn reload_after_unknown_write(&self) -> BoxFuture<'_, Result<()>> {
        let behind = self.write_outcome_unknown.load(Ordering::Relaxed);
        async move { if behind { Self::reload(self).await } else { Ok(()) } }.boxed()
    }

    fn terms(&self, role: &str) -> Option<TokenTerms> {
        self.view.load().terms(role)
    }

    fn login_role_name(&self, sent: &Fields) -> Option<String> {
        M::login_role_name(&self.view.load(), sent)
    }

    fn close(&self) {
        if let Ok(empty) = MethodView::empty() {
            self.view.store(Arc::new(empty));
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Converts `Conflict` to `Invalid`: the change contradicts the current stored state, so a retry cannot succeed.
fn conflict_as_invalid(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => Error::invalid(error.text().to_owned()),
        _ => error,
    }
}
