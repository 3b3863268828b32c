//! Issuance of certificates, always in the order check → sign → store → release.
//!
//! [`pipeline`] is the entry for all requests. The modules `leaf` (`issue` and `sign`), `verbatim`, `intermediate`,
//! `self_issued` and [`external_policy`] each handle one kind of request. All kinds share these modules:
//! - [`request`], [`issued`] and `issuance`: input, result and environment of a request
//! - `signer` and `csr`: selection of the issuer, and checks of the certified key
//! - `release`, [`side_effects`] and [`idempotency`]: signature, records, leases, metadata and repeated requests
//! - `not_granted`: warnings about ignored parts of a CSR
//! - [`operation`] and [`stages`]: metrics

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
