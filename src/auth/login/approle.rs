//! The authentication method `approle`: machines present a role id and a secret id.
//!
//! A role defines the tokens; its role id names it at logins and is unique within the mount. Secret ids are generated
//! or chosen, each with its own expiry, number of uses and networks. A role may have many of them, so each is a row,
//! found by a keyed hash; the text is not stored.

mod login;
mod method;
pub(crate) mod role;
mod role_ids;
pub(crate) mod secret_id;
pub(crate) mod secret_ids;
mod sweep;

pub(crate) use self::method::AppRoleMethod;
