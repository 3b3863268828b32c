//! What may be signed. Requests are held against the rules of their role ([`names`], [`validity`]) and
//! against those of all authorities (`ca_request`); the very bytes to be signed against RFC 5280 and the name
//! constraints of the chain (`structure`). That makes a `Prepared`, the only thing that reaches a key. A role
//! itself is tried when it is written (`trial`).

pub mod blocking;
pub(crate) mod ca_request;
pub mod names;
pub(crate) mod paths;
pub(crate) mod prepared;
pub mod request;
pub(crate) mod structure;
pub(crate) mod trial;
pub mod validity;
