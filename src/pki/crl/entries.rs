//! The encoded entries of a list, sorted by serial number, in chunks that every list that holds them
//! shares: a new list copies only the chunks where entries came in, and a million entries are in memory
//! once, however many lists (published, being sent, being built) have them.

use std::sync::Arc;

use bytes::Bytes;

use crate::pki::store::RevocationRow;
use crate::x509::crl::{entry, listed};
use crate::x509::serial::Serial;

/// Octets above which a chunk is cut. An entry that comes in copies one chunk, and a list of a million has
/// two thousand of them.
const FULL: usize = 32 << 10;

/// Entries in ascending order of serial number. A clone shares them.
#[derive(Clone, Default)]
pub struct Entries {
    chunks: Vec<Chunk>,
    len: usize,
    bytes: usize,
}

#[derive(Clone)]
struct Chunk {
    first: Serial,
    encoded: Bytes,
    /// When the certificate of every entry ends, in the order of the entries.
    ends: Arc<[End]>,
}

/// When a certificate ends: epoch seconds, the last one that fits (in 2106) for everything later.
type End = u32;

fn end(not_after: i64) -> End {
    End::try_from(not_after.max(0)).unwrap_or(End::MAX)
}

/// An entry on its way.
#[derive(Clone, Copy)]
struct Item<'a> {
    serial: Serial,
    encoded: &'a [u8],
    end: End,
}

impl Entries {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Their encodings, joined, in pieces that are shared.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.chunks.iter().map(|chunk| chunk.encoded.clone()).collect()
    }

    /// Whether a serial is there.
    pub fn has(&self, serial: &Serial) -> bool {
        let after = self.chunks.partition_point(|chunk| chunk.first <= *serial);
        let chunk = after.checked_sub(1).and_then(|at| self.chunks.get(at));
        chunk.is_some_and(|chunk| chunk.items().any(|item| item.serial == *serial))
    }

    /// These and the others in one list; a serial that is in both keeps its entry here.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        if self.is_empty() {
            return others.clone();
        }
        self.with_items(others.len, others.bytes, others.chunks.iter().flat_map(Chunk::items))
    }

    /// These and a batch in one list; a serial that is here already keeps its entry.
    #[must_use]
    pub fn with(&self, batch: Batch) -> Self {
        let Batch { encoded, mut index } = batch;
        index.sort_unstable_by(|a, b| a.serial.cmp(&b.serial).then(a.start.cmp(&b.start)));
        index.dedup_by_key(|item| item.serial);
        let items = index.iter().map(|item| Item {
            serial: item.serial,
            encoded: &encoded[item.start as usize..][..usize::from(item.len)],
            end: item.end,
        });
        self.with_items(index.len(), encoded.len(), items)
    }

    fn with_items<'a>(&'a self, count: usize, bytes: usize, items: impl Iterator<Item = Item<'a>>) -> Self {
        if count == 0 {
            return self.clone();
        }
        let mut items = items.peekable();
        let mut list = Self { chunks: Vec::with_capacity(self.chunks.len() + bytes / FULL + 2), len: 0, bytes: 0 };
        if self.chunks.is_empty() {
            list.merge(None, &mut items, None);
        }
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1).map(|next| next.first);
            if items.peek().is_some_and(|item| next.is_none_or(|next| item.serial < next)) {
                list.merge(Some(chunk), &mut items, next);
            } else {
                list.push(chunk.clone());
            }
        }
        list
    }

    /// Appends a chunk with the items that come before `next`, cut where it would be too long.
    fn merge<'a>(
        &mut self,
        chunk: Option<&'a Chunk>,
        items: &mut std::iter::Peekable<impl Iterator<Item = Item<'a>>>,
        next: Option<Serial>,
    ) {
        let mut there = chunk.into_iter().flat_map(Chunk::items).peekable();
        let room = chunk.map_or(FULL, |chunk| chunk.encoded.len() + FULL / 8);
        let mut building = Building::new(room);
        loop {
            let new = items.peek().copied().filter(|item| next.is_none_or(|next| item.serial < next));
            let item = match (there.peek().copied(), new) {
                (None, None) => break,
                (Some(old), Some(new)) if new.serial < old.serial => items.next(),
                (Some(old), Some(new)) if new.serial == old.serial => {
                    items.next();
                    there.next()
                }
                (Some(_), _) => there.next(),
                (None, Some(_)) => items.next(),
            };
            let Some(item) = item else { break };
            building.push(item);
            if building.encoded.len() >= FULL {
                // In halves, so that the next ones find room on both sides.
                let whole = std::mem::replace(&mut building, Building::new(room));
                let (left, right) = if chunk.is_some() { whole.halves() } else { (whole, Building::new(FULL)) };
                building = right;
                left.finish(self);
            }
        }
        building.finish(self);
    }

    fn push(&mut self, chunk: Chunk) {
        self.len += chunk.ends.len();
        self.bytes += chunk.encoded.len();
        self.chunks.push(chunk);
    }

    /// How many entries are here and not in `next`, although their certificates have not ended by `now`
    /// (epoch seconds). Chunks that both share are not looked into.
    pub fn lost(&self, next: &Self, now: i64) -> usize {
        let shared: std::collections::HashSet<*const u8> = next.chunks.iter().map(|c| c.encoded.as_ptr()).collect();
        let mut others = next.chunks.iter().flat_map(Chunk::items).peekable();
        let mut lost = 0;
        for chunk in self.chunks.iter().filter(|chunk| !shared.contains(&chunk.encoded.as_ptr())) {
            for item in chunk.items() {
                while others.next_if(|other| other.serial < item.serial).is_some() {}
                let there = others.peek().is_some_and(|other| other.serial == item.serial);
                lost += usize::from(!there && i64::from(item.end) >= now);
            }
        }
        lost
    }
}

