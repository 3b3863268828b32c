//! The buckets of one quota: a bucket of requests for each client.
//!
//! A client is an IPv4 address, or a network of IPv6 ([`Client`]): who has one address of the latter has all of
//! its /64. Addresses are whoever asks to choose, so memory is bounded: there are two generations of buckets, and
//! when the time in which any bucket fills is over, the older one is dropped. A bucket that nobody asked for that
//! long is full, which is what a client without a bucket has, so nothing is forgotten. Where there are as many
//! clients as may be, all further ones share one bucket.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::rule::RateLimit;
use crate::clock::Time;

/// Whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// One IPv4 address.
    V4(u32),
    /// The first half of IPv6 addresses.
    V6(u64),
    /// Whoever has no address.
    Nowhere,
}

impl Client {
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => Self::V6((address.to_bits() >> 64) as u64),
            None => Self::Nowhere,
        }
    }
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// Whether it may go on.
    pub granted: bool,
    /// Most requests of the client that may follow at once.
    pub limit: u64,
    /// How many may follow at once now.
    pub remaining: u64,
    /// Whole seconds, rounded up, until that is the most again.
    pub reset: u64,
    /// Whole seconds, rounded up and at least 1, until the next request may go on, where this one may not.
    pub retry_after: u64,
}

/// Microseconds of the clock.
type Moment = i64;

const SECOND: f64 = 1e6;
/// Sums of parts of a request are a little less than whole ones.
const ONE: f64 = 1.0 - 1e-6;
/// Longest time that anybody is told to wait, seconds: a year.
const LONGEST: f64 = 31_536_000.0;

/// A rule as numbers.
struct Terms {
    /// Most requests at once.
    capacity: f64,
    per_second: f64,
    /// How long a client is refused who asked too often, microseconds; 0 until there is a request again.
    block: Moment,
    /// A bucket that nobody asked for so long is as good as new, microseconds.
    keep: Moment,
}

impl Terms {
    fn of(rule: &RateLimit) -> Self {
        let interval = rule.interval.max(1) as f64;
        let (capacity, per_second) = (rule.rate.max(1.0), rule.rate / interval);
        let block = (rule.block_interval as f64 * SECOND) as Moment;
        Self { capacity, per_second, block, keep: ((capacity / per_second * SECOND) as Moment).max(block) }
    }
}

#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Moment,
    blocked_until: Moment,
}

/// The buckets of all clients of one rule.
pub(super) struct Limiter {
    terms: Terms,
    buckets: Mutex<Buckets>,
}

struct Buckets {
    young: HashMap<Client, Bucket>,
    old: HashMap<Client, Bucket>,
    /// When the young ones were none.
    turned: Moment,
    /// The one of clients that found no place.
    others: Bucket,
}

impl Limiter {
    pub(super) fn new(rule: &RateLimit) -> Self {
        let terms = Terms::of(rule);
        let others = Bucket::full(&terms, 0);
        let buckets = Buckets { young: HashMap::new(), old: HashMap::new(), turned: 0, others };
        Self { terms, buckets: Mutex::new(buckets) }
    }

    /// Takes one request out of the client's bucket; no generation keeps more than `most` clients.
    pub(super) fn take(&self, client: Client, now: Time, most: usize) -> Taken {
        let now = (now.unix_timestamp_nanos() / 1000) as Moment;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.turn(&self.terms, now);
        let known = buckets.young.get(&client).copied().or_else(|| buckets.old.remove(&client));
        match known {
            None if buckets.young.len() >= most => buckets.others.take(&self.terms, now, false),
            known => {
                let mut bucket = known.unwrap_or_else(|| Bucket::full(&self.terms, now));
                let taken = bucket.take(&self.terms, now, true);
                buckets.young.insert(client, bucket);
                taken
            }
        }
    }
}

impl Buckets {
    /// Forgets clients that have not asked for long enough.
    fn turn(&mut self, terms: &Terms, now: Moment) {
        // Of a clock that was set back the time is not known.
        let age = now.saturating_sub(self.turned);
        if (0..terms.keep).contains(&age) {
            return;
        }
        let young = std::mem::take(&mut self.young);
        self.old = if age < terms.keep.saturating_mul(2) { young } else { HashMap::new() };
        self.turned = now;
    }
}

impl Bucket {
    fn full(terms: &Terms, now: Moment) -> Self {
        Self { left: terms.capacity, at: now, blocked_until: now }
    }

