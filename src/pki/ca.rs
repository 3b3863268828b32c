//! Creates certificate authorities and changes the configuration of a mount; each operation is one change of the
//! mount's state.

pub(crate) mod bundle;
pub mod ca_profile;
pub mod changes;
pub mod import;
pub mod intermediate;
pub mod key;
pub mod root;