impl Chunk {
    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        listed(&self.encoded).zip(self.ends.iter()).map(|((serial, encoded), end)| Item { serial, encoded, end: *end })
    }
}

/// A chunk under construction.
struct Building {
    first: Option<Serial>,
    encoded: Vec<u8>,
    ends: Vec<End>,
}

impl Building {
    fn new(room: usize) -> Self {
        Self { first: None, encoded: Vec::with_capacity(room), ends: Vec::with_capacity(room / 40) }
    }

    fn push(&mut self, item: Item<'_>) {
        self.first.get_or_insert(item.serial);
        self.encoded.extend_from_slice(item.encoded);
        self.ends.push(item.end);
    }

    fn halves(self) -> (Self, Self) {
        let Some(whole) = self.chunk() else { return (Self::new(0), Self::new(0)) };
        let (mut left, mut right) = (Self::new(FULL / 2 + 64), Self::new(FULL));
        for item in whole.items() {
            if left.encoded.len() < FULL / 2 { left.push(item) } else { right.push(item) }
        }
        (left, right)
    }

    fn chunk(self) -> Option<Chunk> {
        // Boxed: no room that is not used stays.
        Some(Chunk { first: self.first?, encoded: self.encoded.into_boxed_slice().into(), ends: self.ends.into() })
    }

    fn finish(self, list: &mut Entries) {
        if let Some(chunk) = self.chunk() {
            list.push(chunk);
        }
    }
}

/// Entries in the order in which they were encoded, to be merged into a list.
#[derive(Default)]
pub struct Batch {
    encoded: Vec<u8>,
    index: Vec<Place>,
}

struct Place {
    serial: Serial,
    start: u32,
    len: u16,
    end: End,
}

impl Batch {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Encodes a revocation.
    pub fn add(&mut self, row: &RevocationRow) {
        let encoded = entry(&row.serial, row.revoked_at.unix_timestamp(), row.reason, row.invalidity_date);
        self.push(row.serial, &encoded, row.not_after);
    }

    /// Takes an encoded entry; `not_after` is when its certificate ends (epoch seconds).
    pub fn push(&mut self, serial: Serial, encoded: &[u8], not_after: i64) {
        // A batch is merged long before it has 4 GiB, and an entry of the size of a request is refused
        // where it is read.
        let (Ok(start), Ok(len)) = (u32::try_from(self.encoded.len()), u16::try_from(encoded.len())) else { return };
        self.encoded.extend_from_slice(encoded);
        self.index.push(Place { serial, start, len, end: end(not_after) });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::Time;
    use crate::documents::MountId;

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

    fn batch(serials: impl IntoIterator<Item = u32>) -> Batch {
        let mut batch = Batch::default();
        serials.into_iter().for_each(|serial| batch.add(&row(serial, 100)));
        batch
    }

    fn joined(entries: &Entries) -> Vec<u8> {
        let joined = entries.pieces().concat();
        assert_eq!(joined.len(), entries.bytes());
        assert_eq!(listed(&joined).count(), entries.len());
        joined
    }

    /// What the list must be: every serial once, in order.
    fn expected(serials: impl IntoIterator<Item = u32>) -> Vec<u8> {
        let sorted: BTreeMap<Serial, Vec<u8>> =
            serials.into_iter().map(|s| row(s, 0)).map(|r| (r.serial, entry(&r.serial, 0, r.reason, None))).collect();
        sorted.into_values().flatten().collect()
    }

    #[test]
    fn a_list_shares_what_it_does_not_change() {
        let first = Entries::default().with(batch((0..20_000).map(|n| n * 3)));
        let second = first.with(batch([30_001]));
        let before: std::collections::HashSet<_> = first.pieces().iter().map(|p| p.as_ptr()).collect();
        let new = second.pieces().iter().filter(|p| !before.contains(&p.as_ptr())).count();
        assert!((1..=2).contains(&new), "{new} of {} chunks are new", second.chunks.len());
        assert!(second.chunks.len() > 10);
        assert!(second.pieces().iter().all(|p| p.len() < FULL + 64));
        assert_eq!((first.len(), second.len()), (20_000, 20_001));
        assert!(second.has(&row(30_001, 0).serial) && !first.has(&row(30_001, 0).serial));
        assert_eq!((first.lost(&second, 0), second.lost(&first, 0)), (0, 1));
        assert_eq!(second.lost(&first, 100), 1, "ends now");
        assert_eq!(second.lost(&first, 101), 0, "its certificate has ended");
        assert_eq!(second.lost(&Entries::default(), 0), 20_001);
    }

    #[test]
    fn ends_beyond_the_range_never_come() {
        assert_eq!((end(-5), end(i64::MAX), end(7)), (0, End::MAX, 7));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn merging_in_any_order_gives_the_sorted_list_once(
            batches in prop::collection::vec(prop::collection::vec(0..6_000_u32, 0..1_500), 1..6)
        ) {
            let mut merged = Entries::default();
            let mut joins = Entries::default();
            for serials in &batches {
                merged = merged.with(batch(serials.iter().copied()));
                joins = joins.and(&Entries::default().with(batch(serials.iter().copied())));
            }
            let all: Vec<u32> = batches.concat();
            let expected = expected(all.iter().copied());
            prop_assert!(joined(&merged) == expected);
            prop_assert!(joined(&joins) == expected);
            prop_assert_eq!(merged.lost(&joins, 0), 0);
            prop_assert!(all.iter().all(|s| merged.has(&row(*s, 0).serial)));
            prop_assert!(!merged.has(&row(7_000, 0).serial));
        }
    }
}
