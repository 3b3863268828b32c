//! State of the commit actor that can be read without waiting for it.

use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Default)]
pub(super) struct CommitStatus {
    pub(super) commits: AtomicU64,
    /// `true` after a write that the store failed to take, until a write is known to have succeeded.
    pub(super) failing: AtomicBool,
}
