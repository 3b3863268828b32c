//! Role endpoints that all authentication methods share, and access to the authentication method of a mount.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use crate::auth::login::method::AuthMethod;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::mounts::Mount;
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::page::PageParams;
use crate::http::secrets::route::{Call, ExistenceQuery};
use crate::http::secrets::sys::run_detached;

/// The path parameter for the name of a role.
pub(super) const ROLE_PARAM: &str = "login_role";

impl Call {
    /// Returns the call's mount. The route table guarantees that the mount is of the method `M`.
    pub(super) async fn method<M: AuthMethod>(&self) -> Result<Arc<MethodMount<M>>> {
        self.state.mounts.method(&self.mount).await
    }

    /// As [`Call::method`], for a login. A login creates a token without prior authorization, so this node must have
    /// read the latest changes of other nodes.
    pub(super) async fn login_method<M: AuthMethod>(&self) -> Result<Arc<MethodMount<M>>> {
        self.state.nodes.require_fresh().await?;
        self.method().await
    }
}

/// The roles of an authentication method, as requests and responses represent them.
pub(super) trait RoleFields: AuthMethod {
    /// Merges the fields of a request into the stored role, or into a new one.
    fn merged(fields: &Fields, stored: Option<&Self::Role>, mount: &Mount) -> Result<(Self::Role, Warnings)>;

    fn to_json(role: &Self::Role) -> Value;
}

pub(super) async fn list<M: AuthMethod>(call: Call) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    HandlerResponse::keys(page.take_page(call.method::<M>().await?.view().roles().names()), None)
}

pub(super) async fn read<M: RoleFields>(call: Call) -> Result<HandlerResponse> {
    let view = call.method::<M>().await?.view();
    let role = view.roles().get(call.param(ROLE_PARAM)).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(M::to_json(role)))
}

pub(super) fn exists<M: AuthMethod>(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move {
        let view = named.state.mounts.method::<M>(named.mount).await?.view();
        Ok(view.roles().get(named.param(ROLE_PARAM)).is_some())
    })
}

/// Writes a role. Returns 204, or 200 with warnings.
pub(super) async fn write<M: RoleFields>(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<M>().await?;
    run_detached(async move {
        let merged = |stored: Option<&M::Role>| M::merged(&call.fields, stored, &call.mount);
        open.write_role(call.param(ROLE_PARAM), |_, stored| merged(stored)).await
    })
    .await
}

/// Deletes a role. Also succeeds if the role does not exist.
pub(super) async fn delete<M: AuthMethod>(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<M>().await?;
    run_detached(async move { open.delete_role(call.param(ROLE_PARAM)).await.map(drop) }).await
}
