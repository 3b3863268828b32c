//! The certificate authority engine.

pub mod store;
