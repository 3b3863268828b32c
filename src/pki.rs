//! The certificate authority engine.

pub mod names;
pub mod oid;
pub mod request;
pub mod role;
pub mod store;
pub mod validity;
