//! Users: the caller's own account, and users that the caller may see.

use serde_json::json;

use super::super::body::{PrimaryResource, TypeRule};
use super::super::reply::{Rendered, RenderedResult};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::projects::Tx;
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
    RenderedResult::resource(account_document(&user))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<User> {
    tx.lock_lookups();
    let account = user::find_account(tx, &call.caller).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, Some(&account.ext_id))?;
    let username = resource.read_attributes(|attributes| user::read_change(attributes, &account))?;
    user::rename(tx, &account, &username).await
}

async fn show_user(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<User> {
    user::find_visible(tx, &call.caller, call.param("user_id")).await
}

fn render_user(user: User) -> RenderedResult {
    RenderedResult::resource(document(&user))
}

/// An empty image as a data URL: clients require an avatar URL, and this one makes them contact no other server.
const EMPTY_AVATAR_URL: &str = "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'/%3E";

/// Renders a user for the list of included resources.
pub(crate) fn document(user: &User) -> Rendered {
    json!({
        "id": user.ext_id,
        "type": "users",
        "attributes": {
            "username": user.username,
            "email": user.email,
            "avatar-url": EMPTY_AVATAR_URL,
            "is-service-account": false,
        },
        "links": { "self": format!("/api/v2/users/{}", user.ext_id) },
    })
    .into()
}

/// Renders the caller's own account.
pub(crate) fn account_document(user: &User) -> Rendered {
    let permissions = json!({
        "can-create-organizations": true,
        "can-manage-user-tokens": true,
        "can-change-email": false,
        "can-change-username": true,
        "can-change-password": false,
        "can-manage-sessions": false,
    });
    let factor = json!({ "enabled": false, "verified": false });
    document(user).with(&["attributes", "two-factor"], factor).with(&["attributes", "permissions"], permissions)
}
