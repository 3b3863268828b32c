//! State of the commit actor that can be read without waiting for it.

use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Default)]
pub(super) struct CommitStatus {
    pub(super) commits: AtomicU64,
    /// `true` after the store failed to take a write, until another write is known to have succeeded.
    pub(super) failing: AtomicBool,
}
