//! The login endpoint.

use crate::auth::login::approle::AppRoleMethod;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;

pub(super) const FIELDS: &[&str] = &["role_id", "secret_id"];

/// Creates a token for a valid role id and, if the role requires one, secret id.
pub(super) async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<AppRoleMethod>().await?;
    let role_id = call.fields.text("role_id")?.unwrap_or_default();
    if role_id.trim().is_empty() {
        return Err(Error::invalid("missing role_id"));
    }
    let secret_id = call.fields.take_secret("secret_id")?;
    let mount = call.mount.clone();
    let now = call.state.clock.now();
    let login = open.enter(mount, &role_id, secret_id, call.address, now).await?;
    let (given, warnings) = call.state.auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
