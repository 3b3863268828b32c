//! The caller's own account, and what documents show of users.

use serde_json::{Value, json};

use super::render::Reply;
use super::route::{Call, Route, route};
use crate::projects::Tx;
use crate::projects::caller::Subject;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::user::{self, User};

pub const ROUTES: &[Route] = &[route!(GET "account/details", "account_show", show)];

/// A picture without anything in it: clients want an address, and none is asked of anybody else.
const PICTURE: &str = "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'/%3E";

/// Only users have an account.
async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let Subject::User { id, .. } = &call.caller.subject else { return Err(Refusal::not_found().into()) };
    let user = user::these(tx, &[*id]).await?.pop().ok_or_else(Refusal::not_found)?;
    let mut document = document(&user);
    let attributes = &mut document["attributes"];
    attributes["two-factor"] = json!({ "enabled": false, "verified": false });
    attributes["permissions"] = json!({
        "can-create-organizations": true,
        "can-manage-user-tokens": true,
        "can-change-email": false,
        "can-change-username": false,
        "can-change-password": false,
        "can-manage-sessions": false,
    });
    Ok(Reply::resource(document))
}

/// A user's document beside other resources.
pub fn document(user: &User) -> Value {
    json!({
        "id": user.ext_id,
        "type": "users",
        "attributes": {
            "username": user.username,
            "email": user.email,
            "avatar-url": PICTURE,
            "is-service-account": false,
        },
        "links": { "self": format!("/api/v2/users/{}", user.ext_id) },
    })
}
