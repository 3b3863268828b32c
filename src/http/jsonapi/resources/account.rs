//! Users: the caller's own account, and users that the caller may see.

use super::super::body::{Resource, TypeRule};
use super::super::documents::users;
use super::super::reply::Reply;
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::Tx;
use crate::projects::attributes::Attributes;
use crate::projects::refusal::Outcome;
use crate::projects::user::{self, User};

pub(crate) const ROUTES: &[Route] = &[
    route!(GET "account/details", "account_show", show => shown),
    route!(PATCH "account/update", "account_update", update => shown),
    route!(GET "users/:user_id", "user_show", show_user => user_shown),
];

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<User> {
    user::account(tx, &call.caller).await
}

fn shown(user: User) -> Reply {
    Reply::resource(users::account(&user))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<User> {
    tx.hold();
    let account = user::account(tx, &call.caller).await?;
    let resource = Resource::read(&call.document, TypeRule::Any, Some(&account.ext_id))?;
    let mut attributes = Attributes::new(resource.attributes());
    let username = user::read_change(&mut attributes, &account);
    attributes.finish()?;
    user::rename(tx, &account, &username).await
}

async fn show_user(tx: &mut Tx<'_>, call: &Call) -> Outcome<User> {
    user::visible(tx, &call.caller, call.param("user_id")).await
}

fn user_shown(user: User) -> Reply {
    Reply::resource(users::document(&user))
}
