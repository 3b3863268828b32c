//! Role endpoints that all authentication methods share, and access to the method of a mount.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use crate::auth::login::method::Method;
use crate::auth::login::open::Open;
use crate::auth::mounts::Mount;
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::page::Page;
use crate::http::secrets::route::{Call, Named};
use crate::http::secrets::sys::to_the_end;

pub(super) const LIST: &[&str] = &["after", "limit"];
/// The path parameter for the name of a role.
pub(super) const NAME: &str = "login_role";

/// Concatenates two lists. `ALL` is the total length, and `own` must not be empty.
pub(super) const fn joined<T: Copy, const ALL: usize>(own: &[T], others: &[T]) -> [T; ALL] {
    let mut all = [own[0]; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < own.len() { own[at] } else { others[at - own.len()] };
        at += 1;
    }
    all
}

impl Call {
    /// Returns the open mount of the call. The route table guarantees that it is of the method `M`.
    pub(super) async fn method<M: Method>(&self) -> Result<Arc<Open<M>>> {
        self.state.mounts.method(&self.mount).await
    }

    /// As [`Call::method`], for a login. A login grants access without prior authorization, so revocations by other
    /// nodes must be known.
    pub(super) async fn login_method<M: Method>(&self) -> Result<Arc<Open<M>>> {
        self.state.nodes.fresh().await?;
        self.method().await
    }
}

pub(super) async fn list<M: Method>(call: Call) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    Answer::keys(page.cut(call.method::<M>().await?.view().roles().names()), None)
}

pub(super) async fn read<M: Method>(call: Call, shown: fn(&M::Role) -> Value) -> Result<Answer> {
    let view = call.method::<M>().await?.view();
    let role = view.roles().get(call.param(NAME)).ok_or_else(Error::not_found)?;
    Ok(Answer::data(shown(role)))
}

pub(super) fn exists<M: Method>(named: Named<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move {
        let view = named.state.mounts.method::<M>(named.mount).await?.view();
        Ok(view.roles().get(named.param(NAME)).is_some())
    })
}

/// Merges the fields of a request into a stored or a new role.
pub(super) type Merge<R> = fn(&Fields, Option<&R>, &Mount) -> Result<(R, Warnings)>;

/// Writes a role; 204, or 200 with warnings.
pub(super) async fn write<M: Method>(call: Call, merge: Merge<M::Role>) -> Result<Answer> {
    let open = call.method::<M>().await?;
    to_the_end(async move {
        let merged = |stored: Option<&M::Role>| merge(&call.fields, stored, &call.mount);
        let warnings = open.write_role(call.param(NAME), |_, stored| merged(stored)).await?;
        Ok(Answer::empty().with_warnings(warnings))
    })
    .await
}

/// Deletes a role. Succeeds if it does not exist.
pub(super) async fn delete<M: Method>(call: Call) -> Result<Answer> {
    let open = call.method::<M>().await?;
    to_the_end(async move {
        open.delete_role(call.param(NAME)).await?;
        Ok(Answer::empty())
    })
    .await
}
