//! The authentication method `approle`: machines present a role id and a secret id.
//!
//! A role has the settings for the tokens of its logins. A login names the role by its role id, which is unique within
//! the mount. The server or the operator chooses the text of a secret id; each has its own expiry, number of uses and
//! networks. A role may have many secret ids, so each is a row of the store. It is found by a keyed hash of the text;
//! the text is not stored.

mod login;
mod method;
pub(crate) mod role;
mod role_ids;
pub(crate) mod secret_id;
pub(crate) mod secret_ids;
mod sweep;

pub(crate) use self::method::AppRoleMethod;
