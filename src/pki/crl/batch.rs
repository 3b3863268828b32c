//! Collects CRL entries in the order of revocation and sorts them by serial number for [`super::entries`].
//!
//! Each entry is encoded once into the bucket of its serial number. A bucket fits into the processor's cache when it is
//! sorted, and its memory is freed as soon as its entries are copied. The first bits of random serial numbers fill the
//! buckets evenly. Serial numbers that begin with a time share their first bits, so a bucket that grows too large is
//! split into quarters, repeatedly if necessary.

use std::cmp::Ordering;

use crate::pki::store::RevocationRow;
use crate::x509::crl::{CrlEntryWriter, first_entry};
use crate::x509::serial::Serial;

/// Size of a block of encoded entries in bytes. Full blocks never move, so growing a batch copies little.
const BLOCK_BYTES: usize = 16 << 10;
/// Number of leading bits of a serial number that select the row of buckets for its entry.
const ROW_BITS: u32 = 5;
/// Number of entries at which a bucket is split.
const BUCKET_SPLIT_ENTRIES: usize = 1 << 16;
/// Number of buckets into which a full bucket is split. With fewer parts, an entry is copied more often; with more
/// parts, entries are written to more memory locations.
const SPLIT_PARTS: usize = 4;
/// When a bucket is split, one sort key per this many entries is sampled to choose the split points.
const ENTRIES_PER_SAMPLE: usize = 64;
/// Maximum number of entries that are sorted by comparison alone.
const COMPARISON_SORT_MAX_ENTRIES: usize = 256;

/// notAfter of a certificate in seconds since the epoch; saturates in 2106.
pub(super) type NotAfterSeconds = u32;

/// A DER-encoded CRL entry with its serial number and the notAfter of its certificate.
#[derive(Clone, Copy)]
pub(super) struct EncodedEntry<'a> {
    pub(super) serial: &'a [u8],
    pub(super) encoded: &'a [u8],
    pub(super) not_after: NotAfterSeconds,
}

/// Encoded CRL entries in buckets by serial number. Within a bucket, the entries are in insertion order.
#[derive(Default)]
pub struct CrlEntryBatch {
    writer: CrlEntryWriter,
    /// Rows of buckets. The leading bits of a serial number select the row; the buckets of a row are in ascending order
    /// of their lowest keys. Empty until the first entry is added.
    rows: Vec<Vec<EntryBucket>>,
    len: usize,
    bytes: usize,
    latest: Option<i64>,
}

/// Encoded entries of a range of serial numbers, each preceded by the notAfter of its certificate. Because a bucket has
/// only one write position, all write positions fit into the processor's first-level cache.
#[derive(Default)]
struct EntryBucket {
    /// Lower bound of the [`serial_key`] of every entry in this bucket.
    lowest_key: u64,
    len: usize,
    split_entries: usize,
    current_block: Vec<u8>,
    full_blocks: Vec<Vec<u8>>,
}

const NOT_AFTER_BYTES: usize = size_of::<NotAfterSeconds>();

#[derive(Clone, Copy, Default)]
struct EntryPosition {
    key: u64,
    /// Index of the block times [`BLOCK_BYTES`], plus the offset of the entry in the block.
    start: u32,
    len: u32,
}

fn to_not_after_seconds(not_after: i64) -> NotAfterSeconds {
    NotAfterSeconds::try_from(not_after.max(0)).unwrap_or(NotAfterSeconds::MAX)
}

impl CrlEntryBatch {
    /// Maximum number of entries in a batch; the position of every entry then fits into 32 bits.
    pub const MAX_ENTRIES: usize = 1 << 24;

