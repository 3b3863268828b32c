//! Single fields of a role, each at a path of its own (such as `role/:login_role/token-ttl`), so that a policy can
//! grant access to one field.

use serde_json::{Value, json};

use super::fields::{merged, shown};
use crate::auth::login::approle::AppRoles;
use crate::auth::login::approle::role::AppRole;
use crate::auth::login::approle::secret_ids::absent_role;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::login::roles::NAME;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::to_the_end;

pub(super) const POLICIES: &[&str] = &["token_policies", "policies"];
pub(super) const POLICIES_OLDER: &[(&str, &str)] = &[("policies", "token_policies")];
pub(super) const PERIOD: &[&str] = &["token_period", "period"];
pub(super) const PERIOD_OLDER: &[(&str, &str)] = &[("period", "token_period")];

const OLD_LIST: &str = "The \"bound_cidr_list\" field is deprecated and will be removed. Please use \
                        \"secret_id_bound_cidrs\" instead.";

/// Returns the field of the path, followed by its deprecated names. Except for `policies` and `period`, the last
/// segment of the path is the name of the field.
fn fields_of(call: &Call) -> Vec<String> {
    let part = call.path().rsplit('/').next().unwrap_or_default();
    match part {
        "policies" => POLICIES.iter().map(|name| (*name).to_owned()).collect(),
        "period" => PERIOD.iter().map(|name| (*name).to_owned()).collect(),
        part => vec![part.replace('-', "_")],
    }
}

pub(super) async fn read(call: Call) -> Result<Answer> {
    let view = call.method::<AppRoles>().await?.view();
    let role = view.roles().get(call.param(NAME)).ok_or_else(Error::not_found)?;
    let fields = fields_of(&call);
    let mut all = shown(role);
    all["role_id"] = role.role_id().into();
    all["bound_cidr_list"] = all["secret_id_bound_cidrs"].clone();
    let part: serde_json::Map<String, Value> =
        fields.iter().filter_map(|name| Some((name.clone(), all.get(name)?.clone()))).collect();
    let warning = part.contains_key("bound_cidr_list").then(|| OLD_LIST.to_owned());
    Ok(Answer::data(part.into()).with_warnings(warning))
}

/// Writes the field. The role must exist, and the field must be present.
pub(super) async fn write(call: Call) -> Result<Answer> {
    let mut sent = Fields::default();
    let names = fields_of(&call);
    for name in &names {
        if let Some(value) = call.fields.value(name) {
            sent.set(name, value.clone());
        }
    }
    if sent.is_empty() {
        return Err(Error::invalid(format!("missing {}", names.join(" or "))));
    }
    change(call, sent).await
}

/// Resets the field to its default. Succeeds if the role does not exist.
pub(super) async fn clear(call: Call) -> Result<Answer> {
    let mut cleared = Fields::default();
    if let Some(name) = fields_of(&call).first() {
        let empty = match &name[..] {
            "bind_secret_id" => json!(true),
            "token_policies" | "bound_cidr_list" | "secret_id_bound_cidrs" | "token_bound_cidrs" => json!([]),
            _ => json!(0),
        };
        cleared.set(name, empty);
    }
    match change(call, cleared).await {
        Err(error) if error.kind() == Kind::NotFound => Ok(Answer::empty()),
        done => done,
    }
}

async fn change(call: Call, fields: Fields) -> Result<Answer> {
    let open = call.method::<AppRoles>().await?;
    to_the_end(async move {
        let name = call.param(NAME);
        let merge = |stored: Option<&AppRole>| {
            let stored = stored.ok_or_else(|| absent_role(name))?;
            merged(&fields, Some(stored), &call.mount)
        };
        let warnings = open.write_role(name, |_, stored| merge(stored)).await?;
        Ok(Answer::empty().with_warnings(warnings))
    })
    .await
}
