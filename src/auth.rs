//! Who is calling and what they may do: tokens, policies, the mount table.

pub mod policy;
pub mod store;
