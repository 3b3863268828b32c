//! Progress of long work on a store, for a display on another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Progress counters of one task, in bytes, rows or other units.
#[derive(Debug, Default)]
pub struct ProgressCounters {
    done: AtomicU64,
    total: AtomicU64,
}

impl ProgressCounters {
    /// Adds to the expected total.
    pub fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds to the completed units.
    pub fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// The completed units.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The total, if known.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }
}
