//! The HTTP interface of `approle`: its route table, with the handlers in submodules.

mod fields;
mod parts;
mod secret_ids;

use self::fields::{ROLE_SYNONYMS, merged, to_json};
use super::roles::{self, LIST_FIELDS};
use crate::auth::login::approle::AppRoleMethod;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Operation::{Delete, List, Read, Update};
use crate::http::secrets::route::{Call, Route};

macro_rules! route {
    ($operation:ident $pattern:literal $fields:expr => $handler:path) => {
        Route::token($operation, $pattern, $fields, |call| Box::pin($handler(call)))
    };
}

/// The routes of an `approle` mount.
pub(crate) static ROUTES: &[Route] = &[
    Route::open(Update, "login", &["role_id", "secret_id"], |call| Box::pin(login(call))),
    route!(List "role" LIST_FIELDS => roles::list::<AppRoleMethod>),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<AppRoleMethod>(call, to_json))),
    Route::token(Update, "role/:login_role", fields::ROLE_FIELDS, |call| {
        Box::pin(roles::write::<AppRoleMethod>(call, merged))
    })
    .with_synonyms(ROLE_SYNONYMS)
    .making(roles::exists::<AppRoleMethod>),
    route!(Delete "role/:login_role" &[] => roles::delete::<AppRoleMethod>),
    route!(Read "role/:login_role/role-id" &[] => parts::read),
    route!(Update "role/:login_role/role-id" &["role_id"] => parts::write),
    route!(Read "role/:login_role/local-secret-ids" &[] => parts::read),
    route!(Read "role/:login_role/policies" &[] => parts::read),
    route!(Update "role/:login_role/policies" parts::POLICY_FIELDS => parts::write)
        .with_synonyms(parts::POLICY_SYNONYMS),
    route!(Delete "role/:login_role/policies" &[] => parts::clear),
    route!(Read "role/:login_role/period" &[] => parts::read),
    route!(Update "role/:login_role/period" parts::PERIOD_FIELDS => parts::write).with_synonyms(parts::PERIOD_SYNONYMS),
    route!(Delete "role/:login_role/period" &[] => parts::clear),
    route!(Read "role/:login_role/bind-secret-id" &[] => parts::read),
    route!(Update "role/:login_role/bind-secret-id" &["bind_secret_id"] => parts::write),
    route!(Delete "role/:login_role/bind-secret-id" &[] => parts::clear),
    route!(Read "role/:login_role/bound-cidr-list" &[] => parts::read),
    route!(Update "role/:login_role/bound-cidr-list" &["bound_cidr_list"] => parts::write),
    route!(Delete "role/:login_role/bound-cidr-list" &[] => parts::clear),
    route!(Read "role/:login_role/secret-id-bound-cidrs" &[] => parts::read),
    route!(Update "role/:login_role/secret-id-bound-cidrs" &["secret_id_bound_cidrs"] => parts::write),
    route!(Delete "role/:login_role/secret-id-bound-cidrs" &[] => parts::clear),
    route!(Read "role/:login_role/secret-id-num-uses" &[] => parts::read),
    route!(Update "role/:login_role/secret-id-num-uses" &["secret_id_num_uses"] => parts::write),
    route!(Delete "role/:login_role/secret-id-num-uses" &[] => parts::clear),
    route!(Read "role/:login_role/secret-id-ttl" &[] => parts::read),
    route!(Update "role/:login_role/secret-id-ttl" &["secret_id_ttl"] => parts::write),
    route!(Delete "role/:login_role/secret-id-ttl" &[] => parts::clear),
    route!(Read "role/:login_role/token-bound-cidrs" &[] => parts::read),
    route!(Update "role/:login_role/token-bound-cidrs" &["token_bound_cidrs"] => parts::write),
    route!(Delete "role/:login_role/token-bound-cidrs" &[] => parts::clear),
    route!(Read "role/:login_role/token-num-uses" &[] => parts::read),
    route!(Update "role/:login_role/token-num-uses" &["token_num_uses"] => parts::write),
    route!(Delete "role/:login_role/token-num-uses" &[] => parts::clear),
    route!(Read "role/:login_role/token-ttl" &[] => parts::read),
    route!(Update "role/:login_role/token-ttl" &["token_ttl"] => parts::write),
    route!(Delete "role/:login_role/token-ttl" &[] => parts::clear),
    route!(Read "role/:login_role/token-max-ttl" &[] => parts::read),
    route!(Update "role/:login_role/token-max-ttl" &["token_max_ttl"] => parts::write),
    route!(Delete "role/:login_role/token-max-ttl" &[] => parts::clear),
    route!(List "role/:login_role/secret-id" LIST_FIELDS => secret_ids::list).uncompressed(),
    route!(Update "role/:login_role/secret-id" secret_ids::GENERATE_FIELDS => secret_ids::generate),
    route!(Update "role/:login_role/custom-secret-id" secret_ids::REGISTER_FIELDS => secret_ids::register),
    route!(Update "role/:login_role/secret-id/lookup" secret_ids::SECRET_ID_FIELDS => secret_ids::look_up),
    route!(Update "role/:login_role/secret-id/destroy" secret_ids::SECRET_ID_FIELDS => secret_ids::destroy),
    route!(Delete "role/:login_role/secret-id/destroy" secret_ids::SECRET_ID_FIELDS => secret_ids::destroy),
    route!(Update "role/:login_role/secret-id-accessor/lookup" secret_ids::ACCESSOR_FIELDS => secret_ids::look_up_accessor),
    route!(Update "role/:login_role/secret-id-accessor/destroy" secret_ids::ACCESSOR_FIELDS => secret_ids::destroy_accessor),
    route!(Delete "role/:login_role/secret-id-accessor/destroy" secret_ids::ACCESSOR_FIELDS => secret_ids::destroy_accessor),
    route!(Update "tidy/secret-id" &[] => secret_ids::tidy),
];

/// Creates a token for a valid role id and, if the role requires one, secret id.
async fn login(mut call: Call) -> Result<HandlerResponse> {
    let open = call.login_method::<AppRoleMethod>().await?;
    let role_id = call.fields.text("role_id")?.unwrap_or_default();
    if role_id.trim().is_empty() {
        return Err(Error::invalid("missing role_id"));
    }
    let secret_id = call.fields.take_secret("secret_id")?;
    let mount = call.mount.clone();
    let now = call.state.clock.now();
    let login = open.enter(mount, &role_id, secret_id, call.address, now).await?;
    let (given, warnings) = call.state.auth.log_in(login).await?;
    Ok(HandlerResponse::auth(given).with_warnings(warnings))
}
