//! The authentication method `jwt`: signed tokens of other systems.
//!
//! The configuration defines the issuer (`config`); a role defines the accepted tokens and the identity of the client
//! (`role`, `claims`); `login` handles a login. Published keys are cached per write of the configuration (`method`):
//! changing a role keeps them, writing the configuration drops them.

mod claims;
mod config;
mod login;
mod method;
mod role;

pub(crate) use self::config::{JwtConfig, KeySource, KeySourceFields};
pub(crate) use self::method::JwtMethod;
pub(crate) use self::role::{BoundClaims, JwtRole};
