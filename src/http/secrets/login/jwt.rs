//! The HTTP interface of `jwt`: its route table, with the handlers in submodules.

mod config;
mod login;
mod role;

use super::roles::{self, LIST_FIELDS};
use crate::auth::login::jwt::JwtMethod;
use crate::http::secrets::route::Operation::{Delete, List, Read, Update};
use crate::http::secrets::route::Route;

/// The routes of a `jwt` mount.
pub(crate) static ROUTES: &[Route] = &[
    Route::token(Read, "config", &[], |call| Box::pin(config::read(call))),
    Route::token(Update, "config", config::FIELDS, |call| Box::pin(config::write(call))),
    Route::token(List, "role", LIST_FIELDS, |call| Box::pin(roles::list::<JwtMethod>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<JwtMethod>(call, role::to_json))),
    Route::token(Update, "role/:login_role", role::FIELDS, |call| {
        Box::pin(roles::write::<JwtMethod>(call, role::merged))
    })
    .with_synonyms(crate::auth::token::TokenTerms::SYNONYMS)
    .making(roles::exists::<JwtMethod>),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<JwtMethod>(call))),
    Route::open(Update, "login", login::FIELDS, |call| Box::pin(login::login(call)))
        .with_long_member("jwt", login::MAX_BODY_BYTES),
];
