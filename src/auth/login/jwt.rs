//! The authentication method `jwt`: clients log in with signed tokens of other systems.
//!
//! The configuration defines the issuer and its keys (`config`). A role defines the tokens that it accepts and the
//! claims that identify the client (`role`, `claims`). `login` handles a login. Published keys are cached per write of
//! the configuration (`method`): changing a role keeps them, writing the configuration drops them.

mod claims;
mod config;
mod login;
mod method;
mod role;

pub(crate) use self::config::{JwtConfig, KeySource, KeySourceFields};
pub(crate) use self::method::JwtMethod;
pub(crate) use self::role::{BoundClaims, JwtRole};
