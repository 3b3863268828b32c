//! The token buckets of one quota, one per client.
//!
//! Clients can choose their addresses, so memory is bounded. There are two generations of buckets; the older one is
//! dropped after the time in which any bucket fills. A bucket that was idle that long is full, like that of an unknown
//! client, so no state is lost. If no slot ([`BucketSlots`]) is free for a new client, it shares the bucket of the
//! narrowest surrounding network that has or gets one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::bucket_slots::BucketSlots;
use super::network::ClientNetwork;
use super::rule::RateLimit;
use crate::clock::Time;

/// Result of counting one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateDecision {
    /// `true` if the request may proceed.
    pub granted: bool,
    /// Burst limit of the client.
    pub limit: u64,
    /// Requests left in the burst.
    pub remaining: u64,
    /// Seconds until the bucket is full, rounded up.
    pub reset: u64,
    /// Seconds until the next request is accepted, rounded up, at least 1; for a rejected request.
    pub retry_after: u64,
    /// `true` if the bucket is shared with other clients.
    pub shared: bool,
}

/// Microseconds since 1970.
type Micros = i64;

const MICROS_PER_SECOND: f64 = 1e6;
/// Maximum number of slots that a request releases itself; more are released on a separate thread.
const MAX_INLINE_RELEASES: usize = 4096;
/// One request, with tolerance for rounding in sums of fractions.
const ONE_REQUEST: f64 = 1.0 - 1e-6;
/// Maximum wait that is reported, in seconds: a year.
const MAX_REPORTED_SECONDS: f64 = 31_536_000.0;

/// The rule of a quota, as numbers for the calculation.
struct BucketTerms {
    /// Burst size in requests.
    capacity: f64,
    per_second: f64,
    /// Time for which a client over its limit is rejected, in microseconds. With 0, it is rejected only until
    /// a request is available again.
    block_time: Micros,
    /// Time after which an idle bucket is full and not blocked, in microseconds.
    max_idle: Micros,
}

impl BucketTerms {
    fn of(rule: &RateLimit) -> Self {
        let interval = rule.interval.max(1) as f64;
        let capacity = rule.rate.max(1.0);
        let per_second = rule.rate / interval;
        let block_time = (rule.block_interval as f64 * MICROS_PER_SECOND) as Micros;
        let max_idle = ((capacity / per_second * MICROS_PER_SECOND) as Micros).max(block_time);
        Self { capacity, per_second, block_time, max_idle }
    }
}

#[derive(Clone, Copy)]
struct TokenBucket {
    requests_left: f64,
    updated_at: Micros,
    blocked_until: Micros,
}

pub(super) struct Limiter {
    terms: BucketTerms,
    slots: Arc<BucketSlots>,
    buckets: Mutex<BucketGenerations>,
}

type BucketGeneration = HashMap<ClientNetwork, TokenBucket>;

#[derive(Default)]
struct BucketGenerations {
    young: BucketGeneration,
    old: BucketGeneration,
    /// Time at which the young generation began.
    rotated_at: Micros,
}

impl Limiter {
    pub(super) fn new(rule: &RateLimit, slots: Arc<BucketSlots>) -> Self {
        Self { terms: BucketTerms::of(rule), slots, buckets: Mutex::default() }
    }

    /// Takes one request from the client's bucket, or from the one that it shares.
    pub(super) fn take_request(&self, client: ClientNetwork, now: Time) -> RateDecision {
        let now = to_micros(now);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = buckets.rotate(&self.terms, now);
        let (network, known) = buckets.find(client, &self.slots);
        let mut bucket = known.unwrap_or_else(|| TokenBucket::full(&self.terms, now));
        let decision = bucket.take_request(&self.terms, now, network == client);
        buckets.young.insert(network, bucket);
        drop(buckets);
        self.release(dropped);
        decision
    }

    /// Drops idle buckets. Requests do this too; the call is for quotas without requests.
    pub(super) fn drop_idle_buckets(&self, now: Time) {
        let dropped = self.buckets.lock().unwrap_or_else(PoisonError::into_inner).rotate(&self.terms, to_micros(now));
        self.release(dropped);
    }

    /// Releases the slots of dropped buckets. Many slots are released on a separate thread, so that no request waits
    /// for it.
    fn release(&self, dropped: Option<[BucketGeneration; 2]>) {
        let Some(dropped) = dropped else { return };
        let slots = Arc::clone(&self.slots);
        let many = dropped.iter().map(HashMap::len).sum::<usize>() > MAX_INLINE_RELEASES;
        let work = move || dropped.iter().flat_map(HashMap::keys).for_each(|network| slots.release(*network));
        if many { drop(std::thread::spawn(work)) } else { work() }
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        let buckets = std::mem::take(self.buckets.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.release(Some([buckets.young, buckets.old]));
    }
}

impl BucketGenerations {
    /// Starts a new generation if it is time, and returns the dropped buckets.
    fn rotate(&mut self, terms: &BucketTerms, now: Micros) -> Option<[BucketGeneration; 2]> {
        // A negative age (the clock was set back) also starts a new generation.
        let age = now.saturating_sub(self.rotated_at);
        if (0..terms.max_idle).contains(&age) {
            return None;
        }
        let before = std::mem::replace(self, Self { rotated_at: now, ..Self::default() });
        if age < terms.max_idle.saturating_mul(2) {
            self.old = before.young;
            return Some([before.old, BucketGeneration::new()]);
        }
        Some([before.old, before.young])
    }

