//! Making certificates: check → sign → store → release, in that order and never another.
//!
//! | part | holds |
//! |---|---|
//! | [`request`], [`issued`] | what is asked for, and what comes of it |
//! | [`role_leaf`] | `issue` and `sign`: leaves by a role |
//! | [`verbatim`], [`intermediate`], [`self_issued`] | the other ways to have something signed |
//! | [`external_policy`] | certificates that an external policy engine decides about |
//! | `signer`, `csr` | who signs, and what key is certified |
//! | `not_granted` | warnings about parts of a CSR that the certificate does not have |
//! | `release` | signature → record → release, for all of them |
//! | [`beside`] | what is recorded beside a certificate |
//! | [`repeats`] | requests that are sent again |
//! | [`operation`], [`stages`] | what metrics tell apart, and how long each stage took |

pub mod beside;
pub(crate) mod csr;
pub mod external_policy;
pub mod intermediate;
pub mod issued;
mod not_granted;
pub mod operation;
pub(crate) mod release;
pub mod repeats;
pub mod request;
pub mod role_leaf;
pub mod self_issued;
pub(crate) mod signer;
pub mod stages;
pub mod verbatim;
