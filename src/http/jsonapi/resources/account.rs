//! The caller's own account.

use super::super::documents::users;
use super::super::reply::Reply;
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::caller::Subject;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::user::{self, User};

pub(crate) const ROUTES: &[Route] = &[route!(GET "account/details", "account_show", show => shown)];

/// Only users have an account.
async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<User> {
    let Subject::User { id, .. } = &call.caller.subject else { return Err(Refusal::not_found().into()) };
    Ok(user::these(tx, &[*id]).await?.pop().ok_or_else(Refusal::not_found)?)
}

fn shown(user: User) -> Reply {
    Reply::resource(users::account(&user))
}
