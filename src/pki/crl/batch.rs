//! Entries in the order in which they were revoked, and their way into the order of serial numbers. Filled
//! by whoever reads revocations, emptied into [`super::entries`].
//!
//! Entries are encoded once, into the bucket of their serial number, and each bucket is brought into order within
//! the processor's cache; its memory is free for the list as soon as that has its entries. Buckets are few, so
//! that the processor keeps up with the places where they grow. Random serial numbers fill those of their first
//! bits evenly. Serial numbers that begin with a time all have the same first bits: a bucket that gets too large
//! is divided into quarters, as often as it takes.

use std::cmp::Ordering;

use super::item::{End, Item};
use crate::pki::store::RevocationRow;
use crate::x509::crl::{EntryWriter, first};
use crate::x509::serial::Serial;

/// Octets of a block of encoded entries. A full block is never moved, so that little is copied as a batch
/// grows.
const BLOCK: usize = 16 << 10;
/// Bits of the first octet that tell the row of buckets.
const BITS: u32 = 5;
/// Entries of a bucket beyond which it is divided.
const LARGE: usize = 1 << 16;
/// Parts that it is divided into: the fewer, the more often an entry is copied; the more, the more places grow.
const PARTS: usize = 4;
/// Entries of a bucket for each one that is looked at to find where to divide it.
const SAMPLE: usize = 64;
/// Entries that are sorted by comparing alone.
const SMALL: usize = 256;

/// Entries on their way into a list, in the order in which they were encoded.
#[derive(Default)]
pub struct Batch {
    writer: EntryWriter,
    /// By the first bits, and within a row by what its serial numbers begin with at least; no rows before the
    /// first entry.
    rows: Vec<Vec<Bucket>>,
    len: usize,
    bytes: usize,
    latest: Option<i64>,
}

/// Entries whose serial numbers begin alike, each after the octets of its [`End`]: one place that is written
/// to for each bucket, so that all of these places stay in the processor's nearest cache.
#[derive(Default)]
struct Bucket {
    /// The least [`key`] that belongs here.
    from: u64,
    len: usize,
    /// Entries at which it is divided next.
    limit: usize,
    filling: Vec<u8>,
    full: Vec<Vec<u8>>,
}

/// Octets of an [`End`].
const OF_END: usize = size_of::<End>();

/// Where an entry is, with what it is sorted by.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The first octets of its serial number.
    key: u64,
    /// The number of its block times [`BLOCK`], and where it begins there.
    start: u32,
    /// Its octets.
    len: u32,
}

/// When a certificate ends, of epoch seconds.
fn end(not_after: i64) -> End {
    End::try_from(not_after.max(0)).unwrap_or(End::MAX)
}

impl Batch {
    /// Most entries of a batch, so that each has a place.
    pub const MOST: usize = 1 << 24;

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the latest of them was revoked, epoch seconds.
    pub(super) fn latest_revocation(&self) -> Option<i64> {
        self.latest
    }

    /// Encodes a revocation.
    pub fn add(&mut self, row: &RevocationRow) {
        let mut writer = std::mem::take(&mut self.writer);
        let revoked_at = row.revoked_at.unix_timestamp();
        self.latest = self.latest.max(Some(revoked_at));
        self.place(&row.serial, row.not_after, EntryWriter::ROOM, |block| {
            writer.write(block, &row.serial, revoked_at, row.reason, row.invalidity_date);
        });
        self.writer = writer;
    }

    /// Takes an encoded entry; `revoked_at` is the time in it, and `not_after` is when its certificate ends (epoch
    /// seconds).
    pub fn push(&mut self, serial: Serial, encoded: &[u8], revoked_at: i64, not_after: i64) {
        self.latest = self.latest.max(Some(revoked_at));
        self.place(&serial, not_after, encoded.len(), |block| block.extend_from_slice(encoded));
    }

