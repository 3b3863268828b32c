//! Parses and renders roles.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::auth::login::approle::AppRoleMethod;
use crate::auth::login::approle::role::AppRole;
use crate::auth::mounts::Mount;
use crate::auth::token::{Network, TokenTerms};
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::http::secrets::login::roles::{RoleFields, concat_lists};

/// The fields of a role without those of its token terms.
const OWN_FIELDS: &[&str] = &[
    "role_id",
    "bind_secret_id",
    "secret_id_bound_cidrs",
    "bound_cidr_list",
    "secret_id_num_uses",
    "secret_id_ttl",
    "local_secret_ids",
];
pub(super) const ROLE_FIELDS: &[&str] =
    &concat_lists::<_, { OWN_FIELDS.len() + TokenTerms::FIELDS.len() }>(OWN_FIELDS, TokenTerms::FIELDS);

const OWN_SYNONYMS: &[(&str, &str)] = &[("bound_cidr_list", "secret_id_bound_cidrs")];
pub(super) const ROLE_SYNONYMS: &[(&str, &str)] =
    &concat_lists::<_, { OWN_SYNONYMS.len() + TokenTerms::SYNONYMS.len() }>(OWN_SYNONYMS, TokenTerms::SYNONYMS);

impl RoleFields for AppRoleMethod {
    fn merged(fields: &Fields, stored: Option<&AppRole>, mount: &Mount) -> Result<(AppRole, Warnings)> {
        let mut role = stored.cloned().unwrap_or_else(AppRole::new);
        let (fields, mut warnings) = adjust_token_type(fields)?;
        if let Some(role_id) = fields.text("role_id")? {
            role.set_role_id(&role_id)?;
        }
        if let Some(given) = fields.bool("bind_secret_id")? {
            role.bind_secret_id = given;
        }
        for name in ["bound_cidr_list", "secret_id_bound_cidrs"] {
            if let Some(networks) = Network::list(&fields, name)? {
                role.secret_id_bound_cidrs = networks;
            }
        }
        if let Some(uses) = uses(&fields, "secret_id_num_uses")? {
            role.secret_id_num_uses = uses;
        }
        if let Some(ttl) = ttl(&fields, "secret_id_ttl")? {
            role.secret_id_ttl = ttl;
            warnings.extend(role.secret_id_ttl_warning(mount));
        }
        if let Some(local) = fields.bool("local_secret_ids")? {
            if stored.is_some_and(|stored| stored.local_secret_ids != local) {
                return Err(Error::invalid("local_secret_ids can only be modified during role creation"));
            }
            role.local_secret_ids = local;
        }
        role.terms = role.terms.merged(&fields)?;
        warnings.extend(role.terms.check(mount)?);
        role.check()?;
        Ok((role, warnings))
    }

    fn to_json(role: &AppRole) -> Value {
        let mut shown: Map<String, Value> = role.terms.to_json();
        for (name, value) in [
            ("bind_secret_id", json!(role.bind_secret_id)),
            ("secret_id_bound_cidrs", json!(role.secret_id_bound_cidrs)),
            ("secret_id_num_uses", json!(role.secret_id_num_uses)),
            ("secret_id_ttl", json!(role.secret_id_ttl.as_secs())),
            ("local_secret_ids", json!(role.local_secret_ids)),
        ] {
            shown.insert(name.to_owned(), value);
        }
        shown.into()
    }
}

/// Replaces `default-service` and `default-batch`, which are for mounts and token roles only, with `service` and
/// `batch`.
fn adjust_token_type(fields: &Fields) -> Result<(Fields, Warnings)> {
    let mut fields = fields.clone();
    let mut warnings = Warnings::default();
    let given = fields.text("token_type")?;
    for (word, plain) in [("default-service", "service"), ("default-batch", "batch")] {
        if given.as_deref() == Some(word) {
            fields.set("token_type", plain);
            warnings.add(format!("{word} has no useful meaning; adjusting to {plain}"));
        }
    }
    Ok((fields, warnings))
}

/// Reads a number of uses; 0 means unlimited.
pub(super) fn uses(fields: &Fields, name: &str) -> Result<Option<u32>> {
    let Some(uses) = fields.int(name)? else { return Ok(None) };
    if uses < 0 {
        return Err(Error::invalid(format!("{name} cannot be negative")));
    }
    let uses = u32::try_from(uses).map_err(|_| Error::invalid(format!("{name}: larger than {}", u32::MAX)))?;
    Ok(Some(uses))
}

/// Reads a lifetime in whole seconds; zero selects the maximum.
pub(super) fn ttl(fields: &Fields, name: &str) -> Result<Option<Duration>> {
    match fields.duration(name)? {
        Some(short) if short.as_secs() == 0 && !short.is_zero() => {
            Err(Error::invalid(format!("{name}: must be zero, or at least one second")))
        }
        ttl => Ok(ttl.map(|ttl| Duration::from_secs(ttl.as_secs()))),
    }
}
