//! The authentication method `approle`: machines present a role id and a secret id.
//!
//! A role contains the settings for the tokens that its logins receive. A login names the role by its role id, which is
//! unique within the mount. A secret id is a random text, or one that an operator chooses, with its own expiry, number
//! of uses and networks. A role may have many secret ids, so each is a row of the store. The row does not contain the
//! text of the secret id, but a keyed hash of it. A login finds the row by this hash.

mod login;
mod method;
pub(crate) mod role;
mod role_ids;
pub(crate) mod secret_id;
pub(crate) mod secret_ids;
mod sweep;

pub(crate) use self::method::AppRoleMethod;
