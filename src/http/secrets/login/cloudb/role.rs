//! Parses and renders roles.

use serde_json::{Value, json};

use crate::auth::login::cloudb::{BoundsChange, CloudbRole};
use crate::auth::login::role::MethodRole as _;
use crate::auth::mounts::Mount;
use crate::auth::token::TokenTerms;
use crate::error::{Result, Warnings};
use crate::fields::{Fields, ListLimit};
use crate::http::secrets::login::roles::concat_lists;

/// The fields of a role without those of its token terms. Some clients repeat the name from the path.
const OWN_FIELDS: &[&str] = &[
    "name",
    "bound_service_principal_ids",
    "bound_group_ids",
    "bound_subscription_ids",
    "bound_resource_groups",
    "bound_locations",
    "bound_scale_sets",
];
pub(super) const FIELDS: &[&str] =
    &concat_lists::<_, { OWN_FIELDS.len() + TokenTerms::FIELDS.len() }>(OWN_FIELDS, TokenTerms::FIELDS);
pub(super) const SYNONYMS: &[(&str, &str)] = TokenTerms::SYNONYMS;

/// Merges the fields of a request into a stored or a new role.
pub(super) fn merged(fields: &Fields, stored: Option<&CloudbRole>, mount: &Mount) -> Result<(CloudbRole, Warnings)> {
    let bound = |name| fields.list_within(name, ListLimit::LIST.rejecting_only_empty());
    let change = BoundsChange {
        principals: bound("bound_service_principal_ids")?,
        groups: bound("bound_group_ids")?,
        subscriptions: bound("bound_subscription_ids")?,
        resource_groups: bound("bound_resource_groups")?,
        locations: bound("bound_locations")?,
        scale_sets: bound("bound_scale_sets")?,
    };
    let terms = stored.map(|role| role.terms().clone()).unwrap_or_default().merged(fields)?;
    let role = CloudbRole::changed(stored, &change, terms)?;
    let mut warnings = role.terms().check(mount)?;
    warnings.extend(role.warning());
    Ok((role, warnings))
}

pub(super) fn to_json(role: &CloudbRole) -> Value {
    let mut shown = role.terms().to_json();
    shown.extend(role.bounds().named().map(|(name, list)| (name.to_owned(), json!(list))));
    Value::Object(shown)
}
