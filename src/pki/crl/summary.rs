//! Metrics of the published CRLs of a server. The control actors update them after each build.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::list::PublishedCrl;
use crate::documents::MountId;

/// Metrics of the complete CRLs of one mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountCrlMetrics {
    /// Number of entries of the largest CRL.
    pub entries: usize,
    /// Size of the largest CRL, bytes.
    pub bytes: usize,
    /// Earliest thisUpdate, epoch seconds.
    pub this_update: Option<i64>,
    /// Earliest nextUpdate, epoch seconds.
    pub next_update: Option<i64>,
    /// Earliest scheduled renewal, epoch seconds; CRLs without a signer do not count.
    pub renewal: Option<i64>,
}

impl MountCrlMetrics {
    /// Combines the metrics of two sets of CRLs: the largest sizes and the earliest times.
    #[must_use]
    pub fn combined_with(self, other: Self) -> Self {
        let earlier = |one: Option<i64>, other: Option<i64>| one.into_iter().chain(other).min();
        Self {
            entries: self.entries.max(other.entries),
            bytes: self.bytes.max(other.bytes),
            this_update: earlier(self.this_update, other.this_update),
            next_update: earlier(self.next_update, other.next_update),
            renewal: earlier(self.renewal, other.renewal),
        }
    }

    pub(super) fn of(list: &PublishedCrl, renewal: Option<i64>) -> Self {
        Self {
            entries: list.entries,
            bytes: list.len,
            this_update: Some(list.this_update),
            next_update: Some(list.next_update),
            renewal,
        }
    }
}

/// CRL metrics of all mounts.
#[derive(Default)]
pub struct CrlMetricsByMount(Mutex<HashMap<MountId, MountCrlMetrics>>);

impl CrlMetricsByMount {
    /// Records the CRL metrics of a mount; `None` removes them.
    pub fn report(&self, mount: MountId, summary: Option<MountCrlMetrics>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match summary {
            Some(summary) => drop(all.insert(mount, summary)),
            None => drop(all.remove(&mount)),
        }
    }

    /// Returns the CRL metrics of every mount.
    pub fn all(&self) -> Vec<(MountId, MountCrlMetrics)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(mount, crls)| (*mount, *crls)).collect()
    }
}
