//! The HTTP interface of `jwt`: its route table, with the handlers in submodules.

mod config;
mod role;

use super::roles::{self, LIST_FIELDS};
use crate::auth::login::jwt::JwtMethod;
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Operation::{Delete, List, Read, Update};
use crate::http::secrets::route::{Call, Route};

/// Maximum size of a login request in bytes.
const MAX_LOGIN_BODY_BYTES: usize = 64 << 10;

/// The routes of a `jwt` mount.
pub(crate) static ROUTES: &[Route] = &[
    Route::token(Read, "config", &[], |call| Box::pin(config::read(call))),
    Route::token(Update, "config", config::FIELDS, |call| Box::pin(config::write(call))),
    Route::token(List, "role", LIST_FIELDS, |call| Box::pin(roles::list::<JwtMethod>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<JwtMethod>(call, role::to_json))),
    Route::token(Update, "role/:login_role", role::FIELDS, |call| {
        Box::pin(roles::write::<JwtMethod>(call, role::merged))
    })
    .with_synonyms(crate::auth::token::TokenTerms::SYNONYMS)
    .making(roles::exists::<JwtMethod>),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<JwtMethod>(call))),
    Route::open(Update, "login", &["role", "jwt"], |call| Box::pin(login(call)))
        .with_long_member("jwt", MAX_LOGIN_BODY_BYTES),
];

/// Creates a token for a valid JWT of another system.
async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<JwtMethod>().await?;
    let role = call.fields.text("role")?.unwrap_or_default();
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let auth = &call.state.auth;
    let clock = &call.state.clock;
    let login = open.enter((auth.logins().settings(), clock), call.mount.clone(), &role, &jwt, call.address).await?;
    let (given, warnings) = auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
