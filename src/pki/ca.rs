//! Operations that create, import and configure the certificate authorities (issuers and keys) of a PKI mount, and that
//! change the mount's settings.

pub(crate) mod bundle;
pub mod ca_profile;
pub mod changes;
pub mod import;
pub mod intermediate;
pub mod key;
pub mod root;
