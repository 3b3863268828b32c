//! The login endpoint.

use crate::auth::login::jwt::JwtMethod;
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;

pub(super) const FIELDS: &[&str] = &["role", "jwt"];

/// Maximum size of a login request in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;

/// Creates a token for a valid JWT of another system.
pub(super) async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<JwtMethod>().await?;
    let role = call.fields.text("role")?.unwrap_or_default();
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let auth = &call.state.auth;
    let clock = &call.state.clock;
    let login = open.enter((auth.logins().settings(), clock), call.mount.clone(), &role, &jwt, call.address).await?;
    let (given, warnings) = auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
