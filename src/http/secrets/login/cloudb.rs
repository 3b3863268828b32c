//! The HTTP interface of `cloudb`: its route table and its handlers.

mod config;
mod role;

use super::roles::{self, LIST};
use crate::auth::login::cloudb::{self, Cloudb, LoginRequest};
use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Operation::{Delete, List, Read, Update};
use crate::http::secrets::route::{Call, Route};
use crate::http::secrets::sys::to_the_end;

const LOGIN: &[&str] =
    &["role", "jwt", "subscription_id", "resource_group_name", "vm_name", "vmss_name", "resource_id"];
/// Maximum size of a login request in bytes. Tokens of the directory have a few thousand bytes.
const LOGIN_BODY: usize = 64 << 10;
/// Maximum length of the other texts in a login request, in bytes.
const LONGEST: usize = 2048;

/// The routes of a `cloudb` mount.
pub(crate) static ROUTES: &[Route] = &[
    Route::open(Update, "login", LOGIN, |call| Box::pin(login(call))).with_long_member("jwt", LOGIN_BODY),
    Route::token(Read, "config", &[], |call| Box::pin(config::read(call))),
    Route::token(Update, "config", config::FIELDS, |call| Box::pin(config::write(call))).making(config::exists),
    Route::token(Delete, "config", &[], |call| Box::pin(config::delete(call))),
    Route::token(Update, "rotate-root", &[], |call| Box::pin(rotate_root(call))),
    Route::token(List, "role", LIST, |call| Box::pin(roles::list::<Cloudb>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<Cloudb>(call, role::shown))),
    Route::token(Update, "role/:login_role", role::FIELDS, |call| Box::pin(roles::write::<Cloudb>(call, role::merged)))
        .with_synonyms(role::SYNONYMS)
        .making(roles::exists::<Cloudb>),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<Cloudb>(call))),
];

async fn login(mut call: Call) -> Result<Answer> {
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let text = |name| call.fields.text_within(name, LONGEST).map(Option::unwrap_or_default);
    let request = LoginRequest {
        role: text("role")?,
        jwt,
        subscription_id: text("subscription_id")?,
        resource_group_name: text("resource_group_name")?,
        vm_name: text("vm_name")?,
        vmss_name: text("vmss_name")?,
        resource_id: text("resource_id")?,
    };
    let open = call.login_method::<Cloudb>().await?;
    let auth = &call.state.auth;
    let services = auth.logins().cloudb();
    let (given, warnings) = cloudb::log_in(auth, services, &call.mount, &open, &request, call.address).await?;
    Ok(Answer::auth(given).with_warnings(warnings))
}

/// `POST auth/<mount>/rotate-root`. A requested secret is stored even if the caller disconnects.
async fn rotate_root(call: Call) -> Result<Answer> {
    let open = call.method::<Cloudb>().await?;
    to_the_end(async move {
        cloudb::rotate_root(call.state.auth.logins().cloudb(), &open).await?;
        Ok(Answer::empty())
    })
    .await
}
