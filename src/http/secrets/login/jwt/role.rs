//! Parses and renders JWT roles.

use serde_json::{Map, Value, json};

use super::config::is_set;
use crate::auth::login::jwt::{BoundClaims, JwtMethod, JwtRole};
use crate::auth::mounts::Mount;
use crate::auth::token::TokenTerms;
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, ListLimit, MAX_VALUES, Resource as _, parse_embedded_json};
use crate::http::secrets::login::roles::RoleFields;
use crate::http::secrets::route::concat_fields;

pub(super) const FIELDS: &[&str] =
    &concat_fields::<37>(&[JwtRole::FIELDS, &["role_type", "callback_mode"], UNSUPPORTED_FIELDS, TokenTerms::FIELDS]);

/// Known fields of unsupported features. A non-empty value in a request is an error.
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
        for slot in JwtRole::INTEGERS {
            slot.set_if_given(&mut role, read_leeway(fields, slot.name)?);
        }
        for slot in JwtRole::TIMESPANS {
            slot.set_if_given(&mut role, fields.duration(slot.name)?);
        }
        role.merge_texts(fields, usize::MAX)?;
        role.merge_lists(fields)?;
        role.merge_flags(fields)?;
        if let Some(mappings) = fields.map("claim_mappings")? {
            role.claim_mappings = mappings;
        }
        match fields.text("bound_claims_type")?.as_deref() {
            None => {}
            Some("" | "string") => role.bound_claims.globs = false,
            Some("glob") => role.bound_claims.globs = true,
            Some(_) => return Err(Error::invalid("invalid 'bound_claims_type': must be string or glob")),
        }
        if let Some(claims) = read_bound_claims(fields)? {
            role.bound_claims = BoundClaims { claims, ..role.bound_claims };
        }
        role.terms = role.terms.merged(fields)?;
        let warnings = role.terms.check(mount)?;
        role.check()?;
        Ok((role, warnings))
    }

    fn to_json(role: &JwtRole) -> Value {
        let mut shown = role.terms.to_json();
        shown.extend(role.to_members());
        let others = [
            ("role_type", json!("jwt")),
            ("bound_claims_type", json!(if role.bound_claims.globs { "glob" } else { "string" })),
            ("bound_claims", json!(role.bound_claims.claims)),
            ("claim_mappings", json!(role.claim_mappings)),
            ("oauth2_metadata", json!([])),
            ("oidc_scopes", json!([])),
            ("callback_mode", json!("client")),
            ("verbose_oidc_logging", json!(false)),
            ("token_policies_template_claims", json!(false)),
            ("oidc_disable_confirmation", json!(false)),
        ];
        shown.extend(others.map(|(name, value)| (name.to_owned(), value)));
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

/// Reads a leeway in seconds. All negative numbers become -1, which means no leeway.
fn read_leeway(fields: &Fields, name: &str) -> Result<Option<i64>> {
    let is_negative = fields.text(name)?.is_some_and(|text| text.trim_start().starts_with('-'));
    if is_negative {
        return Ok(fields.int(name)?.map(|_| -1));
    }
    let seconds = fields.duration(name)?.map(|leeway| leeway.as_secs());
    seconds
        .map(|seconds| {
            i64::try_from(seconds).map_err(|_| Error::invalid(format!("{name}: longer than {} seconds", i64::MAX)))
        })
        .transpose()
}

/// Reads `bound_claims`: an object with any values (possibly as JSON text), or pairs of a name and a text.
fn read_bound_claims(fields: &Fields) -> Result<Option<Map<String, Value>>> {
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