    /// Finds the network whose bucket a client uses, and the bucket if it exists.
    fn find(&mut self, client: ClientNetwork, slots: &BucketSlots) -> (ClientNetwork, Option<TokenBucket>) {
        let mut network = client;
        loop {
            let known = self.young.get(&network).copied().or_else(|| self.old.remove(&network));
            if known.is_some() || slots.try_take(network) {
                return (network, known);
            }
            let Some(wider) = network.wider() else { return (network, None) };
            network = wider;
        }
    }
}

fn to_micros(time: Time) -> Micros {
    (time.unix_timestamp_nanos() / 1000) as Micros
}

impl TokenBucket {
    fn full(terms: &BucketTerms, now: Micros) -> Self {
        Self { requests_left: terms.capacity, updated_at: now, blocked_until: now }
    }

    /// Takes one request. A shared bucket ignores the block interval: it rejects only until a request is available.
    fn take_request(&mut self, terms: &BucketTerms, now: Micros, is_exclusive: bool) -> RateDecision {
        let passed = now.saturating_sub(self.updated_at).max(0) as f64 / MICROS_PER_SECOND;
        self.requests_left = (self.requests_left + passed * terms.per_second).min(terms.capacity);
        self.updated_at = now;
        // If the clock was set back, the stored time may be too far ahead, so it is limited to the rule's block
        // interval.
        self.blocked_until = self.blocked_until.min(now.saturating_add(terms.block_time));
        let blocked = is_exclusive && now < self.blocked_until;
        let granted = !blocked && self.requests_left >= ONE_REQUEST;
        if granted {
            self.requests_left = (self.requests_left - 1.0).max(0.0);
        } else if is_exclusive && !blocked {
            self.blocked_until = now.saturating_add(terms.block_time);
        }
        let until_one = (ONE_REQUEST - self.requests_left).max(0.0) / terms.per_second;
        let unblocked =
            if is_exclusive { self.blocked_until.saturating_sub(now).max(0) as f64 / MICROS_PER_SECOND } else { 0.0 };
        let seconds = |time: f64| time.clamp(0.0, MAX_REPORTED_SECONDS).ceil() as u64;
        RateDecision {
            granted,
            limit: terms.capacity as u64,
            remaining: if granted { (self.requests_left + 1e-6) as u64 } else { 0 },
            reset: seconds(((terms.capacity - self.requests_left) / terms.per_second).max(unblocked)),
            retry_after: seconds(until_one.max(unblocked)).max(1),
            shared: !is_exclusive,
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

    fn v4(last: u32) -> ClientNetwork {
        ClientNetwork::V4 { length: 32, bits: last }
    }

    fn limiter_with(rate: f64, interval: u64, block_interval: u64) -> Limiter {
        Limiter::new(&rule(rate, interval, block_interval), Arc::new(BucketSlots::new(1_000, 0)))
    }

    #[test]
    fn bucket_drains_and_refills_linearly() {
        let limiter = limiter_with(5.0, 1, 0);
        for left in (0..5).rev() {
            let taken = limiter.take_request(v4(1), START);
            assert_eq!((taken.granted, taken.limit, taken.remaining), (true, 5, left));
        }
        let refused = limiter.take_request(v4(1), START);
        assert_eq!((refused.granted, refused.remaining, refused.retry_after, refused.reset), (false, 0, 1, 1));
        assert!(limiter.take_request(v4(2), START).granted, "another client");
        assert!(!limiter.take_request(v4(1), after(199)).granted);
        assert!(limiter.take_request(v4(1), after(200)).granted);
        assert!(!limiter.take_request(v4(1), after(200)).granted);
        assert_eq!(limiter.take_request(v4(1), after(9_000)).remaining, 4, "never more than five");
    }

    #[test]
    fn fractional_rate_allows_one_request_per_interval() {
        let limiter = limiter_with(0.25, 1, 0);
        assert!(limiter.take_request(v4(1), START).granted);
        let refused = limiter.take_request(v4(1), after(1));
        assert_eq!((refused.granted, refused.retry_after), (false, 4));
        assert!(!limiter.take_request(v4(1), after(3_990)).granted);
        assert!(limiter.take_request(v4(1), after(4_000)).granted);
        let hourly = limiter_with(2.0, 3600, 0);
        assert!(hourly.take_request(v4(1), START).granted && hourly.take_request(v4(1), START).granted);
        assert_eq!(hourly.take_request(v4(1), START).retry_after, 1800);
    }

    #[test]
    fn block_interval_prolongs_the_refusal_of_a_client() {
        let limiter = limiter_with(1.0, 1, 60);
        assert!(limiter.take_request(v4(1), START).granted);
        assert_eq!(limiter.take_request(v4(1), START).retry_after, 60);
        let refused = limiter.take_request(v4(1), after(30_000));
        assert_eq!((refused.granted, refused.retry_after), (false, 30), "asking again does not prolong it");
        assert!(limiter.take_request(v4(2), after(30_000)).granted);
        assert!(!limiter.take_request(v4(1), after(59_999)).granted);
        assert!(limiter.take_request(v4(1), after(60_000)).granted);
    }

    #[test]
    fn clock_set_back_neither_grants_nor_blocks_for_ever() {
        let limiter = limiter_with(1.0, 1, 60);
        let late = after(1_000_000);
        assert!(limiter.take_request(v4(1), late).granted && !limiter.take_request(v4(1), late).granted);
        assert_eq!(limiter.take_request(v4(1), START).retry_after, 60);
        assert!(limiter.take_request(v4(1), after(60_000)).granted);
    }

    /// The /64 with the number `network` in the /48 with the number `site`, all in one /32.
    fn v6(site: u64, network: u64) -> ClientNetwork {
        ClientNetwork::V6 { length: 64, bits: 0x2001_0db8_0000_0000 + (site << 16) + network }
    }

    #[test]
    fn buckets_are_bounded_and_those_of_recent_clients_stay() {
        let limiter = limiter_with(2.0, 10, 0);
        assert!(limiter.take_request(v4(0), START).granted && limiter.take_request(v4(0), START).granted);
        let own = (1..10_000).filter(|client| !limiter.take_request(v4(*client), START).shared).count();
        assert!((100..=200).contains(&own), "{own} of one network");
        assert!(!limiter.take_request(v4(0), START).granted && limiter.take_request(v4(1), START).granted);
        let count = || {
            let buckets = limiter.buckets.lock().unwrap();
            buckets.young.len() + buckets.old.len()
        };
        assert!(count() < 1_000 && count() == limiter.slots.taken(), "{}", count());
        // A client with a recent request is kept in the next generation, and later dropped.
        let later = after(10_000);
        assert!(limiter.take_request(v4(1), after(9_999)).granted);
        assert!(limiter.take_request(v4(1), later).granted && !limiter.take_request(v4(1), later).granted);
        assert_eq!(count(), limiter.slots.taken());
        assert!(limiter.take_request(v4(7), after(40_000)).granted);
        assert_eq!((count(), limiter.slots.taken()), (1, 1));
    }

    #[test]
    fn clients_without_a_slot_share_a_bucket_with_neighbours() {
        let limiter = limiter_with(2.0, 10, 600);
        let shared = (0..5_000).filter(|network| limiter.take_request(v6(1, *network), START).shared).count();
        assert!(shared > 4_000, "{shared}");
        // Networks in a /56 without earlier requests.
        let first = limiter.take_request(v6(1, 0xff00), START);
        assert_eq!((first.granted, first.shared, first.remaining), (true, true, 1));
        assert!(limiter.take_request(v6(1, 0xff01), START).granted);
        let third = limiter.take_request(v6(1, 0xff02), START);
        assert_eq!((third.granted, third.retry_after), (false, 5), "the shared bucket refills in 5 seconds");
        assert!(limiter.take_request(v6(1, 0xfe00), START).granted);
        assert!(limiter.take_request(v6(1, 0xff02), after(5_000)).granted);
        for stranger in
            [v6(2, 0), v6(3, 0), ClientNetwork::V6 { length: 64, bits: 0x2a00 << 48 }, v4(1), ClientNetwork::Unknown]
        {
            let taken = limiter.take_request(stranger, START);
            assert_eq!((taken.granted, taken.shared, taken.remaining), (true, false, 1), "{stranger:?}");
        }
    }

    #[test]
    fn slots_are_released_when_a_quota_ends_or_is_unused() {
        let slots = Arc::new(BucketSlots::new(1_000, 0));
        let flooded = || {
            let limiter = Limiter::new(&rule(2.0, 10, 0), Arc::clone(&slots));
            (0..5_000).for_each(|network| assert!(limiter.take_request(v6(network, 0), START).limit == 2));
            limiter
        };
        let first = flooded();
        assert!(slots.taken() > 400);
        first.drop_idle_buckets(after(9_000));
        assert!(slots.taken() > 400);
        first.drop_idle_buckets(after(20_000));
        assert_eq!(slots.taken(), 0);
        let second = flooded();
        second.drop_idle_buckets(after(10_000));
        assert!(slots.taken() > 400, "they may have asked a moment ago");
        drop(second);
        assert_eq!(slots.taken(), 0);
    }
}
