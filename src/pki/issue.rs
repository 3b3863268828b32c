//! Issuance of certificates, always in the order check → sign → store → release.
//!
//! [`pipeline`] is the entry for all requests. Kinds of requests: `leaf` (`issue` and `sign`), `verbatim`,
//! `intermediate`, `self_issued` and [`external_policy`]. Shared: [`request`] and [`issued`] (input and result),
//! `issuance` (environment), `signer` and `csr` (issuer and key selection), `release` (signature, record and release),
//! [`side_effects`] (leases and metadata), [`idempotency`] (idempotent requests), `not_granted` (warnings about ignored
//! parts of a CSR), [`operation`] and [`stages`] (metrics).

pub(crate) mod csr;
pub mod external_policy;
pub mod idempotency;
mod intermediate;
mod issuance;
pub mod issued;
mod leaf;
mod not_granted;
pub mod operation;
pub mod pipeline;
pub(crate) mod release;
pub mod request;
mod self_issued;
pub mod side_effects;
pub(crate) mod signer;
pub mod stages;
mod verbatim;
