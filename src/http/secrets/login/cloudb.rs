//! `cloudb` on the wire: its route table and its handlers.

use serde_json::Value;

use super::roles::{self, LIST};
use crate::auth::login::cloudb::{Cloudb, CloudbRole};
use crate::http::secrets::route::Operation::{Delete, List, Read};
use crate::http::secrets::route::Route;

/// The routes of a mount of the method.
pub(crate) static ROUTES: &[Route] = &[
    Route::token(List, "role", LIST, |call| Box::pin(roles::list::<Cloudb>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<Cloudb>(call, shown))),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<Cloudb>(call))),
];

fn shown(role: &CloudbRole) -> Value {
    role.terms.to_json().into()
}
