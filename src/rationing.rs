//! Limits on shared resources: an amount for all callers together, and less for one caller.
pub mod token_buckets;
