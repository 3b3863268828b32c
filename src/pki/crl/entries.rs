//! The encoded entries of one CRL, sorted by serial, kept so that a build only hashes and signs.

use crate::pki::store::RevocationRow;
use crate::x509::crl;
use crate::x509::serial::Serial;

/// Encoded entries in one buffer, in ascending order of serial.
#[derive(Default)]
pub(super) struct Entries {
    encoded: Vec<u8>,
    /// Serial and end offset of every entry, in the buffer's order.
    index: Vec<(Serial, usize)>,
}

impl Entries {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// All of them, one after the other.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Whether a serial is there.
    pub(super) fn has(&self, serial: &Serial) -> bool {
        self.index.binary_search_by(|(known, _)| known.cmp(serial)).is_ok()
    }

    /// Merges new revocations in one pass; a serial that is there already keeps its entry.
    pub(super) fn add<'a>(&mut self, revocations: impl Iterator<Item = &'a RevocationRow>) {
        let mut new: Vec<&RevocationRow> = revocations.collect();
        new.sort_by_key(|r| r.serial);
        new.dedup_by_key(|r| r.serial);
        let old = std::mem::take(self);
        self.encoded.reserve(old.encoded.len() + new.len() * 64);
        self.index.reserve(old.index.len() + new.len());
        let mut taken = 0;
        for row in new {
            let run = old.index[taken..].partition_point(|(serial, _)| *serial < row.serial);
            self.copy(&old, taken, taken + run);
            taken += run;
            if old.index.get(taken).is_none_or(|(serial, _)| *serial != row.serial) {
                let revoked_at = row.revoked_at.unix_timestamp();
                self.encoded.extend(crl::entry(&row.serial, revoked_at, row.reason, row.invalidity_date));
                self.index.push((row.serial, self.encoded.len()));
            }
        }
        self.copy(&old, taken, old.index.len());
    }

    /// Appends the entries `from..to` of another buffer.
    fn copy(&mut self, other: &Self, from: usize, to: usize) {
        if from == to {
            return;
        }
        let start = if from == 0 { 0 } else { other.index[from - 1].1 };
        let end = other.index[to - 1].1;
        let base = self.encoded.len();
        self.encoded.extend_from_slice(&other.encoded[start..end]);
        self.index.extend(other.index[from..to].iter().map(|(serial, at)| (*serial, base + at - start)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::documents::MountId;

    fn row(serial: u8) -> RevocationRow {
        RevocationRow {
            mount: MountId(1),
            serial: Serial::from_octets(&[serial]).unwrap(),
            issuer: String::new(),
            revoked_at: Time::UNIX_EPOCH,
            not_after: 0,
            reason: None,
            invalidity_date: None,
        }
    }

    #[test]
    fn merging_in_any_order_gives_the_sorted_list_once() {
        let rows: Vec<_> = [7, 3, 9, 1, 5, 3, 8].map(row).into();
        let mut all_at_once = Entries::default();
        all_at_once.add(rows.iter());
        let mut one_by_one = Entries::default();
        for row in &rows {
            one_by_one.add([row].into_iter());
        }
        assert_eq!(all_at_once.encoded(), one_by_one.encoded());
        assert_eq!(one_by_one.len(), 6);
        let serials: Vec<u8> = one_by_one.index.iter().map(|(s, _)| s.octets()[0]).collect();
        assert_eq!(serials, [1, 3, 5, 7, 8, 9]);
        assert_eq!(one_by_one.index.last().unwrap().1, one_by_one.encoded().len());
    }
}
