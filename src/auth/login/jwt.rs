//! The authentication method `jwt`: whoever has a signed token of another system.
//!
//! The configuration says whose tokens (`config`), a role which of them, and who they are here (`role`, which holds
//! claims by `claims`); `entry` is a login. Keys that an issuer publishes belong to one write of the configuration
//! (`method`): a change of roles keeps them, whoever writes the configuration begins without any.

mod claims;
mod config;
mod entry;
mod method;
mod role;

pub(crate) use self::config::{JwtConfig, KeySource};
pub(crate) use self::method::Jwt;
pub(crate) use self::role::{BoundClaims, JwtRole};
