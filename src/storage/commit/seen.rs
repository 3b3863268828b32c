//! What the actor has seen of its store, for whoever asks without waiting for it.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// What the actor has seen so far.
#[derive(Default)]
pub(super) struct Seen {
    /// How many commits ran.
    pub(super) commits: AtomicU64,
    /// The store did not take a write, and none is known that it took since.
    pub(super) failing: AtomicBool,
}
