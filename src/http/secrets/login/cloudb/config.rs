//! The configuration endpoints of `cloudb`.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use crate::auth::login::cloudb::{CloudbConfig, CloudbConfigChange, CloudbMethod};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::{Call, ExistenceQuery, concat_fields};
use crate::http::secrets::sys::run_detached;

pub(super) const FIELDS: &[&str] = &concat_fields::<15>(&[CloudbConfig::FIELDS, UNSUPPORTED_FIELDS]);

/// Fields of features that this server does not have.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "identity_token_audience",
    "identity_token_ttl",
    "rotation_period",
    "rotation_schedule",
    "rotation_window",
    "disable_automated_rotation",
];

/// Maximum length of a text in bytes.
const MAX_CONFIG_TEXT_BYTES: usize = 2048;

/// Resolves to `true` if a configuration exists.
pub(super) fn exists(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move {
        let view = named.state.mounts.method::<CloudbMethod>(named.mount).await?.view();
        Ok(view.config().is_some())
    })
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let view = call.method::<CloudbMethod>().await?.view();
    let config = view.config().ok_or_else(Error::not_found)?;
    let mut data = config.to_members();
    let others = [
        ("root_password_ttl", json!(whole_seconds(config.root_password_ttl))),
        ("max_retries", json!(config.max_retries)),
        ("retry_delay", json!(whole_seconds(config.retry_delay))),
        ("max_retry_delay", json!(whole_seconds(config.max_retry_delay))),
    ];
    data.extend(others.map(|(name, value)| (name.to_owned(), value)));
    data.extend(config.secret_expiry().map(|date| ("root_password_expiration_date".to_owned(), json!(date))));
    Ok(HandlerResponse::data(Value::Object(data)))
}

/// `POST auth/<mount>/config`: absent fields are unchanged.
pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let change = change(&mut call.fields)?;
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move {
        let merge = |stored: Option<&CloudbConfig>| -> Result<(CloudbConfig, Warnings)> {
            Ok((CloudbConfig::changed(stored, change.clone())?, Warnings::default()))
        };
        open.write_config(merge).await
    })
    .await
}

/// `DELETE auth/<mount>/config`; succeeds if there is no configuration.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<CloudbMethod>().await?;
    run_detached(async move { open.delete_config().await.map(drop) }).await
}

fn change(fields: &mut Fields) -> Result<CloudbConfigChange> {
    let client_secret = fields.take_secret("client_secret")?;
    if client_secret.as_ref().is_some_and(|secret| secret.expose().len() > MAX_CONFIG_TEXT_BYTES) {
        return Err(Error::invalid(format!("client_secret: longer than {MAX_CONFIG_TEXT_BYTES} bytes")));
    }
    let text = |name| fields.text_within(name, MAX_CONFIG_TEXT_BYTES);
    let is_given = |name| text(name).map(|text| text.is_some_and(|text| !text.is_empty()));
    if is_given("identity_token_audience")? {
        let both = client_secret.is_some_and(|secret| !secret.expose().is_empty());
        return Err(if both {
            Error::invalid("only one of 'client_secret' or 'identity_token_audience' can be set")
        } else {
            unsupported("workload identity federation")
        });
    }
    fields.duration("identity_token_ttl")?;
    fields.bool("disable_automated_rotation")?;
    let period = fields.duration("rotation_period")?.unwrap_or_default();
    let window = fields.duration("rotation_window")?.unwrap_or_default();
    if is_given("rotation_schedule")? || !period.is_zero() || !window.is_zero() {
        return Err(unsupported("scheduled rotation"));
    }
    Ok(CloudbConfigChange {
        tenant_id: text("tenant_id")?,
        resource: text("resource")?,
        environment: text("environment")?,
        client_id: text("client_id")?,
        client_secret,
        root_password_ttl: fields.duration("root_password_ttl")?,
        max_retries: fields.int("max_retries")?,
        retry_delay: fields.duration("retry_delay")?,
        max_retry_delay: fields.duration("max_retry_delay")?,
    })
}

/// The error for features of other editions of the service.
fn unsupported(what: &str) -> Error {
    Error::invalid(format!("{what} is not supported"))
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
