//! Users and accounts.

use serde_json::json;

use super::super::reply::Rendered;
use crate::projects::user::User;

/// An empty picture: clients require a URL, and this one makes them contact no other server.
const EMPTY_AVATAR_URL: &str = "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'/%3E";

/// A user in the list of included resources.
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

/// A user's own account.
pub(crate) fn account(user: &User) -> Rendered {
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
