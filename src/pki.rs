//! The certificate authority engine: one [`Authority`] per mount.
//!
//! Certificates are issued on the HTTP worker that received the request, by the mount's replica actor ([`actor`]), from
//! the published [view](mount::view). Every change of roles, issuers, keys and settings goes through the mount's
//! control actor: it commits the change, publishes the next view and only then replies. Revocations are rows in
//! storage; CRLs ([`crl`]) are derived from them. `tests/it/architecture.rs` checks the layering of the submodules.

pub mod actor;
pub mod ca;
pub mod check;
pub mod compromised;
pub mod constraints;
pub mod crl;
pub mod engine;
pub mod engine_deps;
pub mod issue;
pub mod mount;
pub mod policy_engine;
pub mod revocation;
pub mod serials;
pub mod store;
pub mod tidy;
pub mod values;

pub use self::engine::{Authority, Engine};