    fn place(&mut self, serial: &Serial, not_after: i64, room: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if self.rows.is_empty() {
            self.rows.resize_with(1 << BITS, || vec![Bucket::new(0)]);
        }
        let row = &mut self.rows[usize::from(serial.octets()[0] >> (u8::BITS - BITS))];
        let at = match row.len() {
            1 => 0,
            _ => {
                let key = key(serial.octets());
                row.partition_point(|bucket| bucket.from <= key).saturating_sub(1)
            }
        };
        let bucket = &mut row[at];
        let written = bucket.write(end(not_after), room, write);
        if bucket.len >= bucket.limit {
            let others = bucket.divide();
            row.splice(at + 1..at + 1, others);
        }
        self.bytes += written;
        self.len += 1;
    }

    /// All of them in the order of their serial numbers, in parts, each serial number once: the one that
    /// came last.
    pub(super) fn sorted(self) -> impl Iterator<Item = Sorted> {
        self.rows.into_iter().flatten().filter(|bucket| bucket.len > 0).map(Bucket::sorted)
    }
}

impl Bucket {
    fn new(from: u64) -> Self {
        Self { from, limit: LARGE, ..Self::default() }
    }

    /// Appends an entry of at most `room` octets; how many it has.
    fn write(&mut self, end: End, room: usize, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        if self.filling.len() + OF_END + room > BLOCK {
            self.full.push(std::mem::replace(&mut self.filling, Vec::with_capacity(BLOCK)));
        }
        self.filling.extend_from_slice(&end.to_ne_bytes());
        let before = self.filling.len();
        write(&mut self.filling);
        self.len += 1;
        self.filling.len() - before
    }

    /// Keeps the lowest quarter and gives the others away, each in the order in which its entries came. Blocks
    /// that are of one quarter, as most are that came in the order of their times, are not copied. Serial numbers
    /// that all begin alike stay together.
    fn divide(&mut self) -> Vec<Self> {
        let mut sample = Vec::with_capacity(self.len / SAMPLE + self.full.len() + 1);
        let spans: Vec<Span> = self.full.iter().chain([&self.filling]).map(|b| Span::of(b, &mut sample)).collect();
        sample.sort_unstable();
        let mut from: Vec<u64> = (1..PARTS).map(|n| sample[n * sample.len() / PARTS]).collect();
        from.dedup();
        from.retain(|least| *least > sample[0]);
        if from.is_empty() {
            self.limit *= 2;
            return Vec::new();
        }
        let part = |key: u64| from.partition_point(|least| *least <= key);
        let mut parts: Vec<Self> = [self.from].iter().chain(&from).map(|from| Self::new(*from)).collect();
        let blocks = std::mem::take(&mut self.full).into_iter().chain([std::mem::take(&mut self.filling)]);
        for (block, span) in blocks.zip(spans) {
            if part(span.least) == part(span.most) {
                parts[part(span.least)].take(block, span.len);
                continue;
            }
            for (start, len) in places(&block) {
                let entry = &block[start..start + len];
                let part = &mut parts[part(key_of(entry))];
                part.write(end_before(&block, start), len, |block| block.extend_from_slice(entry));
            }
        }
        let others = parts.split_off(1);
        *self = parts.remove(0);
        others
    }

    /// Appends a block as it is.
    fn take(&mut self, block: Vec<u8>, len: usize) {
        if !self.filling.is_empty() {
            self.full.push(std::mem::take(&mut self.filling));
        }
        self.full.push(block);
        self.len += len;
    }

