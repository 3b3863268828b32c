//! Checks before signing. Requests are checked against their role ([`names`], [`validity`]), and CA requests against
//! the rules for CAs (`ca_request`). The bytes to be signed are checked against RFC 5280 and the name constraints of
//! the chain (`structure`); the result is a `LintedTbs`, the only type that a key signs. Roles are checked on writes
//! (`role_feasibility`).

pub mod blocking;
pub(crate) mod ca_request;
pub(crate) mod interoperability;
pub(crate) mod linted_tbs;
pub mod names;
pub mod request;
pub(crate) mod role_feasibility;
pub(crate) mod structure;
pub mod validity;
