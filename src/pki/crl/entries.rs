//! Encoded CRL entries, sorted by serial number, in chunks that several CRLs share. A new CRL copies only the chunks
//! that receive entries, so a million entries are in memory once, however many CRLs contain them.

use std::collections::HashSet;
use std::iter::Peekable;
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;

use super::batch::{CrlEntryBatch, EncodedEntry, NotAfterSeconds, SortedBucket};
use crate::x509::crl::{first_entry, iter_entries};
use crate::x509::serial::Serial;

/// Maximum size of a chunk in bytes, unless a single entry is longer. An insertion copies one chunk; the entries of a
/// CRL with a million entries form some thousands of chunks.
const MAX_CHUNK_BYTES: usize = 16 << 10;

/// Minimum number of entries of a batch that is sorted on a second thread.
const PARALLEL_SORT_MIN_ENTRIES: usize = 50_000;

/// CRL entries in ascending order of serial number. Clones share the encoded entries.
#[derive(Clone, Default)]
pub struct CrlEntries {
    chunks: Vec<EntryChunk>,
    len: usize,
    bytes: usize,
    /// Upper bound of the latest revocation time, epoch seconds: replaced entries count as well.
    latest: Option<i64>,
}

#[derive(Clone)]
struct EntryChunk {
    first: Serial,
    encoded: Bytes,
    /// notAfter of each entry's certificate, in entry order.
    not_afters: Arc<[NotAfterSeconds]>,
}

impl CrlEntries {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the total size of the encoded entries in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns an upper bound of the latest revocation time, epoch seconds.
    pub(crate) fn latest_revocation(&self) -> Option<i64> {
        self.latest
    }

