//! The state of a mount in memory, as requests use it: roles, issuers, keys, settings, and values derived from them
//! once per change.
//!
//! Nothing here reads storage or signs: a [view] is built from stored documents, and a change returns the documents to
//! store.

pub mod chains;
pub mod cluster;
pub mod issuer;
pub mod paths;
pub mod profile;
pub mod responders;
pub mod role;
pub mod settings;
pub mod signatures;
pub mod signer;
#[cfg(test)]
mod tests;
pub mod urls;
pub mod view;
