//! What the roles of all methods share on the wire, and how a handler comes to its method.

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

/// The fields of a list.
pub(super) const LIST: &[&str] = &["after", "limit"];
/// The parameter of a path that is the name of a role.
pub(super) const NAME: &str = "login_role";

/// The entries of one list and then those of another, which must have at least `ALL` together: the fields of a
/// method's role beside those of its tokens.
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
    /// The open mount of the call, of which the route table says that it is of the method `M`.
    pub(super) async fn method<M: Method>(&self) -> Result<Arc<Open<M>>> {
        self.state.mounts.method(&self.mount).await
    }

    /// The same for a login. It gives rights without anybody being known before, so what other nodes took away
    /// must be known here.
    pub(super) async fn login_method<M: Method>(&self) -> Result<Arc<Open<M>>> {
        self.state.nodes.fresh().await?;
        self.method().await
    }
}

/// LIST of the roles: names.
pub(super) async fn list<M: Method>(call: Call) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    Answer::keys(page.cut(call.method::<M>().await?.view().roles().names()), None)
}

/// A role, as `shown` shows it.
pub(super) async fn read<M: Method>(call: Call, shown: fn(&M::Role) -> Value) -> Result<Answer> {
    let view = call.method::<M>().await?.view();
    let role = view.roles().get(call.param(NAME)).ok_or_else(Error::not_found)?;
    Ok(Answer::data(shown(role)))
}

/// Whether there is a role of the name.
pub(super) fn exists<M: Method>(named: Named<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move {
        let view = named.state.mounts.method::<M>(named.mount).await?.view();
        Ok(view.roles().get(named.param(NAME)).is_some())
    })
}

/// How the fields of a request change a role; of a new one there is none.
pub(super) type Merge<R> = fn(&Fields, Option<&R>, &Mount) -> Result<(R, Warnings)>;

/// Writes a role; 204, or 200 when there are warnings.
pub(super) async fn write<M: Method>(call: Call, merge: Merge<M::Role>) -> Result<Answer> {
    let open = call.method::<M>().await?;
    to_the_end(async move {
        let merged = |stored: Option<&M::Role>| merge(&call.fields, stored, &call.mount);
        let warnings = open.write_role(call.param(NAME), |_, stored| merged(stored)).await?;
        Ok(Answer::empty().with_warnings(warnings))
    })
    .await
}

/// Deletes a role, an absent one too.
pub(super) async fn delete<M: Method>(call: Call) -> Result<Answer> {
    let open = call.method::<M>().await?;
    to_the_end(async move {
        open.delete_role(call.param(NAME)).await?;
        Ok(Answer::empty())
    })
    .await
}
