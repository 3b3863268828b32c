//! The token buckets of one quota, one per client.
//!
//! Clients can choose their addresses, so memory is bounded. There are two generations of buckets; the older one is
//! dropped after the time in which any bucket fills. A bucket that was idle that long is full, like that of an unknown
//! client, so no state is lost. If too many clients send requests in that time, the older generation is dropped
//! earlier, and its clients begin with a full bucket again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::rule::RateLimit;
use crate::caller_network::CallerNetwork;
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
}

/// Microseconds since 1970.
type Micros = i64;

const MICROS_PER_SECOND: f64 = 1e6;
/// Maximum number of buckets in a generation: about 1 MiB.
const MAX_BUCKETS_PER_GENERATION: usize = 1 << 14;
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
    block: Micros,
    /// Time after which an idle bucket is full and not blocked, in microseconds.
    max_idle: Micros,
}

impl BucketTerms {
    fn of(rule: &RateLimit) -> Self {
        let interval = rule.interval.max(1) as f64;
        let capacity = rule.rate.max(1.0);
        let per_second = rule.rate / interval;
        let block = (rule.block_interval as f64 * MICROS_PER_SECOND) as Micros;
        Self {
            capacity,
            per_second,
            block,
            max_idle: ((capacity / per_second * MICROS_PER_SECOND) as Micros).max(block),
        }
    }
}

#[derive(Clone, Copy)]
struct TokenBucket {
    left: f64,
    at: Micros,
    blocked_until: Micros,
}

pub(super) struct Limiter {
    terms: BucketTerms,
    buckets: Mutex<BucketGenerations>,
}

/// The buckets by client; clients without a known address share one.
type BucketGeneration = HashMap<Option<CallerNetwork>, TokenBucket>;

#[derive(Default)]
struct BucketGenerations {
    young: BucketGeneration,
    old: BucketGeneration,
    /// Time at which the young generation began.
    rotated_at: Micros,
}

impl Limiter {
    pub(super) fn new(rule: &RateLimit) -> Self {
        Self { terms: BucketTerms::of(rule), buckets: Mutex::default() }
    }

    /// Takes one request from the client's bucket.
    pub(super) fn take_request(&self, client: Option<CallerNetwork>, now: Time) -> RateDecision {
        let now = to_micros(now);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.rotate(&self.terms, now);
        let known = buckets.young.get(&client).copied().or_else(|| buckets.old.remove(&client));
        let mut bucket = known.unwrap_or_else(|| TokenBucket::full(&self.terms, now));
        let decision = bucket.take_request(&self.terms, now);
        buckets.young.insert(client, bucket);
        decision
    }

    /// Drops idle buckets. Requests do this too; the call is for quotas without requests.
    pub(super) fn drop_idle_buckets(&self, now: Time) {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).rotate(&self.terms, to_micros(now));
    }
}

impl BucketGenerations {
    /// Starts a new generation if it is time or the young one is full.
    fn rotate(&mut self, terms: &BucketTerms, now: Micros) {
        // A negative age (the clock was set back) also starts a new generation.
        let age = now.saturating_sub(self.rotated_at);
        let is_due = !(0..terms.max_idle).contains(&age);
        if !is_due && self.young.len() < MAX_BUCKETS_PER_GENERATION {
            return;
        }
        let young = std::mem::take(&mut self.young);
        let is_idle = age >= terms.max_idle.saturating_mul(2);
        self.old = if is_idle { BucketGeneration::new() } else { young };
        self.rotated_at = now;
    }
}

fn to_micros(time: Time) -> Micros {
    (time.unix_timestamp_nanos() / 1000) as Micros
}

impl TokenBucket {
    fn full(terms: &BucketTerms, now: Micros) -> Self {
        Self { left: terms.capacity, at: now, blocked_until: now }
    }

