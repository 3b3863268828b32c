//! The settings of a mount, each with its rules: who reads one need not check again.

pub mod crl;
pub mod external_policy;
pub mod tidy;