    fn sorted(self) -> Sorted {
        let Self { len, filling, full: mut blocks, .. } = self;
        blocks.push(filling);
        let mut index = Vec::with_capacity(len);
        for (number, block) in blocks.iter().enumerate() {
            for (start, len) in places(block) {
                let key = key_of(&block[start..]);
                index.push(Place { key, start: (number * BLOCK + start) as u32, len: len as u32 });
            }
        }
        let serial = |place: &Place| first(at(&blocks, place)).map(|(serial, _)| serial);
        let order = |a: &Place, b: &Place| {
            let by_serial = || serial(a).cmp(&serial(b));
            a.key.cmp(&b.key).then_with(by_serial).then(b.start.cmp(&a.start))
        };
        sort(&mut index, |place| place.key, order);
        index.dedup_by(|next, kept| next.key == kept.key && serial(next) == serial(kept));
        Sorted { blocks, index }
    }
}

/// What the entries of a block are sorted by, from the least to the most, and how many they are.
struct Span {
    least: u64,
    most: u64,
    len: usize,
}

impl Span {
    fn of(block: &[u8], sample: &mut Vec<u64>) -> Self {
        let mut span = Self { least: u64::MAX, most: 0, len: 0 };
        for (start, _) in places(block) {
            let key = key_of(&block[start..]);
            (span.least, span.most) = (span.least.min(key), span.most.max(key));
            if span.len.is_multiple_of(SAMPLE) {
                sample.push(key);
            }
            span.len += 1;
        }
        span
    }
}

/// Where the entries of a block begin, and their octets.
fn places(block: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut start = OF_END;
    std::iter::from_fn(move || {
        let (_, len) = block.get(start..).and_then(first)?;
        let place = (start, len);
        start += len + OF_END;
        Some(place)
    })
}

/// The [`End`] in front of the entry that begins at `start`.
fn end_before(block: &[u8], start: usize) -> End {
    block[start - OF_END..].first_chunk().copied().map_or(0, End::from_ne_bytes)
}

/// A part of a sorted batch.
pub(super) struct Sorted {
    blocks: Vec<Vec<u8>>,
    index: Vec<Place>,
}

impl Sorted {
    /// Encoded entries and when their certificates end. Nothing is read of an entry to find it, so that the
    /// processor fetches several of them at a time.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], End)> {
        self.index.iter().map(|place| {
            let (start, len) = (place.start as usize % BLOCK, place.len as usize);
            let block = &self.blocks[place.start as usize / BLOCK];
            (&block[start..start + len], end_before(block, start))
        })
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.entries().filter_map(|(encoded, end)| first(encoded).map(|(serial, _)| Item { serial, encoded, end }))
    }
}

/// The entry at a place, and what follows it in its block.
fn at<'a>(blocks: &'a [Vec<u8>], place: &Place) -> &'a [u8] {
    let start = place.start as usize;
    &blocks[start / BLOCK][start % BLOCK..]
}

/// The [`key`] of an encoded entry.
fn key_of(entry: &[u8]) -> u64 {
    first(entry).map_or(0, |(serial, _)| key(serial))
}

/// The first eight octets as a number; the octets of a shorter serial number are its first ones. Numbers
/// ascend with the serial numbers.
fn key(serial: &[u8]) -> u64 {
    let mut octets = [0; 8];
    let len = serial.len().min(8);
    octets[..len].copy_from_slice(&serial[..len]);
    u64::from_be_bytes(octets)
}

