//! The HTTP interface of `cloudb`: its route table and its handlers.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::roles::{self, RoleFields};
use crate::auth::login::cloudb::{
    self, CloudbConfig, CloudbLoginRequest, CloudbMethod, CloudbRole, CloudbRoleBounds, MAX_CONFIG_TEXT_BYTES,
};
use crate::auth::login::role::MethodRole as _;
use crate::auth::mounts::Mount;
use crate::auth::token::TokenTerms;
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::page::PAGE_FIELDS;
use crate::http::secrets::route::{Call, ExistenceQuery, Route, concat_fields, routes};
use crate::http::secrets::sys::run_detached;
use crate::secret::Secret;

const LOGIN_FIELDS: &[&str] =
    &["role", "jwt", "subscription_id", "resource_group_name", "vm_name", "vmss_name", "resource_id"];
/// Maximum size of a login request in bytes. Tokens of the cloud's directory have a few thousand bytes.
const MAX_LOGIN_BODY_BYTES: usize = 64 << 10;
/// Maximum length of each other text in a login request, in bytes.
const MAX_LOGIN_TEXT_BYTES: usize = 2048;

const CONFIG_FIELDS: &[&str] = &concat_fields::<15>(&[CloudbConfig::FIELDS, UNSUPPORTED_FIELDS]);

/// Fields of features that this server does not support.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "identity_token_audience",
    "identity_token_ttl",
    "rotation_period",
    "rotation_schedule",
    "rotation_window",
    "disable_automated_rotation",
];

/// The fields of a role. Some clients send `name` although the path contains it.
const ROLE_FIELDS: &[&str] = &concat_fields::<23>(&[&["name"], CloudbRoleBounds::FIELDS, TokenTerms::FIELDS]);

/// The routes of a `cloudb` mount.
pub(crate) static ROUTES: &[Route] = routes! {
    (open.with_long_member("jwt", MAX_LOGIN_BODY_BYTES)) Update "login" LOGIN_FIELDS => login;
    token Read "config" &[] => read_config;
    (token.with_existence_check(config_exists)) Update "config" CONFIG_FIELDS => write_config;
    token Delete "config" &[] => delete_config;
    token Update "rotate-root" &[] => rotate_root;
    token List "role" PAGE_FIELDS => roles::list::<CloudbMethod>;
    token Read "role/:login_role" &[] => roles::read::<CloudbMethod>;
    (token.with_synonyms(&TokenTerms::SYNONYMS).with_existence_check(roles::exists::<CloudbMethod>)) Update
        "role/:login_role" ROLE_FIELDS => roles::write::<CloudbMethod>;
    token Delete "role/:login_role" &[] => roles::delete::<CloudbMethod>;
};

async fn login(mut call: Call) -> Result<HandlerResponse> {
    let jwt = call.fields.take_secret("jwt")?.unwrap_or_default();
    let text = |name| call.fields.text_within(name, MAX_LOGIN_TEXT_BYTES).map(Option::unwrap_or_default);
    let request = CloudbLoginRequest {
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

/// `POST auth/<mount>/rotate-root`: requests a new client secret from the directory. The secret is stored even if the
/// caller disconnects.
async fn rotate_root(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move { cloudb::rotate_root(call.state.auth.logins().cloudb(), &open).await }).await
}

/// Resolves to `true` if the mount has a configuration.
fn config_exists(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move {
        let view = named.state.mounts.method::<CloudbMethod>(named.mount).await?.view();
        Ok(view.config().is_some())
    })
}

async fn read_config(call: Call) -> Result<HandlerResponse> {
    let view = call.method::<CloudbMethod>().await?.view();
    let config = view.config().ok_or_else(Error::not_found)?;
    let mut data = config.to_members();
    let rounded_up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let times = CloudbConfig::TIMESPANS.iter();
    data.extend(times.map(|slot| (slot.name.to_owned(), json!(rounded_up(*(slot.get)(config))))));
    data.extend(config.secret_expiry().map(|date| ("root_password_expiration_date".to_owned(), json!(date))));
    Ok(HandlerResponse::data(Value::Object(data)))
}

/// `POST auth/<mount>/config`: writes the configuration; absent fields are unchanged.
async fn write_config(mut call: Call) -> Result<HandlerResponse> {
    let client_secret = call.fields.take_secret("client_secret")?;
    reject_unsupported(&call.fields, client_secret.as_ref())?;
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move {
        let merge = |stored: Option<&CloudbConfig>| -> Result<(CloudbConfig, Warnings)> {
            Ok((CloudbConfig::merged(stored, &call.fields, client_secret.as_ref())?, Warnings::default()))
        };
        open.write_config(merge).await
    })
    .await
}

/// `DELETE auth/<mount>/config`; also succeeds if the mount has no configuration.
async fn delete_config(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move { open.delete_config().await.map(drop) }).await
}

/// Rejects values of features that this server does not support, and a client secret that is too long.
fn reject_unsupported(fields: &Fields, client_secret: Option<&Secret>) -> Result<()> {
    if client_secret.is_some_and(|secret| secret.expose().len() > MAX_CONFIG_TEXT_BYTES) {
        return Err(Error::invalid(format!("client_secret: longer than {MAX_CONFIG_TEXT_BYTES} bytes")));
    }
    let text = |name| fields.text_within(name, MAX_CONFIG_TEXT_BYTES);
    let is_given = |name| text(name).map(|text| text.is_some_and(|text| !text.is_empty()));
    if is_given("identity_token_audience")? {
        let both = client_secret.is_some_and(|secret| !secret.expose().is_empty());
        return Err(if both {
            Error::invalid("only one of 'client_secret' or 'identity_token_audience' can be set")
        } else {
            unsupported_error("workload identity federation")
        });
    }
    fields.duration("identity_token_ttl")?;
    fields.bool("disable_automated_rotation")?;
    let period = fields.duration("rotation_period")?.unwrap_or_default();
    let window = fields.duration("rotation_window")?.unwrap_or_default();
    if is_given("rotation_schedule")? || !period.is_zero() || !window.is_zero() {
        return Err(unsupported_error("scheduled rotation"));
    }
    Ok(())
}

/// Returns the error for an unsupported feature.
fn unsupported_error(what: &str) -> Error {
    Error::invalid(format!("{what} is not supported"))
}

impl RoleFields for CloudbMethod {
    fn merged(fields: &Fields, stored: Option<&CloudbRole>, mount: &Mount) -> Result<(CloudbRole, Warnings)> {
        let mut bounds = stored.map(|role| role.bounds().clone()).unwrap_or_default();
        bounds.merge_lists(fields)?;
        let terms = stored.map(|role| role.terms().clone()).unwrap_or_default().merged(fields)?;
        let role = CloudbRole::new(bounds, terms)?;
        let mut warnings = role.terms().check(mount)?;
        warnings.extend(role.warning());
        Ok((role, warnings))
    }

    fn to_json(role: &CloudbRole) -> Value {
        let mut shown = role.terms().to_json();
        shown.extend(role.bounds().to_members());
        Value::Object(shown)
    }
}
