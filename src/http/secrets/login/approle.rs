//! `approle` on the wire: its route table and, in the files below, its handlers.

mod fields;

use self::fields::{merged, shown};
use super::roles::{self, LIST};
use crate::auth::login::approle::AppRoles;
use crate::http::secrets::route::Operation::{Delete, List, Read, Update};
use crate::http::secrets::route::Route;

/// The routes of a mount of the method.
pub(crate) static ROUTES: &[Route] = &[
    Route::token(List, "role", LIST, |call| Box::pin(roles::list::<AppRoles>(call))),
    Route::token(Read, "role/:login_role", &[], |call| Box::pin(roles::read::<AppRoles>(call, shown))),
    Route::token(Update, "role/:login_role", fields::ROLE, |call| Box::pin(roles::write::<AppRoles>(call, merged)))
        .with_synonyms(fields::SYNONYMS),
    Route::token(Delete, "role/:login_role", &[], |call| Box::pin(roles::delete::<AppRoles>(call))),
];
