//! Users: the caller's own account, and users that the caller may see.

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::users;
use super::super::reply::RenderedResult;
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::projects::Tx;
use crate::projects::attributes::AttributeReader;
use crate::projects::rejection::WorkResult;
use crate::projects::user::{self, User};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(GET "account/details", "account_show", show => render_account),
    route!(PATCH "account/update", "account_update", update => render_account),
    route!(GET "users/:user_id", "user_show", show_user => render_user),
];

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<User> {
    user::find_account(tx, &call.caller).await
}

fn render_account(user: User) -> RenderedResult {
    RenderedResult::resource(users::account(&user))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<User> {
    tx.hold();
    let account = user::find_account(tx, &call.caller).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, Some(&account.ext_id))?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let username = user::read_change(&mut attributes, &account);
    attributes.finish()?;
    user::rename(tx, &account, &username).await
}

async fn show_user(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<User> {
    user::find_visible(tx, &call.caller, call.param("user_id")).await
}

fn render_user(user: User) -> RenderedResult {
    RenderedResult::resource(users::document(&user))
}
