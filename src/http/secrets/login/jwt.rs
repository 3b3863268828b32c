//! The HTTP interface of `jwt`: its route table, with the handlers in submodules.

mod config;
mod role;

use super::roles;
use crate::auth::login::jwt::JwtMethod;
use crate::auth::token::TokenTerms;
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::page::PAGE_FIELDS;
use crate::http::secrets::route::{Call, Route, routes};

/// Maximum size of a login request, in bytes.
const MAX_LOGIN_BODY_BYTES: usize = 64 << 10;

/// The routes of a `jwt` mount.
pub(crate) static ROUTES: &[Route] = routes! {
    token Read "config" &[] => config::read;
    token Update "config" config::FIELDS => config::write;
    token List "role" PAGE_FIELDS => roles::list::<JwtMethod>;
    token Read "role/:login_role" &[] => roles::read::<JwtMethod>;
    (token.with_synonyms(&TokenTerms::SYNONYMS).with_existence_check(roles::exists::<JwtMethod>)) Update
        "role/:login_role" role::FIELDS => roles::write::<JwtMethod>;
    token Delete "role/:login_role" &[] => roles::delete::<JwtMethod>;
    (open.with_long_member("jwt", MAX_LOGIN_BODY_BYTES)) Update "login" &["role", "jwt"] => login;
};

/// Creates a token for the holder of a valid JWT of another system.
async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<JwtMethod>().await?;
    let role = call.fields.text("role")?.unwrap_or_default();
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let auth = &call.state.auth;
    let clock = &call.state.clock;
    let login =
        open.authenticate((auth.logins().settings(), clock), call.mount.clone(), &role, &jwt, call.address).await?;
    let (given, warnings) = auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
