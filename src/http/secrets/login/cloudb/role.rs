//! Parses and renders roles.

use serde_json::Value;

use crate::auth::login::cloudb::{Bounds, CloudbMethod, CloudbRole};
use crate::auth::login::role::MethodRole as _;
use crate::auth::mounts::Mount;
use crate::auth::token::TokenTerms;
use crate::error::{Result, Warnings};
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::login::roles::RoleFields;
use crate::http::secrets::route::concat_fields;

/// The fields of a role. Some clients repeat the name from the path.
pub(super) const FIELDS: &[&str] = &concat_fields::<23>(&[&["name"], Bounds::FIELDS, TokenTerms::FIELDS]);
pub(super) const SYNONYMS: &[(&str, &str)] = TokenTerms::SYNONYMS;

impl RoleFields for CloudbMethod {
    fn merged(fields: &Fields, stored: Option<&CloudbRole>, mount: &Mount) -> Result<(CloudbRole, Warnings)> {
        let bounds = stored.map(|role| role.bounds().clone()).unwrap_or_default().merged(fields)?;
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
