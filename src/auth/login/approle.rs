//! The authentication method `approle`: machines that show the id of a role and a secret id.
//!
//! A role says who its tokens are; its role id names it at logins, and is unique in its mount. A secret id is what
//! a machine shows beside it: made here or chosen, with an end, a number of uses and addresses of its own. There
//! may be many of them, so each is a row, found by a keyed hash; the text exists only where it was handed out.

mod method;
pub(crate) mod role;
mod role_ids;

pub(crate) use self::method::AppRoles;
