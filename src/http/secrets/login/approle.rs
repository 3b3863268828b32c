//! The HTTP interface of `approle`: its route table, with the handlers in submodules.

mod field_routes;
mod fields;
mod secret_ids;

use self::fields::ROLE_SYNONYMS;
use super::roles;
use crate::auth::login::approle::AppRoleMethod;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::page::PAGE_FIELDS;
use crate::http::secrets::route::{Call, Route, routes};

/// The routes of an `approle` mount.
pub(crate) static ROUTES: &[Route] = routes! {
    open Update "login" &["role_id", "secret_id"] => login;
    token List "role" PAGE_FIELDS => roles::list::<AppRoleMethod>;
    token Read "role/:login_role" &[] => roles::read::<AppRoleMethod>;
    (token.with_synonyms(ROLE_SYNONYMS).with_existence_check(roles::exists::<AppRoleMethod>)) Update
        "role/:login_role" fields::ROLE_FIELDS => roles::write::<AppRoleMethod>;
    token Delete "role/:login_role" &[] => roles::delete::<AppRoleMethod>;
    token Read
        "role/:login_role/role-id", "role/:login_role/local-secret-ids", "role/:login_role/policies",
        "role/:login_role/period", "role/:login_role/bind-secret-id", "role/:login_role/bound-cidr-list",
        "role/:login_role/secret-id-bound-cidrs", "role/:login_role/secret-id-num-uses",
        "role/:login_role/secret-id-ttl", "role/:login_role/token-bound-cidrs", "role/:login_role/token-num-uses",
        "role/:login_role/token-ttl", "role/:login_role/token-max-ttl"
        &[] => field_routes::read;
    token Delete
        "role/:login_role/policies", "role/:login_role/period", "role/:login_role/bind-secret-id",
        "role/:login_role/bound-cidr-list", "role/:login_role/secret-id-bound-cidrs",
        "role/:login_role/secret-id-num-uses", "role/:login_role/secret-id-ttl", "role/:login_role/token-bound-cidrs",
        "role/:login_role/token-num-uses", "role/:login_role/token-ttl", "role/:login_role/token-max-ttl"
        &[] => field_routes::clear;
    token Update "role/:login_role/role-id" &["role_id"] => field_routes::write;
    (token.with_synonyms(field_routes::POLICY_SYNONYMS)) Update
        "role/:login_role/policies" field_routes::POLICY_FIELDS => field_routes::write;
    (token.with_synonyms(field_routes::PERIOD_SYNONYMS)) Update
        "role/:login_role/period" field_routes::PERIOD_FIELDS => field_routes::write;
    token Update "role/:login_role/bind-secret-id" &["bind_secret_id"] => field_routes::write;
    token Update "role/:login_role/bound-cidr-list" &["bound_cidr_list"] => field_routes::write;
    token Update "role/:login_role/secret-id-bound-cidrs" &["secret_id_bound_cidrs"] => field_routes::write;
    token Update "role/:login_role/secret-id-num-uses" &["secret_id_num_uses"] => field_routes::write;
    token Update "role/:login_role/secret-id-ttl" &["secret_id_ttl"] => field_routes::write;
    token Update "role/:login_role/token-bound-cidrs" &["token_bound_cidrs"] => field_routes::write;
    token Update "role/:login_role/token-num-uses" &["token_num_uses"] => field_routes::write;
    token Update "role/:login_role/token-ttl" &["token_ttl"] => field_routes::write;
    token Update "role/:login_role/token-max-ttl" &["token_max_ttl"] => field_routes::write;
    (token.uncompressed()) List "role/:login_role/secret-id" PAGE_FIELDS => secret_ids::list;
    token Update "role/:login_role/secret-id" secret_ids::GENERATE_FIELDS => secret_ids::generate;
    token Update "role/:login_role/custom-secret-id" secret_ids::REGISTER_FIELDS => secret_ids::register;
    token Update "role/:login_role/secret-id/lookup" secret_ids::SECRET_ID_FIELDS => secret_ids::look_up;
    token Update "role/:login_role/secret-id/destroy" secret_ids::SECRET_ID_FIELDS => secret_ids::destroy;
    token Delete "role/:login_role/secret-id/destroy" secret_ids::SECRET_ID_FIELDS => secret_ids::destroy;
    token Update
        "role/:login_role/secret-id-accessor/lookup" secret_ids::ACCESSOR_FIELDS => secret_ids::look_up_accessor;
    token Update
        "role/:login_role/secret-id-accessor/destroy" secret_ids::ACCESSOR_FIELDS => secret_ids::destroy_accessor;
    token Delete
        "role/:login_role/secret-id-accessor/destroy" secret_ids::ACCESSOR_FIELDS => secret_ids::destroy_accessor;
    token Update "tidy/secret-id" &[] => secret_ids::tidy;
};

/// Creates a token for a valid role id and, if the role requires it, a valid secret id.
async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<AppRoleMethod>().await?;
    let role_id = call.fields.text("role_id")?.unwrap_or_default();
    if role_id.trim().is_empty() {
        return Err(Error::invalid("missing role_id"));
    }
    let secret_id = call.fields.take_secret("secret_id")?;
    let mount = call.mount.clone();
    let now = call.state.clock.now();
    let login = open.authenticate(mount, &role_id, secret_id, call.address, now).await?;
    let (given, warnings) = call.state.auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
