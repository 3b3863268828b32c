//! Making certificate authorities, and changing what a mount has: each is one change of its state.

pub(crate) mod bundle;
pub mod changes;
pub mod import;
pub mod intermediate;
pub mod key;
pub mod readable;
pub mod root;
