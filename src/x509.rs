//! X.509: the only place that knows ASN.1.

pub mod serial;
