//! Serial numbers of new certificates.
//!
//! By default a serial number is the node's time in milliseconds (48 bits) followed by 112 random bits, so that new
//! rows are appended to the indexes; random serials would write to a different page each time. Such a number reveals
//! the time of issuance to the millisecond; [`SerialPrefix::Random`] avoids this.
//!
//! Uniqueness relies on the random bits only. The order only affects speed: it holds within a run of one node, but not
//! across nodes and restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, Time};
use crate::random;
use crate::x509::serial::Serial;

/// A function that returns a new serial number.
pub type SerialSource = Arc<dyn Fn() -> Serial + Send + Sync>;

/// The kind of prefix that serial numbers begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SerialPrefix {
    /// The time of issuance in milliseconds.
    #[default]
    Time,
    /// No prefix: all bits are random.
    Random,
}

impl SerialPrefix {
    /// Creates a source of serial numbers for all mounts of a server.
    pub fn source(self, clock: &Clock) -> SerialSource {
        match self {
            Self::Random => Arc::new(Serial::random),
            Self::Time => {
                let clock = clock.clone();
                let last = AtomicU64::new(0);
                Arc::new(move || Serial::time_based(monotonic_millis(&last, clock.now()), random::bytes()))
            }
        }
    }
}

/// Returns `now` in milliseconds, or the last returned value while the clock is behind that value.
fn monotonic_millis(last: &AtomicU64, now: Time) -> u64 {
    let millis = u64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    last.fetch_max(millis, Ordering::Relaxed).max(millis)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn time_at(millis: i64) -> Time {
        Time::UNIX_EPOCH + time::Duration::milliseconds(millis)
    }

    /// Extracts the time prefix of a serial number, in milliseconds.
    fn millis(serial: &Serial) -> u64 {
        serial.octets()[..6].iter().fold(0, |sum, octet| sum << 8 | u64::from(*octet))
    }

    /// Clock values: current times, all years that can be formatted, before 1970, above 2^47 ms (the maximum prefix of
    /// a positive number), and above 2^48 ms.
    fn times() -> impl Strategy<Value = i64> {
        let sign = 1_i64 << 47;
        let six_octets = 1_i64 << 48;
        let latest = (time::PrimitiveDateTime::MAX.assume_utc().unix_timestamp() - 1) * 1000;
        let edges = [sign - 1, sign, six_octets - 1, six_octets, (1 << 40) - 1, 1 << 40, 0, -1];
        let edges: Vec<i64> = edges.into_iter().filter(|edge| *edge <= latest).collect();
        prop_oneof![1_760_000_000_000..1_790_000_000_000_i64, -1_000_000..latest, prop::sample::select(edges)]
    }

    proptest! {
        /// Serial numbers of one process never decrease, even if the clock jumps forward and backward.
        #[test]
        fn serials_of_one_process_never_decrease(times in prop::collection::vec(times(), 1..40)) {
            let clock = Clock::manual(time_at(0));
            let draw = SerialPrefix::Time.source(&clock);
            let mut before = 0;
            let mut latest = i64::MIN;
            for time in times {
                clock.set(time_at(time));
                latest = latest.max(time);
                let serial = draw();
                prop_assert!(serial.octets().len() == 20 && (1..0x80).contains(&serial.octets()[0]));
                prop_assert!(millis(&serial) >= before);
                before = millis(&serial);
                let expected_millis = u64::try_from(latest).unwrap_or(0).clamp(1 << 40, (1 << 47) - 1);
                prop_assert_eq!(before, expected_millis);
            }
        }

        /// Each source stands for a node or a restart; all clocks show the same time.
        #[test]
        fn serials_of_several_nodes_and_restarts_differ(time in times(), runs in 2..6_usize) {
            let clock = Clock::manual(time_at(time));
            let sources: Vec<SerialSource> = (0..runs).map(|_| SerialPrefix::Time.source(&clock)).collect();
            let all: HashSet<Serial> = sources.iter().flat_map(|draw| (0..200).map(|_| draw())).collect();
            prop_assert_eq!(all.len(), runs * 200);
        }

        /// The 112 bits after the time are independent: in 10,000 draws within a millisecond, each bit is set 4,600 to
        /// 5,400 times (8 standard deviations), and adjacent bits are equal as often.
        #[test]
        fn serials_of_one_millisecond_differ_in_112_random_bits(time in times()) {
            const DRAWS: usize = 10_000;
            let draw = SerialPrefix::Time.source(&Clock::manual(time_at(time)));
            let bits = |serial: &Serial| {
                let octets = serial.octets()[6..].to_vec();
                (0..octets.len() * 8).map(|bit| octets[bit / 8] >> (bit % 8) & 1).collect::<Vec<u8>>()
            };
            let mut ones = vec![0_usize; 112];
            let mut alike = vec![0_usize; 111];
            for _ in 0..DRAWS {
                let drawn = bits(&draw());
                prop_assert_eq!(drawn.len(), 112);
                drawn.iter().zip(&mut ones).for_each(|(bit, ones)| *ones += usize::from(*bit));
                drawn.windows(2).zip(&mut alike).for_each(|(pair, alike)| *alike += usize::from(pair[0] == pair[1]));
            }
            prop_assert!(ones.iter().chain(&alike).all(|count| (4_600..=5_400).contains(count)));
        }
    }

    #[test]
    fn random_serials_reveal_no_time() {
        let draw = SerialPrefix::Random.source(&Clock::manual(time_at(1_760_000_000_000)));
        let first: HashSet<u64> = (0..100).map(|_| millis(&draw())).collect();
        assert_eq!(first.len(), 100);
    }

    #[test]
    fn serials_by_time_ascend_with_it() {
        let clock = Clock::manual(time_at(1_760_000_000_000));
        let draw = SerialPrefix::Time.source(&clock);
        let mut before = draw();
        for _ in 0..1000 {
            clock.advance(Duration::from_millis(1));
            let next = draw();
            assert!(before < next);
            before = next;
        }
    }
}