    /// Returns the encoded entries as shared chunks, in order.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.chunks.iter().map(|chunk| chunk.encoded.clone()).collect()
    }

    /// Returns `true` if there is an entry for `serial`.
    pub fn contains(&self, serial: &Serial) -> bool {
        let after = self.chunks.partition_point(|chunk| chunk.first <= *serial);
        let chunk = after.checked_sub(1).and_then(|at| self.chunks.get(at));
        chunk.is_some_and(|chunk| chunk.items().any(|item| item.serial == serial.octets()))
    }

    /// Merges two sets of entries. An entry of `others` replaces the entry with the same serial number.
    #[must_use]
    pub fn union(&self, others: &Self) -> Self {
        if self.is_empty() {
            return others.clone();
        }
        let both = self.with_items(others.len, others.bytes, others.chunks.iter().flat_map(EntryChunk::items));
        Self { latest: self.latest.max(others.latest), ..both }
    }

    /// Merges the entries of a batch. An entry of the batch replaces earlier entries with the same serial number, both
    /// in this set and in the batch.
    #[must_use]
    pub fn with_batch(&self, batch: CrlEntryBatch) -> Self {
        let count = batch.len();
        let bytes = batch.bytes();
        let latest = batch.latest_revocation();
        if self.is_empty() {
            return Self { latest, ..Self::from_batch(batch) };
        }
        let parts: Vec<SortedBucket> = batch.sorted().collect();
        let both = self.with_items(count, bytes, parts.iter().flat_map(SortedBucket::items));
        Self { latest: self.latest.max(latest), ..both }
    }

    /// Converts a batch to sorted entries. For a large batch, one thread sorts its buckets while another fills chunks.
    fn from_batch(batch: CrlEntryBatch) -> Self {
        let mut filling =
            EntriesWriter { list: Self::default(), building: ChunkBuilder::new(batch.bytes().min(MAX_CHUNK_BYTES)) };
        let mut fill =
            |part: SortedBucket| part.entries().for_each(|(encoded, not_after)| filling.push(encoded, not_after));
        if batch.len() < PARALLEL_SORT_MIN_ENTRIES {
            batch.sorted().for_each(fill);
            return filling.finish();
        }
        thread::scope(|scope| {
            let (done, parts) = mpsc::sync_channel(1);
            // Sending fails only if the receiver panicked; the scope propagates that panic.
            scope.spawn(move || batch.sorted().try_for_each(|part| done.send(part)));
            parts.into_iter().for_each(&mut fill);
        });
        filling.finish()
    }

    /// Merges sorted entries, `items`, into this set of entries, which is not empty.
    fn with_items<'a>(&self, count: usize, bytes: usize, items: impl Iterator<Item = EncodedEntry<'a>>) -> Self {
        if count == 0 {
            return self.clone();
        }
        let mut items = items.peekable();
        let chunks = Vec::with_capacity(self.chunks.len() + bytes / MAX_CHUNK_BYTES + 2);
        let mut list = Self { chunks, ..Self::default() };
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1).map(|next| next.first.octets());
            if items.peek().is_some_and(|item| next.is_none_or(|next| item.serial < next)) {
                list.merge_chunk(chunk, &mut items, next);
            } else {
                list.push(chunk.clone());
            }
        }
        list
    }

    /// Appends a chunk merged with the items whose serial numbers are below `next`. Copies all bytes between two items
    /// at once, and splits chunks that become too long.
    fn merge_chunk<'a>(
        &mut self,
        chunk: &EntryChunk,
        items: &mut Peekable<impl Iterator<Item = EncodedEntry<'a>>>,
        next: Option<&[u8]>,
    ) {
        let mut building = ChunkBuilder::new(chunk.encoded.len() + MAX_CHUNK_BYTES / 8);
        let mut cursor = ChunkCursor { chunk, octets: 0, entries: 0 };
        while let Some(item) = items.next_if(|item| next.is_none_or(|next| item.serial < next)) {
            let octets = cursor.octets;
            let entries = cursor.entries;
            let found = cursor.seek(item.serial);
            building.append(&chunk.encoded[octets..cursor.octets], &chunk.not_afters[entries..cursor.entries]);
            building.append(item.encoded, &[item.not_after]);
            if found {
                cursor.skip();
            }
            building.split(self);
        }
        building.append(&chunk.encoded[cursor.octets..], &chunk.not_afters[cursor.entries..]);
        building.split(self);
        building.finish(self);
    }

    fn push(&mut self, chunk: EntryChunk) {
        self.len += chunk.not_afters.len();
        self.bytes += chunk.encoded.len();
        self.chunks.push(chunk);
    }

    /// Counts entries that are missing in `next` although their certificates have not expired at `now` (epoch seconds).
    /// Skips chunks that both sets of entries share.
    pub fn count_lost_entries(&self, next: &Self, now: i64) -> usize {
        let shared: HashSet<*const u8> = next.chunks.iter().map(|c| c.encoded.as_ptr()).collect();
        let mut others = next.chunks.iter().flat_map(EntryChunk::items).peekable();
        let mut lost = 0;
        for chunk in self.chunks.iter().filter(|chunk| !shared.contains(&chunk.encoded.as_ptr())) {
            for item in chunk.items() {
                while others.next_if(|other| other.serial < item.serial).is_some() {}
                let there = others.peek().is_some_and(|other| other.serial == item.serial);
                lost += usize::from(!there && i64::from(item.not_after) >= now);
            }
        }
        lost
    }
}

impl EntryChunk {
    fn items(&self) -> impl Iterator<Item = EncodedEntry<'_>> {
        iter_entries(&self.encoded).zip(self.not_afters.iter()).map(|((serial, encoded), not_after)| EncodedEntry {
            serial,
            encoded,
            not_after: *not_after,
        })
    }
}

struct ChunkCursor<'a> {
    chunk: &'a EntryChunk,
    octets: usize,
    entries: usize,
}

impl ChunkCursor<'_> {
    /// Advances to the first entry whose serial number is not below `serial`; returns `true` if it is equal.
    fn seek(&mut self, serial: &[u8]) -> bool {
        while let Some((there, len)) = first_entry(&self.chunk.encoded[self.octets..]) {
            if there >= serial {
                return there == serial;
            }
            self.octets += len;
            self.entries += 1;
        }
        false
    }

    /// Advances past the current entry.
    fn skip(&mut self) {
        if let Some((_, len)) = first_entry(&self.chunk.encoded[self.octets..]) {
            self.octets += len;
            self.entries += 1;
        }
    }
}

