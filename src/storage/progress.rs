//! Progress of a long task on a store, displayed by another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Progress of one task: the completed and the expected number of units, such as bytes or rows.
#[derive(Debug, Default)]
pub struct ProgressCounters {
    done: AtomicU64,
    total: AtomicU64,
}

impl ProgressCounters {
    /// Adds `more` units to the expected total.
    pub fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds `more` units to the completed ones.
    pub fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the number of completed units.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the expected total; `None` if it is unknown.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }
}
