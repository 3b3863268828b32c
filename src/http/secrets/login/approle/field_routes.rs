//! Single fields of an AppRole role, each at its own path (such as `role/:login_role/token-ttl`), so that a policy can
//! grant access to one field.

use serde_json::{Value, json};

use crate::auth::login::approle::AppRoleMethod;
use crate::auth::login::approle::role::AppRole;
use crate::auth::login::approle::secret_ids::role_not_found_error;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::login::roles::{ROLE_PARAM, RoleFields as _};
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::run_detached;

pub(super) const POLICY_FIELDS: &[&str] = &["token_policies", "policies"];
pub(super) const POLICY_SYNONYMS: &[(&str, &str)] = &[("policies", "token_policies")];
pub(super) const PERIOD_FIELDS: &[&str] = &["token_period", "period"];
pub(super) const PERIOD_SYNONYMS: &[(&str, &str)] = &[("period", "token_period")];

const CIDR_LIST_DEPRECATION_WARNING: &str = "The \"bound_cidr_list\" field is deprecated and will be removed. Please use \
                        \"secret_id_bound_cidrs\" instead.";

/// Returns the name of the field in the path, followed by its deprecated names. The last segment of the path is the
/// name of the field, except for `policies` and `period`.
fn field_names_in_path(call: &Call) -> Vec<String> {
    let part = call.path().rsplit('/').next().unwrap_or_default();
    match part {
        "policies" => POLICY_FIELDS.iter().map(|name| (*name).to_owned()).collect(),
        "period" => PERIOD_FIELDS.iter().map(|name| (*name).to_owned()).collect(),
        part => vec![part.replace('-', "_")],
    }
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let view = call.method::<AppRoleMethod>().await?.view();
    let role = view.roles().get(call.param(ROLE_PARAM)).ok_or_else(Error::not_found)?;
    let fields = field_names_in_path(&call);
    let mut all = AppRoleMethod::to_json(role);
    all["role_id"] = role.role_id.as_str().into();
    all["bound_cidr_list"] = all["secret_id_bound_cidrs"].clone();
    let part: serde_json::Map<String, Value> =
        fields.iter().filter_map(|name| Some((name.clone(), all.get(name)?.clone()))).collect();
    let warning = part.contains_key("bound_cidr_list").then(|| CIDR_LIST_DEPRECATION_WARNING.to_owned());
    Ok(HandlerResponse::data(part.into()).with_warnings(warning))
}

/// Writes the field in the path. The role must exist, and the body must contain the field.
pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let mut sent = Fields::default();
    let names = field_names_in_path(&call);
    for name in &names {
        if let Some(value) = call.fields.value(name) {
            sent.set(name, value.clone());
        }
    }
    if sent.is_empty() {
        return Err(Error::invalid(format!("missing {}", names.join(" or "))));
    }
    change_role(call, sent).await
}

/// Resets the field in the path to its default. Also succeeds if the role does not exist.
pub(super) async fn clear(call: Call) -> Result<HandlerResponse> {
    let mut cleared = Fields::default();
    if let Some(name) = field_names_in_path(&call).first() {
        let empty = match &name[..] {
            "bind_secret_id" => json!(true),
            "token_policies" | "bound_cidr_list" | "secret_id_bound_cidrs" | "token_bound_cidrs" => json!([]),
            _ => json!(0),
        };
        cleared.set(name, empty);
    }
    match change_role(call, cleared).await {
        Err(error) if error.kind() == Kind::NotFound => Ok(HandlerResponse::empty()),
        done => done,
    }
}

async fn change_role(call: Call, fields: Fields) -> Result<HandlerResponse> {
    let open = call.method::<AppRoleMethod>().await?;
    run_detached(async move {
        let name = call.param(ROLE_PARAM);
        let merge = |stored: Option<&AppRole>| {
            let stored = stored.ok_or_else(|| role_not_found_error(name))?;
            AppRoleMethod::merged(&fields, Some(stored), &call.mount)
        };
        open.write_role(name, |_, stored| merge(stored)).await
    })
    .await
}
