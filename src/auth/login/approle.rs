//! The authentication method `approle`: machines present a role id and a secret id.
//!
//! A role contains the settings for the tokens that its logins receive. A login names the role by its role id, which is
//! unique within the mount. A secret id is a random text, or one that an operator chooses, with its own expiry, number
//! of uses and networks. A role may have many secret ids, so each is a row of the store. The row contains a keyed hash
//! of the secret id, by which a login finds it, and not its text.

mod login;
mod method;
pub(crate) mod role;
mod role_ids;
pub(crate) mod secret_id;
pub(crate) mod secret_ids;
mod sweep;

pub(crate) use self::method::AppRoleMethod;
