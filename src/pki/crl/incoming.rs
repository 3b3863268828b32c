//! Sorts the revocations that were read from storage into three parts: covered by the stored complete CRL, by the
//! stored delta CRL, or by neither.

use super::batch::CrlEntryBatch;
use super::entries::CrlEntries;
use crate::clock::Time;
use crate::pki::store::StoredRevocation;

/// Collects CRL entries, and sorts them at the end or whenever a batch is full.
#[derive(Default)]
struct CrlEntriesBuilder {
    entries: CrlEntries,
    batch: CrlEntryBatch,
}

impl CrlEntriesBuilder {
    fn add(&mut self, revocation: &StoredRevocation) {
        self.batch.add(&revocation.row);
        if self.batch.len() >= CrlEntryBatch::MAX_ENTRIES {
            self.sort_batch();
        }
    }

    fn sort_batch(&mut self) {
        if !self.batch.is_empty() {
            self.entries = self.entries.with_batch(std::mem::take(&mut self.batch));
        }
    }

    fn finish(mut self) -> CrlEntries {
        self.sort_batch();
        self.entries
    }
}

#[derive(Default)]
pub(super) struct RevocationsByList {
    /// Highest sequence numbers that the stored complete CRL and the stored delta CRL cover, in this order.
    limits: (u64, u64),
    parts: [CrlEntriesBuilder; 3],
    last: u64,
    oldest: Option<Time>,
}

/// Revocations of an issuer group, by the stored CRL that covers them: the complete CRL, the delta CRL, or neither
/// (`later`).
pub(super) struct GroupRevocations {
    pub(super) complete: CrlEntries,
    pub(super) delta: CrlEntries,
    pub(super) later: CrlEntries,
    pub(super) last: u64,
    /// Earliest revocation time in `later`.
    pub(super) oldest: Option<Time>,
}

impl RevocationsByList {
    pub(super) fn new(complete: u64, delta: u64) -> Self {
        Self { limits: (complete, delta), ..Self::default() }
    }

    pub(super) fn add(&mut self, revocation: &StoredRevocation) {
        let part = match revocation.sequence {
            sequence if sequence <= self.limits.0 => 0,
            sequence if sequence <= self.limits.1 => 1,
            _ => {
                let at = revocation.row.revoked_at;
                self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
                2
            }
        };
        self.last = self.last.max(revocation.sequence);
        self.parts[part].add(revocation);
    }

    pub(super) fn sorted(self) -> GroupRevocations {
        let [complete, delta, later] = self.parts.map(CrlEntriesBuilder::finish);
        GroupRevocations { complete, delta, later, last: self.last, oldest: self.oldest }
    }
}