struct EntriesWriter {
    list: CrlEntries,
    building: ChunkBuilder,
}

impl EntriesWriter {
    fn push(&mut self, encoded: &[u8], not_after: NotAfterSeconds) {
        if self.building.encoded.len() + encoded.len() > MAX_CHUNK_BYTES {
            std::mem::replace(&mut self.building, ChunkBuilder::new(MAX_CHUNK_BYTES)).finish(&mut self.list);
        }
        self.building.append(encoded, &[not_after]);
    }

    fn finish(mut self) -> CrlEntries {
        self.building.finish(&mut self.list);
        self.list
    }
}

struct ChunkBuilder {
    encoded: Vec<u8>,
    not_afters: Vec<NotAfterSeconds>,
}

impl ChunkBuilder {
    fn new(capacity: usize) -> Self {
        Self { encoded: Vec::with_capacity(capacity), not_afters: Vec::with_capacity(capacity / 36) }
    }

    fn append(&mut self, encoded: &[u8], not_afters: &[NotAfterSeconds]) {
        self.encoded.extend_from_slice(encoded);
        self.not_afters.extend_from_slice(not_afters);
    }

    /// While the chunk is too long, moves its first half to `list`, so that both halves can grow.
    fn split(&mut self, list: &mut CrlEntries) {
        while self.encoded.len() > MAX_CHUNK_BYTES && self.not_afters.len() > 1 {
            let mut octets = 0;
            let mut entries = 0;
            for (_, entry) in iter_entries(&self.encoded).take(self.not_afters.len() - 1) {
                octets += entry.len();
                entries += 1;
                if octets >= MAX_CHUNK_BYTES / 2 {
                    break;
                }
            }
            let mut left = Self::new(octets);
            left.append(&self.encoded[..octets], &self.not_afters[..entries]);
            left.finish(list);
            self.encoded.drain(..octets);
            self.not_afters.drain(..entries);
        }
    }

