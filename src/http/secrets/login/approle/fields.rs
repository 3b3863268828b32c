//! Parses and renders AppRole roles.

use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::login::approle::AppRoleMethod;
use crate::auth::login::approle::role::AppRole;
use crate::auth::mounts::Mount;
use crate::auth::token::{Network, TokenTerms};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::login::roles::RoleFields;
use crate::http::secrets::route::concat_fields;

pub(super) const ROLE_FIELDS: &[&str] =
    &concat_fields::<23>(&[AppRole::FIELDS, &["bound_cidr_list"], TokenTerms::FIELDS]);

pub(super) const ROLE_SYNONYMS: &[(&str, &str)] = &{
    let [a, b, c, d, e, f] = TokenTerms::SYNONYMS;
    [("bound_cidr_list", "secret_id_bound_cidrs"), a, b, c, d, e, f]
};

impl RoleFields for AppRoleMethod {
    fn merged(fields: &Fields, stored: Option<&AppRole>, mount: &Mount) -> Result<(AppRole, Warnings)> {
        let mut role = stored.cloned().unwrap_or_default();
        let (fields, mut warnings) = adjust_token_type(fields)?;
        if let Some(role_id) = fields.text("role_id")? {
            role.set_role_id(&role_id)?;
        }
        role.merge_flags(&fields)?;
        for name in ["bound_cidr_list", "secret_id_bound_cidrs"] {
            if let Some(networks) = Network::parse_list(&fields, name)? {
                role.secret_id_bound_cidrs = networks;
            }
        }
        if let Some(uses) = read_uses(&fields, "secret_id_num_uses")? {
            role.secret_id_num_uses = uses;
        }
        if let Some(ttl) = read_ttl(&fields, "secret_id_ttl")? {
            role.secret_id_ttl = ttl;
            warnings.extend(role.secret_id_ttl_warning(mount));
        }
        if stored.is_some_and(|stored| stored.local_secret_ids != role.local_secret_ids) {
            return Err(Error::invalid("local_secret_ids can only be modified during role creation"));
        }
        role.terms = role.terms.merged(&fields)?;
        warnings.extend(role.terms.check(mount)?);
        role.check()?;
        Ok((role, warnings))
    }

    fn to_json(role: &AppRole) -> Value {
        let mut shown = role.terms.to_json();
        shown.extend(role.to_members());
        shown.insert("secret_id_bound_cidrs".to_owned(), json!(role.secret_id_bound_cidrs));
        shown.insert("secret_id_num_uses".to_owned(), json!(role.secret_id_num_uses));
        shown.into()
    }
}

/// Replaces the token types `default-service` and `default-batch`, which only mounts and token roles have, with
/// `service` and `batch`.
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

/// Reads the maximum number of uses; 0 means unlimited.
pub(super) fn read_uses(fields: &Fields, name: &str) -> Result<Option<u32>> {
    let Some(uses) = fields.int(name)? else { return Ok(None) };
    if uses < 0 {
        return Err(Error::invalid(format!("{name} cannot be negative")));
    }
    let uses = u32::try_from(uses).map_err(|_| Error::invalid(format!("{name}: larger than {}", u32::MAX)))?;
    Ok(Some(uses))
}

/// Reads a lifetime in whole seconds; zero selects the maximum lifetime.
pub(super) fn read_ttl(fields: &Fields, name: &str) -> Result<Option<Duration>> {
    match fields.duration(name)? {
        Some(short) if short.as_secs() == 0 && !short.is_zero() => {
            Err(Error::invalid(format!("{name}: must be zero, or at least one second")))
        }
        ttl => Ok(ttl.map(|ttl| Duration::from_secs(ttl.as_secs()))),
    }
}
