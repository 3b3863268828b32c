//! `jwt` on the wire: its route table and its handlers.

use serde_json::Value;

use super::roles::{self, LIST};
use crate::auth::login::jwt::{Jwt, JwtRole};
use crate::http::secrets::route::Operation::{Delete, List, Read};
use crate::http::secrets::route::Route;

/// The routes of a mount of the method.
pub(crate) static ROUTES: &[Route] = &[
    Route::token(List, "role", LIST, |call| Box::pin(roles::list::<Jwt>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<Jwt>(call, shown))),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<Jwt>(call))),
];

fn shown(role: &JwtRole) -> Value {
    role.terms.to_json().into()
}
