//! The HTTP interface of `cloudb`: its route table and its handlers.

mod config;
mod role;

use super::roles::{self, LIST_FIELDS};
use crate::auth::login::cloudb::{self, CloudbMethod, LoginRequest};
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::{Call, Route, routes};
use crate::http::secrets::sys::run_detached;

const LOGIN_FIELDS: &[&str] =
    &["role", "jwt", "subscription_id", "resource_group_name", "vm_name", "vmss_name", "resource_id"];
/// Maximum size of a login request in bytes. Tokens of the directory have a few thousand bytes.
const MAX_LOGIN_BODY_BYTES: usize = 64 << 10;
/// Maximum length of the other texts in a login request, in bytes.
const MAX_LOGIN_TEXT_BYTES: usize = 2048;

/// The routes of a `cloudb` mount.
pub(crate) static ROUTES: &[Route] = routes! {
    (open.with_long_member("jwt", MAX_LOGIN_BODY_BYTES)) Update "login" LOGIN_FIELDS => login;
    token Read "config" &[] => config::read;
    (token.making(config::exists)) Update "config" config::FIELDS => config::write;
    token Delete "config" &[] => config::delete;
    token Update "rotate-root" &[] => rotate_root;
    token List "role" LIST_FIELDS => roles::list::<CloudbMethod>;
    token Read "role/:login_role" &[] => roles::read::<CloudbMethod>;
    (token.with_synonyms(role::SYNONYMS).making(roles::exists::<CloudbMethod>)) Update
        "role/:login_role" role::FIELDS => roles::write::<CloudbMethod>;
    token Delete "role/:login_role" &[] => roles::delete::<CloudbMethod>;
};

async fn login(mut call: Call) -> Result<HandlerResponse> {
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let text = |name| call.fields.text_within(name, MAX_LOGIN_TEXT_BYTES).map(Option::unwrap_or_default);
    let request = LoginRequest {
        role: text("role")?,
        jwt,
        subscription_id: text("subscription_id")?,
        resource_group_name: text("resource_group_name")?,
        vm_name: text("vm_name")?,
        vmss_name: text("vmss_name")?,
        resource_id: text("resource_id")?,
    };
    let open = call.login_method::<CloudbMethod>().await?;
    let auth = &call.state.auth;
    let services = auth.logins().cloudb();
    let (given, warnings) = cloudb::log_in(auth, services, &call.mount, &open, &request, call.address).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}

/// `POST auth/<mount>/rotate-root`. A requested secret is stored even if the caller disconnects.
async fn rotate_root(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move { cloudb::rotate_root(call.state.auth.logins().cloudb(), &open).await }).await
}