/// Sorts by `order`, which sorts by `key` first. Keys of random serial numbers are spread evenly, and so are those
/// that begin with a time over a short while: a pass brings each to where it belongs but for a few neighbours.
/// Whatever is not spread so is sorted by comparing.
fn sort<T: Copy + Default>(all: &mut Vec<T>, key: impl Fn(&T) -> u64, order: impl Fn(&T, &T) -> Ordering) {
    let (Some(least), Some(most)) = (all.iter().map(&key).min(), all.iter().map(&key).max()) else { return };
    if all.len() <= SMALL || least == most {
        return all.sort_unstable_by(order);
    }
    let wanted = (all.len() / 8).ilog2() + 1;
    let shift = (most - least).ilog2().saturating_sub(wanted);
    let slot = |one: &T| ((key(one) - least) >> shift) as usize;
    let mut ends = vec![0_usize; ((most - least) >> shift) as usize + 1];
    all.iter().for_each(|one| ends[slot(one)] += 1);
    let mut sum = 0;
    for end in &mut ends {
        // Where the slot begins, until its entries have come.
        sum += std::mem::replace(end, sum);
    }
    let mut spread = vec![T::default(); all.len()];
    for one in all.iter() {
        let place = &mut ends[slot(one)];
        spread[*place] = *one;
        *place += 1;
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
    fn ends_beyond_the_range_never_come() {
        assert_eq!((end(-5), end(i64::MAX), end(7)), (0, End::MAX, 7));
    }

    /// Numbers that are spread evenly, crowded, equal, or at the ends of the range.
    fn keys() -> impl Strategy<Value = Vec<u64>> {
        let one = prop_oneof![any::<u64>(), 0..9_u64, Just(u64::MAX), (1 << 40)..(1 << 40) + 3000_u64];
        prop::collection::vec(one, 0..4000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn keys_of_any_spread_are_sorted(keys in keys()) {
            let mut all: Vec<(u64, usize)> = keys.into_iter().zip(0..).collect();
            let mut expected = all.clone();
            expected.sort_unstable();
            sort(&mut all, |one| one.0, Ord::cmp);
            prop_assert!(all == expected);
        }

        #[test]
        fn serials_of_any_length_come_in_order_and_once(
            serials in prop::collection::vec(prop::collection::vec(0..3_u8, 1..=12), 0..1500)
        ) {
            let serials: Vec<Serial> = serials.iter().map(|octets| Serial::from_octets(octets).unwrap()).collect();
            prop_assert!(sorted(&serials).concat() == expected(serials));
        }
    }

    /// The parts of a batch of these: serial numbers, each with its number in the batch.
    fn sorted(serials: &[Serial]) -> Vec<Vec<(Serial, usize)>> {
        let mut batch = Batch::default();
        for (at, serial) in serials.iter().enumerate() {
            batch.push(*serial, &crate::x509::crl::entry(serial, 0, None, None), 0, at as i64);
        }
        let shown = |item: Item<'_>| (Serial::from_octets(item.serial).unwrap(), item.end as usize);
        batch.sorted().map(|part| part.items().map(shown).collect()).collect()
    }

    fn expected(serials: Vec<Serial>) -> Vec<(Serial, usize)> {
        let mut expected: Vec<(Serial, usize)> = serials.into_iter().zip(0..).collect();
        expected.sort_unstable_by(|(a, at), (b, other)| a.cmp(b).then(other.cmp(at)));
        expected.dedup_by_key(|(serial, _)| *serial);
        expected
    }

    /// A millisecond apart, every tenth one twice; in the order of their times, against it, and in none.
    #[test]
    fn serials_that_begin_with_a_time_are_divided_among_buckets() {
        let count = 4 * LARGE as u64;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| u64::MAX / 2 - n, |n| n.wrapping_mul(0x9e37_79b9) % 0x3_ffff];
        for order in orders {
            let millis = (0..count).map(|n| (1 << 41) + order(n - n % 10 / 9) % (1 << 20));
            let serials: Vec<Serial> = millis.map(|millis| Serial::at(millis, [7; Serial::RANDOM])).collect();
            let parts = sorted(&serials);
            assert!(parts.len() >= 4 && parts.iter().all(|part| part.len() <= LARGE), "{}", parts.len());
            assert!(parts.concat() == expected(serials));
        }
    }

    #[test]
    fn serials_that_begin_alike_stay_together() {
        let alike = |n: usize| {
            let mut random = [0; Serial::RANDOM];
            random[6..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            Serial::at(1 << 41, random)
        };
        let serials: Vec<Serial> = (0..LARGE + LARGE / 2).map(alike).collect();
        let parts = sorted(&serials);
        assert_eq!(parts.len(), 1);
        assert!(parts.concat() == expected(serials));
    }
}