    /// Returns the number of entries in the batch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn latest_revocation(&self) -> Option<i64> {
        self.latest
    }

    /// Encodes a revocation as a CRL entry and adds it to the batch.
    pub fn add(&mut self, row: &RevocationRow) {
        let mut writer = std::mem::take(&mut self.writer);
        let revoked_at = row.revoked_at.unix_timestamp();
        self.latest = self.latest.max(Some(revoked_at));
        self.append(&row.serial, row.not_after, CrlEntryWriter::MAX_ENTRY_BYTES, |block| {
            writer.write(block, &row.serial, revoked_at, row.reason, row.invalidity_date);
        });
        self.writer = writer;
    }

    /// Adds an encoded CRL entry. `revoked_at` (the revocation time in the entry) and `not_after` (of the certificate)
    /// are epoch seconds.
    pub fn push(&mut self, serial: Serial, encoded: &[u8], revoked_at: i64, not_after: i64) {
        self.latest = self.latest.max(Some(revoked_at));
        self.append(&serial, not_after, encoded.len(), |block| block.extend_from_slice(encoded));
    }

    fn append(&mut self, serial: &Serial, not_after: i64, max_len: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if self.rows.is_empty() {
            self.rows.resize_with(1 << ROW_BITS, || vec![EntryBucket::new(0)]);
        }
        let row = &mut self.rows[usize::from(serial.octets()[0] >> (u8::BITS - ROW_BITS))];
        let at = match row.len() {
            1 => 0,
            _ => {
                let key = serial_key(serial.octets());
                row.partition_point(|bucket| bucket.lowest_key <= key).saturating_sub(1)
            }
        };
        let bucket = &mut row[at];
        let written = bucket.write(to_not_after_seconds(not_after), max_len, write);
        if bucket.len >= bucket.split_entries {
            let others = bucket.split();
            row.splice(at + 1..at + 1, others);
        }
        self.bytes += written;
        self.len += 1;
    }

    /// Returns all entries in order of serial number, one sorted bucket at a time. If entries have the same serial
    /// number, only the last one added is returned.
    pub(super) fn sorted(self) -> impl Iterator<Item = SortedBucket> {
        self.rows.into_iter().flatten().filter(|bucket| bucket.len > 0).map(EntryBucket::sorted)
    }
}

impl EntryBucket {
    fn new(lowest_key: u64) -> Self {
        Self { lowest_key, split_entries: BUCKET_SPLIT_ENTRIES, ..Self::default() }
    }

    /// Appends the entry that `write` encodes, at most `max_len` bytes long; returns its length.
    fn write(&mut self, not_after: NotAfterSeconds, max_len: usize, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        if self.current_block.len() + NOT_AFTER_BYTES + max_len > BLOCK_BYTES {
            self.full_blocks.push(std::mem::replace(&mut self.current_block, Vec::with_capacity(BLOCK_BYTES)));
        }
        self.current_block.extend_from_slice(&not_after.to_ne_bytes());
        let before = self.current_block.len();
        write(&mut self.current_block);
        self.len += 1;
        self.current_block.len() - before
    }

    /// Splits the bucket. It keeps the entries with the lowest serial numbers; the other entries move to new buckets,
    /// which are returned. Each bucket keeps the insertion order. A block whose entries all go to one bucket, the usual
    /// case for time-ordered serial numbers, is moved without copying. A bucket whose serial numbers share one key is
    /// not split.
    fn split(&mut self) -> Vec<Self> {
        let mut sample = Vec::with_capacity(self.len / ENTRIES_PER_SAMPLE + self.full_blocks.len() + 1);
        let spans: Vec<BlockKeySpan> =
            self.full_blocks.iter().chain([&self.current_block]).map(|b| BlockKeySpan::of(b, &mut sample)).collect();
        sample.sort_unstable();
        let mut from: Vec<u64> = (1..SPLIT_PARTS).map(|n| sample[n * sample.len() / SPLIT_PARTS]).collect();
        from.dedup();
        from.retain(|min| *min > sample[0]);
        if from.is_empty() {
            self.split_entries *= 2;
            return Vec::new();
        }
        let part = |key: u64| from.partition_point(|min| *min <= key);
        let mut parts: Vec<Self> = [self.lowest_key].iter().chain(&from).map(|from| Self::new(*from)).collect();
        let blocks = std::mem::take(&mut self.full_blocks).into_iter().chain([std::mem::take(&mut self.current_block)]);
        for (block, span) in blocks.zip(spans) {
            if part(span.min) == part(span.max) {
                parts[part(span.min)].add_block(block, span.len);
                continue;
            }
            for (start, len) in entry_ranges(&block) {
                let entry = &block[start..start + len];
                let part = &mut parts[part(entry_key(entry))];
                part.write(read_not_after(&block, start), len, |block| block.extend_from_slice(entry));
            }
        }
        let others = parts.split_off(1);
        *self = parts.remove(0);
        others
    }

    fn add_block(&mut self, block: Vec<u8>, len: usize) {
        if !self.current_block.is_empty() {
            self.full_blocks.push(std::mem::take(&mut self.current_block));
        }
        self.full_blocks.push(block);
        self.len += len;
    }

