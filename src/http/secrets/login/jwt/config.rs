//! The configuration endpoints of `jwt`.

use serde_json::json;

use crate::auth::login::jwt::{JwtConfig, JwtMethod, KeySource};
use crate::auth::policy::lower;
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::{Fields, ListLimit};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::run_detached;

pub(super) const FIELDS: &[&str] = &[
    "oidc_discovery_url",
    "oidc_discovery_ca_pem",
    "jwks_url",
    "jwks_ca_pem",
    "jwt_validation_pubkeys",
    "bound_issuer",
    "jwt_supported_algs",
    "default_role",
    "skip_jwks_validation",
    "namespace_in_state",
    "oidc_client_id",
    "oidc_client_secret",
    "oidc_response_mode",
    "oidc_response_types",
    "provider_config",
    "override_allowed_server_names",
    "jwks_pairs",
];

/// Known fields of unsupported features. A non-empty value is an error.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "oidc_client_id",
    "oidc_client_secret",
    "oidc_response_mode",
    "oidc_response_types",
    "provider_config",
    "override_allowed_server_names",
    "jwks_pairs",
];

/// Writes the configuration after checking that its keys are available; 204, or 200 with warnings.
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

/// Merges the fields of a request into the stored configuration. A key source in the request replaces the stored one.
fn merged(fields: &Fields, current: Option<&JwtConfig>) -> Result<JwtConfig> {
    if let Some(name) = UNSUPPORTED_FIELDS.iter().find(|name| is_set(fields, name)) {
        return Err(Error::invalid(format!("{name}: not supported; only logins with a JWT are supported")));
    }
    let mut config = JwtConfig::for_write(current);
    config.source = merge_source(fields, config.source)?;
    if let Some(issuer) = fields.text("bound_issuer")? {
        config.bound_issuer = issuer;
    }
    if let Some(role) = fields.text_within("default_role", 128)? {
        config.default_role = lower(&role).into_owned();
    }
    if let Some(names) = fields.list_within("jwt_supported_algs", ListLimit::LIST.rejecting_only_empty())? {
        config.set_algorithms(&names)?;
    }
    if let Some(given) = fields.bool("namespace_in_state")? {
        config.namespace_in_state = given;
    }
    Ok(config)
}

fn merge_source(fields: &Fields, current: KeySource) -> Result<KeySource> {
    let (mut discovery, mut key_set, mut keys) = Default::default();
    match current {
        KeySource::None => {}
        KeySource::Discovery { url, ca_pem } => discovery = (url, ca_pem),
        KeySource::KeySet { url, ca_pem } => key_set = (url, ca_pem),
        KeySource::Keys(texts) => keys = texts,
    }
    let named = ["oidc_discovery_url", "jwks_url", "jwt_validation_pubkeys"].map(|name| is_set(fields, name));
    if named.contains(&true) {
        // Sources that the request does not name are removed.
        let [by_discovery, by_key_set, by_keys] = named;
        if !by_discovery {
            discovery = Default::default();
        }
        if !by_key_set {
            key_set = Default::default();
        }
        if !by_keys {
            keys = Vec::new();
        }
    }
    for (name, text) in [
        ("oidc_discovery_url", &mut discovery.0),
        ("oidc_discovery_ca_pem", &mut discovery.1),
        ("jwks_url", &mut key_set.0),
        ("jwks_ca_pem", &mut key_set.1),
    ] {
        if let Some(given) = fields.text(name)? {
            *text = given;
        }
    }
    if let Some(given) = fields.list("jwt_validation_pubkeys")? {
        keys = given;
    }
    let ((url, ca_pem), (set_url, set_ca_pem)): ((String, String), (String, String)) = (discovery, key_set);
    match (url.is_empty(), set_url.is_empty(), keys.is_empty()) {
        (false, true, true) => Ok(KeySource::Discovery { url, ca_pem }),
        (true, false, true) => Ok(KeySource::KeySet { url: set_url, ca_pem: set_ca_pem }),
        (true, true, false) => Ok(KeySource::Keys(keys)),
        _ => Err(Error::invalid(
            "exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set",
        )),
    }
}

/// `true` if a field has a non-empty value.
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

/// Returns the configuration, and checks that its keys are available.
pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let open = call.method::<JwtMethod>().await?;
    let view = open.view();
    let config = view.config().ok_or_else(Error::not_found)?;
    let none = || (String::new(), String::new());
    let (discovery, key_set, keys) = match config.source.clone() {
        KeySource::None => (none(), none(), Vec::new()),
        KeySource::Discovery { url, ca_pem } => ((url, ca_pem), none(), Vec::new()),
        KeySource::KeySet { url, ca_pem } => (none(), (url, ca_pem), Vec::new()),
        KeySource::Keys(keys) => (none(), none(), keys),
    };
    let settings = call.state.auth.logins().settings();
    let clock = &call.state.clock;
    let mut warnings = Warnings::default();
    let status = match open.has_keys(settings, clock).await {
        Ok(()) => "valid",
        Err(error) => {
            warnings.add(format!("failed to construct JWK validator: {}", error.text()));
            "invalid"
        }
    };
    Ok(HandlerResponse::data(json!({
        "oidc_discovery_url": discovery.0,
        "oidc_discovery_ca_pem": discovery.1,
        "oidc_client_id": "",
        "oidc_response_mode": "",
        "oidc_response_types": [],
        "default_role": config.default_role,
        "jwt_validation_pubkeys": keys,
        "jwt_supported_algs": config.algorithm_names(),
        "jwks_url": key_set.0,
        "jwks_ca_pem": key_set.1,
        "bound_issuer": config.bound_issuer,
        "provider_config": {},
        "override_allowed_server_names": [],
        "namespace_in_state": config.namespace_in_state,
        "status": status,
    }))
    .with_warnings(warnings))
}