    fn finish(self, list: &mut CrlEntries) {
        let Some(first) = first_entry(&self.encoded).and_then(|(serial, _)| Serial::from_octets(serial).ok()) else {
            return;
        };
        // Converts the buffer to a boxed slice, to free unused capacity.
        list.push(EntryChunk {
            first,
            encoded: self.encoded.into_boxed_slice().into(),
            not_afters: self.not_afters.into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::Time;
    use crate::documents::MountId;
    use crate::pki::store::RevocationRow;
    use crate::x509::crl::encode_entry;

    fn row(serial: u32, not_after: i64) -> RevocationRow {
        RevocationRow {
            mount: MountId(1),
            serial: Serial::from_octets(&serial.to_be_bytes()).unwrap(),
            issuer: String::new(),
            revoked_at: Time::UNIX_EPOCH,
            not_after,
            reason: Some((serial % 7) as u8),
            invalidity_date: None,
        }
    }

    fn batch(serials: impl IntoIterator<Item = u32>) -> CrlEntryBatch {
        let mut batch = CrlEntryBatch::default();
        serials.into_iter().for_each(|serial| batch.add(&row(serial, 100)));
        batch
    }

    fn joined(entries: &CrlEntries) -> Vec<u8> {
        let joined = entries.pieces().concat();
        assert_eq!(joined.len(), entries.bytes());
        assert_eq!(iter_entries(&joined).count(), entries.len());
        joined
    }

    fn expected(serials: impl IntoIterator<Item = u32>) -> Vec<u8> {
        let sorted: BTreeMap<Serial, Vec<u8>> = serials
            .into_iter()
            .map(|s| row(s, 0))
            .map(|r| (r.serial, encode_entry(&r.serial, 0, r.reason, None)))
            .collect();
        sorted.into_values().flatten().collect()
    }

    #[test]
    fn changed_list_shares_unchanged_chunks() {
        let first = CrlEntries::default().with_batch(batch((0..20_000).map(|n| n * 3)));
        let second = first.with_batch(batch([30_001]));
        let before: std::collections::HashSet<_> = first.pieces().iter().map(|p| p.as_ptr()).collect();
        let new = second.pieces().iter().filter(|p| !before.contains(&p.as_ptr())).count();
        assert!((1..=2).contains(&new), "{new} of {} chunks are new", second.chunks.len());
        assert!(second.chunks.len() > 10);
        assert!(second.pieces().iter().all(|p| p.len() <= MAX_CHUNK_BYTES));
        assert_eq!((first.len(), second.len()), (20_000, 20_001));
        assert!(second.contains(&row(30_001, 0).serial) && !first.contains(&row(30_001, 0).serial));
        assert_eq!((first.count_lost_entries(&second, 0), second.count_lost_entries(&first, 0)), (0, 1));
        assert_eq!(second.count_lost_entries(&first, 100), 1, "ends now");
        assert_eq!(second.count_lost_entries(&first, 101), 0, "its certificate has ended");
        assert_eq!(second.count_lost_entries(&CrlEntries::default(), 0), 20_001);
    }

    #[test]
    fn large_batch_sorted_in_parallel_gives_full_chunks() {
        // Serial numbers spread over the 32-bit range; some occur twice.
        let serials = (1..70_000_u32).map(|n| (n % 69_000).wrapping_mul(0x9e37_79b1));
        let list = CrlEntries::default().with_batch(batch(serials.clone()));
        assert!(joined(&list) == expected(serials));
        assert!(list.len() >= PARALLEL_SORT_MIN_ENTRIES && list.pieces().iter().all(|p| p.len() <= MAX_CHUNK_BYTES));
        let not_full = list.pieces().iter().filter(|p| p.len() < MAX_CHUNK_BYTES - 100).count();
        assert!(not_full <= 1, "{not_full} chunks are not full");
    }

    #[test]
    fn later_entries_replace_earlier_ones_of_the_same_serial() {
        let of = |serial: u32, reason| RevocationRow { reason, ..row(serial, 100) };
        let batch = |rows: &[RevocationRow]| {
            let mut batch = CrlEntryBatch::default();
            rows.iter().for_each(|row| batch.add(row));
            batch
        };
        let first: Vec<_> = (0..3_000).map(|n| of(n * 2, None)).collect();
        let later = [of(0, Some(1)), of(7, Some(4)), of(3_000, Some(9)), of(5_998, Some(1)), of(3_000, Some(1))];
        let expected = |first: &[RevocationRow]| {
            let all = first.iter().chain(&later).map(|r| (r.serial, encode_entry(&r.serial, 0, r.reason, None)));
            all.collect::<BTreeMap<Serial, Vec<u8>>>().into_values().flatten().collect::<Vec<_>>()
        };
        let list = CrlEntries::default().with_batch(batch(&first));
        let replaced = list.with_batch(batch(&later));
        assert_eq!(replaced.len(), 3_001);
        assert!(joined(&replaced) == expected(&first));
        assert!(joined(&list.union(&CrlEntries::default().with_batch(batch(&later)))) == expected(&first));
        assert!(
            joined(&CrlEntries::default().with_batch(batch(&[first, later.to_vec()].concat()))) == joined(&replaced)
        );
        assert_eq!((list.count_lost_entries(&replaced, 0), replaced.count_lost_entries(&list, 0)), (0, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn merging_in_any_order_gives_sorted_entries_without_duplicates(
            batches in prop::collection::vec(prop::collection::vec(0..6_000_u32, 0..1_500), 1..6)
        ) {
            let mut merged = CrlEntries::default();
            let mut joins = CrlEntries::default();
            for serials in &batches {
                merged = merged.with_batch(batch(serials.iter().copied()));
                joins = joins.union(&CrlEntries::default().with_batch(batch(serials.iter().copied())));
            }
            let all: Vec<u32> = batches.concat();
            let expected = expected(all.iter().copied());
            prop_assert!(joined(&merged) == expected);
            prop_assert!(joined(&joins) == expected);
            prop_assert_eq!(merged.count_lost_entries(&joins, 0), 0);
            prop_assert!(all.iter().all(|s| merged.contains(&row(*s, 0).serial)));
            prop_assert!(!merged.contains(&row(7_000, 0).serial));
        }
    }
}
