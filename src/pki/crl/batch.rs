//! Entries in the order in which they were revoked, and their way into the order of serial numbers. Filled
//! by whoever reads revocations, emptied into [`super::entries`].
//!
//! Entries are encoded once, into the bucket of their serial number's first bits. Serial numbers are random,
//! so the buckets are of one size, and each is brought into order within the processor's cache; its memory is
//! free for the list as soon as that has its entries. They are few, so that the processor keeps up with the
//! places where they grow.

use std::cmp::Ordering;

use super::entries::{End, Item};
use crate::pki::store::RevocationRow;
use crate::x509::crl::{EntryWriter, first};
use crate::x509::serial::Serial;

/// Octets of a block of encoded entries. A full block is never moved, so that little is copied as a batch
/// grows.
const BLOCK: usize = 16 << 10;
/// Bits of the first octet that tell the bucket.
const BITS: u32 = 5;
/// Entries that are sorted by comparing alone.
const SMALL: usize = 256;

/// Entries on their way into a list, in the order in which they were encoded.
#[derive(Default)]
pub struct Batch {
    writer: EntryWriter,
    /// By the first bits; none before the first entry.
    buckets: Vec<Bucket>,
    len: usize,
    bytes: usize,
}

/// Entries whose serial numbers begin alike, each after the octets of its [`End`]: one place that is written
/// to for each bucket, so that all of these places stay in the processor's nearest cache.
#[derive(Default)]
struct Bucket {
    len: usize,
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

    /// Encodes a revocation.
    pub fn add(&mut self, row: &RevocationRow) {
        let mut writer = std::mem::take(&mut self.writer);
        let revoked_at = row.revoked_at.unix_timestamp();
        self.place(&row.serial, row.not_after, EntryWriter::ROOM, |block| {
            writer.write(block, &row.serial, revoked_at, row.reason, row.invalidity_date);
        });
        self.writer = writer;
    }

    /// Takes an encoded entry; `not_after` is when its certificate ends (epoch seconds).
    pub fn push(&mut self, serial: Serial, encoded: &[u8], not_after: i64) {
        self.place(&serial, not_after, encoded.len(), |block| block.extend_from_slice(encoded));
    }

    fn place(&mut self, serial: &Serial, not_after: i64, room: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if self.buckets.is_empty() {
            self.buckets.resize_with(1 << BITS, Bucket::default);
        }
        let bucket = &mut self.buckets[usize::from(serial.octets()[0] >> (u8::BITS - BITS))];
        if bucket.filling.len() + OF_END + room > BLOCK {
            bucket.full.push(std::mem::replace(&mut bucket.filling, Vec::with_capacity(BLOCK)));
        }
        bucket.filling.extend_from_slice(&end(not_after).to_ne_bytes());
        let before = bucket.filling.len();
        write(&mut bucket.filling);
        bucket.len += 1;
        self.bytes += bucket.filling.len() - before;
        self.len += 1;
    }

    /// All of them in the order of their serial numbers, in parts, each serial number once: the one that
    /// came first.
    pub(super) fn sorted(self) -> impl Iterator<Item = Sorted> {
        self.buckets.into_iter().filter(|bucket| bucket.len > 0).map(Bucket::sorted)
    }
}

impl Bucket {
    fn sorted(self) -> Sorted {
        let Self { len, filling, full: mut blocks } = self;
        blocks.push(filling);
        let mut index = Vec::with_capacity(len);
        for (number, block) in blocks.iter().enumerate() {
            let mut start = OF_END;
            while let Some((serial, len)) = block.get(start..).and_then(first) {
                index.push(Place { key: key(serial), start: (number * BLOCK + start) as u32, len: len as u32 });
                start += len + OF_END;
            }
        }
        let serial = |place: &Place| first(at(&blocks, place)).map(|(serial, _)| serial);
        let order = |a: &Place, b: &Place| {
            let by_serial = || serial(a).cmp(&serial(b));
            a.key.cmp(&b.key).then_with(by_serial).then(a.start.cmp(&b.start))
        };
        sort(&mut index, |place| place.key, order);
        index.dedup_by(|next, kept| next.key == kept.key && serial(next) == serial(kept));
        Sorted { blocks, index }
    }
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
            let end = block[start - OF_END..].first_chunk().copied().map_or(0, End::from_ne_bytes);
            (&block[start..start + len], end)
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

/// The first eight octets as a number; the octets of a shorter serial number are its first ones. Numbers
/// ascend with the serial numbers.
fn key(serial: &[u8]) -> u64 {
    let mut octets = [0; 8];
    let len = serial.len().min(8);
    octets[..len].copy_from_slice(&serial[..len]);
    u64::from_be_bytes(octets)
}

/// Sorts by `order`, which sorts by `key` first. Serial numbers are random, so their keys are spread evenly:
/// a pass brings each to where it belongs but for a few neighbours. Whatever is not spread so is sorted by
/// comparing.
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
            let mut batch = Batch::default();
            for (at, serial) in serials.iter().enumerate() {
                batch.push(*serial, &crate::x509::crl::entry(serial, 0, None, None), at as i64);
            }
            let mut expected: Vec<(Serial, usize)> = serials.into_iter().zip(0..).collect();
            expected.sort_unstable();
            expected.dedup_by_key(|(serial, _)| *serial);
            let sorted: Vec<Sorted> = batch.sorted().collect();
            let items = sorted.iter().flat_map(Sorted::items);
            let found: Vec<(Serial, usize)> =
                items.map(|item| (Serial::from_octets(item.serial).unwrap(), item.end as usize)).collect();
            prop_assert!(found == expected);
        }
    }
}
