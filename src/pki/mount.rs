//! A mount's state, as it is published for issuing: roles, issuers, keys and settings, and what is worked
//! out of them once per change.
//!
//! Nothing here asks storage or signs: a [view] is made of documents, and a change of one gives the
//! documents to store.

pub mod chains;
pub mod cluster;
pub mod issuer;
pub mod paths;
pub mod profile;
#[cfg(test)]
mod recorded;
pub mod responders;
pub mod role;
pub mod settings;
pub mod signatures;
pub mod signer;
pub mod urls;
pub mod view;
