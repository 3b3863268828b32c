//! The settings of a mount. Each type enforces its rules on writes, so that readers need not check again.

pub mod crl;
pub mod external_policy;
pub mod tidy;