    fn sorted(self) -> SortedBucket {
        let Self { len, current_block, full_blocks: mut blocks, .. } = self;
        blocks.push(current_block);
        let mut index = Vec::with_capacity(len);
        for (number, block) in blocks.iter().enumerate() {
            for (start, len) in entry_ranges(block) {
                let key = entry_key(&block[start..]);
                index.push(EntryPosition { key, start: (number * BLOCK_BYTES + start) as u32, len: len as u32 });
            }
        }
        let serial = |position: &EntryPosition| first_entry(entry_at(&blocks, position)).map(|(serial, _)| serial);
        let order = |a: &EntryPosition, b: &EntryPosition| {
            a.key.cmp(&b.key).then_with(|| serial(a).cmp(&serial(b))).then(b.start.cmp(&a.start))
        };
        sort_by_key(&mut index, |position| position.key, order);
        index.dedup_by(|next, kept| next.key == kept.key && serial(next) == serial(kept));
        SortedBucket { blocks, index }
    }
}

struct BlockKeySpan {
    min: u64,
    max: u64,
    len: usize,
}

impl BlockKeySpan {
    fn of(block: &[u8], sample: &mut Vec<u64>) -> Self {
        let mut span = Self { min: u64::MAX, max: 0, len: 0 };
        for (start, _) in entry_ranges(block) {
            let key = entry_key(&block[start..]);
            (span.min, span.max) = (span.min.min(key), span.max.max(key));
            if span.len.is_multiple_of(ENTRIES_PER_SAMPLE) {
                sample.push(key);
            }
            span.len += 1;
        }
        span
    }
}

fn entry_ranges(block: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut start = NOT_AFTER_BYTES;
    std::iter::from_fn(move || {
        let (_, len) = block.get(start..).and_then(first_entry)?;
        let range = (start, len);
        start += len + NOT_AFTER_BYTES;
        Some(range)
    })
}

fn read_not_after(block: &[u8], start: usize) -> NotAfterSeconds {
    block[start - NOT_AFTER_BYTES..].first_chunk().copied().map_or(0, NotAfterSeconds::from_ne_bytes)
}

pub(super) struct SortedBucket {
    blocks: Vec<Vec<u8>>,
    index: Vec<EntryPosition>,
}

impl SortedBucket {
    /// Returns each encoded entry with the notAfter of its certificate. Locating an entry needs only the index, not the
    /// entry before it, so the processor can prefetch several at a time.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], NotAfterSeconds)> {
        self.index.iter().map(|position| {
            let start = position.start as usize % BLOCK_BYTES;
            let len = position.len as usize;
            let block = &self.blocks[position.start as usize / BLOCK_BYTES];
            (&block[start..start + len], read_not_after(block, start))
        })
    }

    pub(super) fn items(&self) -> impl Iterator<Item = EncodedEntry<'_>> {
        self.entries().filter_map(|(encoded, not_after)| {
            first_entry(encoded).map(|(serial, _)| EncodedEntry { serial, encoded, not_after })
        })
    }
}

fn entry_at<'a>(blocks: &'a [Vec<u8>], position: &EntryPosition) -> &'a [u8] {
    let start = position.start as usize;
    &blocks[start / BLOCK_BYTES][start % BLOCK_BYTES..]
}

fn entry_key(entry: &[u8]) -> u64 {
    first_entry(entry).map_or(0, |(serial, _)| serial_key(serial))
}

/// Returns the first eight bytes of a serial number as an integer, padded with zero bytes at the end. Keys are in the
/// same order as their serial numbers.
fn serial_key(serial: &[u8]) -> u64 {
    let mut octets = [0; 8];
    let len = serial.len().min(8);
    octets[..len].copy_from_slice(&serial[..len]);
    u64::from_be_bytes(octets)
}

