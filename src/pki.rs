//! The certificate authority engine: one [`Authority`] per mount.
//!
//! Issuing runs on the worker that took the request, in the mount's replica actor there ([`actor`]),
//! on the published [view](mount::view). Every change of roles, issuers, keys and settings goes through the
//! mount's control actor, which commits it, publishes the next view, and only then answers.
//! Revocations are rows in storage; CRLs ([`crl`]) are projections of them.
//!
//! The parts stand on floors: each names parts further down in this table, never one further up, and which
//! of them a test (`tests/it/architecture.rs`) says.
//!
//! | part | holds |
//! |---|---|
//! | [`ca`] | making authorities: roots, intermediates, keys, imports, and changes of what a mount has |
//! | [`tidy`] | removing what has expired |
//! | [`revocation`] | revoking, leases, OCSP, lists that a caller words |
//! | [`engine`] | the open mounts, and what this node keeps of each |
//! | [`actor`] | the two actors of a mount: changes and CRLs, and issuing |
//! | [`issue`] | making certificates, from what is asked to the record |
//! | [`crl`] | the lists: entries, numbers, builds |
//! | [`tools`] | what issuing needs besides a mount's state |
//! | [`check`] | what may be signed: names, dates, structure; nothing else reaches a key |
//! | [`mount`] | a mount's state, compiled for issuing: roles, issuers, keys, settings |
//! | [`policy_engine`] | calling an external policy engine |
//! | [`constraints`] | the name constraints of a chain |
//! | [`values`] | how single values are written |
//! | [`serials`], [`store`] | serial numbers; the rows, and what is asked of storage |

pub mod actor;
pub mod ca;
pub mod check;
pub mod compromised;
pub mod constraints;
pub mod crl;
pub mod engine;
pub mod issue;
pub mod mount;
pub mod policy_engine;
pub mod revocation;
pub mod serials;
pub mod store;
pub mod tidy;
pub mod tools;
pub mod values;

pub use self::engine::{Authority, Engine};