    /// Takes one request.
    fn take_request(&mut self, terms: &BucketTerms, now: Micros) -> RateDecision {
        let passed = now.saturating_sub(self.at).max(0) as f64 / MICROS_PER_SECOND;
        self.left = (self.left + passed * terms.per_second).min(terms.capacity);
        self.at = now;
        // If the clock was set back, the stored time may be too far ahead, so it is limited to the rule's block
        // interval.
        self.blocked_until = self.blocked_until.min(now.saturating_add(terms.block));
        let blocked = now < self.blocked_until;
        let granted = !blocked && self.left >= ONE_REQUEST;
        if granted {
            self.left = (self.left - 1.0).max(0.0);
        } else if !blocked {
            self.blocked_until = now.saturating_add(terms.block);
        }
        let until_one = (ONE_REQUEST - self.left).max(0.0) / terms.per_second;
        let unblocked = self.blocked_until.saturating_sub(now).max(0) as f64 / MICROS_PER_SECOND;
        let seconds = |time: f64| time.clamp(0.0, MAX_REPORTED_SECONDS).ceil() as u64;
        RateDecision {
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
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use time::macros::datetime;

    const START: Time = datetime!(2030-01-01 00:00 UTC);

    fn rule(rate: f64, interval: u64, block_interval: u64) -> RateLimit {
        RateLimit { rate, interval, block_interval, ..RateLimit::default() }
    }

    fn after(millis: u64) -> Time {
        START + Duration::from_millis(millis)
    }

    fn v4(address: u32) -> Option<CallerNetwork> {
        Some(CallerNetwork::of(Ipv4Addr::from_bits(address).into()))
    }

    fn limits(rate: f64, interval: u64, block_interval: u64) -> Limiter {
        Limiter::new(&rule(rate, interval, block_interval))
    }

    #[test]
    fn bucket_drains_and_refills_linearly() {
        let limiter = limits(5.0, 1, 0);
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
        let limiter = limits(0.25, 1, 0);
        assert!(limiter.take_request(v4(1), START).granted);
        let refused = limiter.take_request(v4(1), after(1));
        assert_eq!((refused.granted, refused.retry_after), (false, 4));
        assert!(!limiter.take_request(v4(1), after(3_990)).granted);
        assert!(limiter.take_request(v4(1), after(4_000)).granted);
        let hourly = limits(2.0, 3600, 0);
        assert!(hourly.take_request(v4(1), START).granted && hourly.take_request(v4(1), START).granted);
        assert_eq!(hourly.take_request(v4(1), START).retry_after, 1800);
    }

    #[test]
    fn block_interval_prolongs_the_refusal_of_a_client() {
        let limiter = limits(1.0, 1, 60);
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
        let limiter = limits(1.0, 1, 60);
        let late = after(1_000_000);
        assert!(limiter.take_request(v4(1), late).granted && !limiter.take_request(v4(1), late).granted);
        assert_eq!(limiter.take_request(v4(1), START).retry_after, 60);
        assert!(limiter.take_request(v4(1), after(60_000)).granted);
    }

    fn count(limiter: &Limiter) -> usize {
        let buckets = limiter.buckets.lock().unwrap();
        buckets.young.len() + buckets.old.len()
    }

    #[test]
    fn buckets_are_bounded_and_those_of_recent_clients_stay() {
        let limiter = limits(2.0, 10, 0);
        assert!(limiter.take_request(v4(0), START).granted && limiter.take_request(v4(0), START).granted);
        for client in 1..100_000 {
            assert!(limiter.take_request(v4(client), START).granted);
            assert!(client % 1_000 != 0 || !limiter.take_request(v4(0), START).granted, "client 0 keeps its bucket");
        }
        assert!(count(&limiter) <= 2 * MAX_BUCKETS_PER_GENERATION);
        let last = v4(99_999);
        assert!(limiter.take_request(last, START).granted && !limiter.take_request(last, START).granted);
    }

    #[test]
    fn idle_buckets_are_dropped_with_their_generation() {
        let limiter = limits(2.0, 10, 0);
        let client = v4(1);
        assert!(limiter.take_request(client, START).granted && limiter.take_request(v4(2), START).granted);
        // A client with a recent request is kept in the next generation, and later dropped.
        let later = after(10_000);
        assert!(limiter.take_request(client, after(9_999)).granted);
        assert!(limiter.take_request(client, later).granted && !limiter.take_request(client, later).granted);
        assert_eq!(count(&limiter), 2);
        assert!(limiter.take_request(v4(7), after(40_000)).granted);
        assert_eq!(count(&limiter), 1);
        limiter.drop_idle_buckets(after(45_000));
        assert_eq!(count(&limiter), 1, "it may have sent a request a moment ago");
        limiter.drop_idle_buckets(after(80_000));
        assert_eq!(count(&limiter), 0);
    }

    #[test]
    fn clients_without_an_address_share_a_bucket() {
        let limiter = limits(1.0, 1, 0);
        assert!(limiter.take_request(None, START).granted && !limiter.take_request(None, START).granted);
        assert!(limiter.take_request(v4(0), START).granted);
    }
}
