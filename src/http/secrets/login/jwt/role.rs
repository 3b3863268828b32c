//! Parses and renders roles.

use serde_json::{Map, Value, json};

use super::config::is_set;
use crate::auth::login::jwt::{BoundClaims, JwtMethod, JwtRole};
use crate::auth::mounts::Mount;
use crate::auth::token::TokenTerms;
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, ListLimit, MAX_VALUES, parse_embedded_json};
use crate::http::secrets::login::roles::{RoleFields, concat_lists};

/// The fields of a role without those of its token terms.
const OWN_FIELDS: &[&str] = &[
    "role_type",
    "expiration_leeway",
    "not_before_leeway",
    "clock_skew_leeway",
    "bound_subject",
    "bound_audiences",
    "bound_claims_type",
    "bound_claims",
    "claim_mappings",
    "user_claim",
    "user_claim_json_pointer",
    "groups_claim",
    "max_age",
    "oauth2_metadata",
    "oidc_scopes",
    "allowed_redirect_uris",
    "callback_mode",
    "poll_interval",
    "verbose_oidc_logging",
    "token_policies_template_claims",
    "oidc_disable_confirmation",
];
pub(super) const FIELDS: &[&str] =
    &concat_lists::<_, { OWN_FIELDS.len() + TokenTerms::FIELDS.len() }>(OWN_FIELDS, TokenTerms::FIELDS);

/// Known fields of unsupported features. A non-empty value is an error.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "oauth2_metadata",
    "oidc_scopes",
    "poll_interval",
    "verbose_oidc_logging",
    "token_policies_template_claims",
    "oidc_disable_confirmation",
];

impl RoleFields for JwtMethod {
    fn merged(fields: &Fields, stored: Option<&JwtRole>, mount: &Mount) -> Result<(JwtRole, Warnings)> {
        reject_unsupported(fields)?;
        let mut role = stored.cloned().unwrap_or_default();
        for (name, leeway) in [
            ("expiration_leeway", &mut role.expiration_leeway),
            ("not_before_leeway", &mut role.not_before_leeway),
            ("clock_skew_leeway", &mut role.clock_skew_leeway),
        ] {
            if let Some(given) = signed_seconds(fields, name)? {
                *leeway = given;
            }
        }
        for (name, text) in [
            ("bound_subject", &mut role.bound_subject),
            ("user_claim", &mut role.user_claim),
            ("groups_claim", &mut role.groups_claim),
        ] {
            if let Some(given) = fields.text(name)? {
                *text = given;
            }
        }
        if let Some(audiences) = fields.list_within("bound_audiences", ListLimit::LIST.rejecting_only_empty())? {
            role.bound_audiences = audiences;
        }
        if let Some(redirects) = fields.list_within("allowed_redirect_uris", ListLimit::LIST.rejecting_only_empty())? {
            role.allowed_redirect_uris = redirects;
        }
        if let Some(given) = fields.bool("user_claim_json_pointer")? {
            role.user_claim_json_pointer = given;
        }
        if let Some(max_age) = fields.duration("max_age")? {
            role.max_age = max_age;
        }
        if let Some(mappings) = fields.map("claim_mappings")? {
            role.claim_mappings = mappings;
        }
        match fields.text("bound_claims_type")?.as_deref() {
            None => {}
            Some("" | "string") => role.bound_claims.globs = false,
            Some("glob") => role.bound_claims.globs = true,
            Some(_) => return Err(Error::invalid("invalid 'bound_claims_type': must be string or glob")),
        }
        if let Some(claims) = bound_claims(fields)? {
            role.bound_claims = BoundClaims { claims, ..role.bound_claims };
        }
        role.terms = role.terms.merged(fields)?;
        let warnings = role.terms.check(mount)?;
        role.check()?;
        Ok((role, warnings))
    }

    fn to_json(role: &JwtRole) -> Value {
        let mut shown: Map<String, Value> = role.terms.to_json();
        for (name, value) in [
            ("role_type", json!("jwt")),
            ("expiration_leeway", json!(role.expiration_leeway)),
            ("not_before_leeway", json!(role.not_before_leeway)),
            ("clock_skew_leeway", json!(role.clock_skew_leeway)),
            ("bound_audiences", json!(role.bound_audiences)),
            ("bound_subject", json!(role.bound_subject)),
            ("bound_claims_type", json!(if role.bound_claims.globs { "glob" } else { "string" })),
            ("bound_claims", json!(role.bound_claims.claims)),
            ("claim_mappings", json!(role.claim_mappings)),
            ("user_claim", json!(role.user_claim)),
            ("user_claim_json_pointer", json!(role.user_claim_json_pointer)),
            ("groups_claim", json!(role.groups_claim)),
            ("max_age", json!(role.max_age.as_secs())),
            ("oauth2_metadata", json!([])),
            ("oidc_scopes", json!([])),
            ("allowed_redirect_uris", json!(role.allowed_redirect_uris)),
            ("callback_mode", json!("client")),
            ("verbose_oidc_logging", json!(false)),
            ("token_policies_template_claims", json!(false)),
            ("oidc_disable_confirmation", json!(false)),
        ] {
            shown.insert(name.to_owned(), value);
        }
        shown.into()
    }
}

/// Rejects fields of interactive browser logins (OIDC).
fn reject_unsupported(fields: &Fields) -> Result<()> {
    match fields.text("role_type")?.as_deref() {
        None | Some("" | "jwt") => {}
        Some("oidc") => return Err(Error::invalid("role_type: 'oidc' is not supported, only 'jwt'")),
        Some(_) => return Err(Error::invalid("invalid 'role_type': must be jwt")),
    }
    let mode = fields.text("callback_mode")?;
    let other_mode = mode.is_some_and(|mode| !matches!(mode.as_str(), "" | "client")).then_some(&"callback_mode");
    match UNSUPPORTED_FIELDS.iter().find(|name| is_set(fields, name)).or(other_mode) {
        Some(name) => Err(Error::invalid(format!("{name}: not supported; only logins with a JWT are supported"))),
        None => Ok(()),
    }
}

/// Reads a duration in seconds. Any negative number becomes -1, which means no leeway.
fn signed_seconds(fields: &Fields, name: &str) -> Result<Option<i64>> {
    let is_negative = fields.text(name)?.is_some_and(|text| text.trim_start().starts_with('-'));
    if is_negative {
        return Ok(fields.int(name)?.map(|_| -1));
    }
    let seconds = fields.duration(name)?.map(|leeway| leeway.as_secs());
    seconds.map(|seconds| i64::try_from(seconds).map_err(|_| Error::invalid(format!("{name}: too long")))).transpose()
}

/// Reads the claims: an object with any values (possibly as JSON text), or pairs of texts.
fn bound_claims(fields: &Fields) -> Result<Option<Map<String, Value>>> {
    const NAME: &str = "bound_claims";
    match fields.value(NAME) {
        Some(Value::Object(claims)) => Ok(Some(claims.clone())),
        Some(Value::String(text)) if text.trim_start().starts_with('{') => {
            match parse_embedded_json(text, MAX_VALUES) {
                Some(Value::Object(claims)) => Ok(Some(claims)),
                _ => Err(Error::invalid("bound_claims: must be a JSON object")),
            }
        }
        _ => {
            let pairs = fields.map_within(NAME, ListLimit::LIST.rejecting_only_empty())?;
            Ok(pairs.map(|pairs| pairs.into_iter().map(|(name, value)| (name, value.into())).collect()))
        }
    }
}