    fn take(&mut self, terms: &Terms, now: Moment, blocks: bool) -> Taken {
        let passed = now.saturating_sub(self.at).max(0) as f64 / SECOND;
        self.left = (self.left + passed * terms.per_second).min(terms.capacity);
        self.at = now;
        // No longer than the rule says, whatever was done to the clock.
        self.blocked_until = self.blocked_until.min(now.saturating_add(terms.block));
        let blocked = blocks && now < self.blocked_until;
        let granted = !blocked && self.left >= ONE;
        if granted {
            self.left = (self.left - 1.0).max(0.0);
        } else if blocks && !blocked {
            self.blocked_until = now.saturating_add(terms.block);
        }
        let until_one = (ONE - self.left).max(0.0) / terms.per_second;
        let unblocked = if blocks { self.blocked_until.saturating_sub(now).max(0) as f64 / SECOND } else { 0.0 };
        let seconds = |time: f64| time.clamp(0.0, LONGEST).ceil() as u64;
        Taken {
            granted,
            limit: terms.capacity as u64,
            remaining: if granted { (self.left + 1e-6) as u64 } else { 0 },
            reset: seconds(((terms.capacity - self.left) / terms.per_second).max(unblocked)),
            retry_after: seconds(until_one.max(unblocked)).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use time::macros::datetime;

    const START: Time = datetime!(2030-01-01 00:00 UTC);

    fn rule(rate: f64, interval: u64, block_interval: u64) -> RateLimit {
        RateLimit { rate, interval, block_interval, ..RateLimit::default() }
    }

    fn after(millis: u64) -> Time {
        START + Duration::from_millis(millis)
    }

    fn v4(last: u32) -> Client {
        Client::V4(last)
    }

    #[test]
    fn a_bucket_empties_and_fills_evenly() {
        let limiter = Limiter::new(&rule(5.0, 1, 0));
        for left in (0..5).rev() {
            let taken = limiter.take(v4(1), START, 10);
            assert_eq!((taken.granted, taken.limit, taken.remaining), (true, 5, left));
        }
        let refused = limiter.take(v4(1), START, 10);
        assert_eq!((refused.granted, refused.remaining, refused.retry_after, refused.reset), (false, 0, 1, 1));
        assert!(limiter.take(v4(2), START, 10).granted, "another client");
        assert!(!limiter.take(v4(1), after(199), 10).granted);
        assert!(limiter.take(v4(1), after(200), 10).granted);
        assert!(!limiter.take(v4(1), after(200), 10).granted);
        assert_eq!(limiter.take(v4(1), after(9_000), 10).remaining, 4, "never more than five");
    }

    #[test]
    fn a_part_of_a_request_a_second_is_one_in_several() {
        let limiter = Limiter::new(&rule(0.25, 1, 0));
        assert!(limiter.take(v4(1), START, 10).granted);
        let refused = limiter.take(v4(1), after(1), 10);
        assert_eq!((refused.granted, refused.retry_after), (false, 4));
        assert!(!limiter.take(v4(1), after(3_990), 10).granted);
        assert!(limiter.take(v4(1), after(4_000), 10).granted);
        let hourly = Limiter::new(&rule(2.0, 3600, 0));
        assert!(hourly.take(v4(1), START, 10).granted && hourly.take(v4(1), START, 10).granted);
        assert_eq!(hourly.take(v4(1), START, 10).retry_after, 1800);
    }

    #[test]
    fn who_asks_too_often_may_be_refused_for_longer() {
        let limiter = Limiter::new(&rule(1.0, 1, 60));
        assert!(limiter.take(v4(1), START, 10).granted);
        assert_eq!(limiter.take(v4(1), START, 10).retry_after, 60);
        let refused = limiter.take(v4(1), after(30_000), 10);
        assert_eq!((refused.granted, refused.retry_after), (false, 30), "asking again does not prolong it");
        assert!(limiter.take(v4(2), after(30_000), 10).granted);
        assert!(!limiter.take(v4(1), after(59_999), 10).granted);
        assert!(limiter.take(v4(1), after(60_000), 10).granted);
    }

    #[test]
    fn a_clock_that_is_set_back_neither_gives_requests_nor_blocks_for_ever() {
        let limiter = Limiter::new(&rule(1.0, 1, 60));
        let late = after(1_000_000);
        assert!(limiter.take(v4(1), late, 10).granted && !limiter.take(v4(1), late, 10).granted);
        assert_eq!(limiter.take(v4(1), START, 10).retry_after, 60);
        assert!(limiter.take(v4(1), after(60_000), 10).granted);
    }

    #[test]
    fn all_of_a_network_of_ipv6_is_one_client() {
        let of = |text: &str| Client::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(Client::of(None), Client::Nowhere);
    }

    #[test]
    fn memory_is_bounded_and_known_clients_keep_their_place() {
        let limiter = Limiter::new(&rule(2.0, 10, 0));
        let most = 100;
        assert!(limiter.take(v4(0), START, most).granted && limiter.take(v4(0), START, most).granted);
        let granted = (1..10_000).filter(|client| limiter.take(v4(*client), START, most).granted).count();
        assert_eq!(granted, most - 1 + 2, "the others share one bucket");
        assert!(!limiter.take(v4(0), START, most).granted && limiter.take(v4(1), START, most).granted);
        let count = || {
            let buckets = limiter.buckets.lock().unwrap();
            buckets.young.len() + buckets.old.len()
        };
        assert_eq!(count(), most);
        // Whoever asked last in time is still known in the next generation, and then nobody.
        let later = after(10_000);
        assert!(limiter.take(v4(1), after(9_999), most).granted);
        assert!(limiter.take(v4(1), later, most).granted && !limiter.take(v4(1), later, most).granted);
        assert!(count() <= 2 * most);
        assert!(limiter.take(v4(7), after(40_000), most).granted);
        assert_eq!(count(), 1);
    }
}