/// Sorts by `order`, which compares by `key` first. One pass moves evenly spread keys (random serials, or times within
/// a short interval) close to their final position; for other distributions, comparison sorting does the work.
fn sort_by_key<T: Copy + Default>(all: &mut Vec<T>, key: impl Fn(&T) -> u64, order: impl Fn(&T, &T) -> Ordering) {
    let (Some(min), Some(max)) = (all.iter().map(&key).min(), all.iter().map(&key).max()) else { return };
    if all.len() <= COMPARISON_SORT_MAX_ENTRIES || min == max {
        return all.sort_unstable_by(order);
    }
    let wanted = (all.len() / 8).ilog2() + 1;
    let shift = (max - min).ilog2().saturating_sub(wanted);
    let slot = |one: &T| ((key(one) - min) >> shift) as usize;
    let mut ends = vec![0_usize; ((max - min) >> shift) as usize + 1];
    all.iter().for_each(|one| ends[slot(one)] += 1);
    let mut sum = 0;
    for end in &mut ends {
        // Stores the start of the slot. Each item that is placed advances this position, which thus becomes the end of
        // the slot.
        sum += std::mem::replace(end, sum);
    }
    let mut spread = vec![T::default(); all.len()];
    for one in all.iter() {
        let end = &mut ends[slot(one)];
        spread[*end] = *one;
        *end += 1;
    }
    let mut begin = 0;
    for end in ends {
        spread[begin..end].sort_unstable_by(&order);
        begin = end;
    }
    *all = spread;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn not_after_outside_the_range_saturates() {
        assert_eq!(
            (to_not_after_seconds(-5), to_not_after_seconds(i64::MAX), to_not_after_seconds(7)),
            (0, NotAfterSeconds::MAX, 7)
        );
    }

    fn keys() -> impl Strategy<Value = Vec<u64>> {
        let one = prop_oneof![any::<u64>(), 0..9_u64, Just(u64::MAX), (1 << 40)..(1 << 40) + 3000_u64];
        prop::collection::vec(one, 0..4000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn sort_by_key_orders_keys_of_any_distribution(keys in keys()) {
            let mut all: Vec<(u64, usize)> = keys.into_iter().zip(0..).collect();
            let mut expected = all.clone();
            expected.sort_unstable();
            sort_by_key(&mut all, |one| one.0, Ord::cmp);
            prop_assert!(all == expected);
        }

        #[test]
        fn serials_of_any_length_are_sorted_without_duplicates(
            serials in prop::collection::vec(prop::collection::vec(0..3_u8, 1..=12), 0..1500)
        ) {
            let serials: Vec<Serial> = serials.iter().map(|octets| Serial::from_octets(octets).unwrap()).collect();
            prop_assert!(sorted(&serials).concat() == expected(serials));
        }
    }

    fn sorted(serials: &[Serial]) -> Vec<Vec<(Serial, usize)>> {
        let mut batch = CrlEntryBatch::default();
        for (at, serial) in serials.iter().enumerate() {
            batch.push(*serial, &crate::x509::crl::encode_entry(serial, 0, None, None), 0, at as i64);
        }
        let shown = |item: EncodedEntry<'_>| (Serial::from_octets(item.serial).unwrap(), item.not_after as usize);
        batch.sorted().map(|part| part.items().map(shown).collect()).collect()
    }

    fn expected(serials: Vec<Serial>) -> Vec<(Serial, usize)> {
        let mut expected: Vec<(Serial, usize)> = serials.into_iter().zip(0..).collect();
        expected.sort_unstable_by(|(a, at), (b, other)| a.cmp(b).then(other.cmp(at)));
        expected.dedup_by_key(|(serial, _)| *serial);
        expected
    }

    /// Serial numbers begin with a time in milliseconds, and every tenth number repeats the one before it. They are
    /// added in ascending, descending and mixed order.
    #[test]
    fn serials_that_begin_with_a_time_are_divided_among_buckets() {
        let count = 4 * BUCKET_SPLIT_ENTRIES as u64;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| u64::MAX / 2 - n, |n| n.wrapping_mul(0x9e37_79b9) % 0x3_ffff];
        for order in orders {
            let millis = (0..count).map(|n| (1 << 41) + order(n - n % 10 / 9) % (1 << 20));
            let serials: Vec<Serial> =
                millis.map(|millis| Serial::time_based(millis, [7; Serial::RANDOM_BYTES])).collect();
            let parts = sorted(&serials);
            assert!(parts.len() >= 4 && parts.iter().all(|part| part.len() <= BUCKET_SPLIT_ENTRIES), "{}", parts.len());
            assert!(parts.concat() == expected(serials));
        }
    }

    #[test]
    fn bucket_of_serials_with_one_key_is_not_split() {
        let alike = |n: usize| {
            let mut random = [0; Serial::RANDOM_BYTES];
            random[6..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            Serial::time_based(1 << 41, random)
        };
        let serials: Vec<Serial> = (0..BUCKET_SPLIT_ENTRIES + BUCKET_SPLIT_ENTRIES / 2).map(alike).collect();
        let parts = sorted(&serials);
        assert_eq!(parts.len(), 1);
        assert!(parts.concat() == expected(serials));
    }
}
