//! The configuration endpoints of `jwt`.

use serde_json::json;

use crate::auth::login::jwt::{JwtConfig, JwtMethod, KeySource, KeySourceFields};
use crate::auth::policy::lower;
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::{Call, concat_fields};
use crate::http::secrets::sys::run_detached;

pub(super) const FIELDS: &[&str] =
    &concat_fields::<17>(&[KeySourceFields::FIELDS, JwtConfig::FIELDS, &["skip_jwks_validation"], UNSUPPORTED_FIELDS]);

/// Known fields of unsupported features. A non-empty value in a request is an error.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "oidc_client_id",
    "oidc_client_secret",
    "oidc_response_mode",
    "oidc_response_types",
    "provider_config",
    "override_allowed_server_names",
    "jwks_pairs",
];

/// Writes the configuration after checking that its verification keys are available. Returns 204, or 200 with warnings.
pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<JwtMethod>().await?;
    run_detached(async move {
        let settings = call.state.auth.logins().settings();
        let clock = &call.state.clock;
        let mut warnings = Warnings::default();
        let config = merged(&call.fields, open.view().config())?;
        if let Err(error) = config.check(settings, clock).await {
            if error.kind() != Kind::Unavailable {
                return Err(error);
            }
            let what = match config.source {
                KeySource::Discovery { .. } => "error checking oidc discovery URL",
                _ => "error checking jwks URL",
            };
            if !call.fields.bool("skip_jwks_validation")?.unwrap_or_default() {
                return Err(Error::invalid(error.text().to_owned()).within(what));
            }
            warnings.add(what);
        }
        open.write_config(|current| Ok((merged(&call.fields, current)?, warnings.clone()))).await
    })
    .await
}

/// Merges the fields of a request into the stored configuration. A different key source in the request replaces the
/// stored one.
fn merged(fields: &Fields, current: Option<&JwtConfig>) -> Result<JwtConfig> {
    if let Some(name) = UNSUPPORTED_FIELDS.iter().find(|name| is_set(fields, name)) {
        return Err(Error::invalid(format!("{name}: not supported; only logins with a JWT are supported")));
    }
    let mut config = JwtConfig::for_write(current);
    config.source = merge_source(fields, config.source)?;
    fields.text_within("default_role", MAX_NAME_LEN)?;
    config.merge_texts(fields, usize::MAX)?;
    config.default_role = lower(&config.default_role).into_owned();
    if let Some(names) = fields.list_within("jwt_supported_algs", ListLimit::LIST.rejecting_only_empty())? {
        config.set_algorithms(&names)?;
    }
    config.merge_flags(fields)?;
    Ok(config)
}

/// Merges the fields of the key source. The stored source is kept if the request sets no source or the same kind of
/// source.
fn merge_source(fields: &Fields, current: KeySource) -> Result<KeySource> {
    let [by_discovery, by_key_set, by_keys] =
        ["oidc_discovery_url", "jwks_url", "jwt_validation_pubkeys"].map(|name| is_set(fields, name));
    let is_replaced = match &current {
        KeySource::None => false,
        KeySource::Discovery { .. } => !by_discovery && (by_key_set || by_keys),
        KeySource::KeySet { .. } => !by_key_set && (by_discovery || by_keys),
        KeySource::Keys(_) => !by_keys && (by_discovery || by_key_set),
    };
    let mut source = if is_replaced { KeySourceFields::default() } else { current.into() };
    source.merge_texts(fields, usize::MAX)?;
    source.merge_lists(fields)?;
    source.try_into()
}

/// `true` if the request contains a non-empty value for a field.
pub(super) fn is_set(fields: &Fields, name: &str) -> bool {
    use serde_json::Value;
    match fields.value(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::Bool(true)) => true,
    }
}

/// Returns the configuration, and reports whether its verification keys are available.
pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<JwtMethod>().await?;
    let view = open.view();
    let config = view.config().ok_or_else(Error::not_found)?;
    let settings = call.state.auth.logins().settings();
    let clock = &call.state.clock;
    let mut warnings = Warnings::default();
    let status = match open.check_keys_available(settings, clock).await {
        Ok(()) => "valid",
        Err(error) => {
            warnings.add(format!("failed to construct JWK validator: {}", error.text()));
            "invalid"
        }
    };
    let mut data = config.to_members();
    data.extend(KeySourceFields::from(config.source.clone()).to_members());
    let others = [
        ("jwt_supported_algs", json!(config.algorithm_names())),
        ("oidc_client_id", json!("")),
        ("oidc_response_mode", json!("")),
        ("oidc_response_types", json!([])),
        ("provider_config", json!({})),
        ("override_allowed_server_names", json!([])),
        ("status", json!(status)),
    ];
    data.extend(others.map(|(name, value)| (name.to_owned(), value)));
    Ok(HandlerResponse::data(data.into()).with_warnings(warnings))
}
