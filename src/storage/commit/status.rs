//! Status of the commit actor, readable without waiting for it.

use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Default)]
pub(super) struct CommitStatus {
    pub(super) commits: AtomicU64,
    /// `true` after the store could not store a write, until a later write is known to be stored.
    pub(super) failing: AtomicBool,
}
