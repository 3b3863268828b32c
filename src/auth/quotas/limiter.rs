//! The rate limit of one quota: a token bucket per client, and the values that responses report.

use super::rule::RateLimit;
use crate::caller_network::CallerNetwork;
use crate::clock::Time;
use crate::rationing::{BucketRule, LEVEL_TOLERANCE, TokenBuckets, Withdrawal};

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

/// Maximum wait that is reported, in seconds: a year.
const MAX_REPORTED_SECONDS: f64 = 31_536_000.0;

pub(super) struct Limiter {
    rule: BucketRule,
    /// The buckets by client; clients without a known address share one.
    buckets: TokenBuckets<Option<CallerNetwork>, Time>,
}

impl Limiter {
    pub(super) fn new(rule: &RateLimit) -> Self {
        let rule = BucketRule {
            capacity: rule.rate.max(1.0),
            per_second: rule.rate / rule.interval.max(1) as f64,
            block_seconds: rule.block_interval as f64,
        };
        Self { rule, buckets: TokenBuckets::new(rule) }
    }

    /// Takes one request from the client's bucket.
    pub(super) fn take_request(&self, client: Option<CallerNetwork>, now: Time) -> RateDecision {
        let Withdrawal { granted, level, blocked_seconds } = self.buckets.take(client, 1.0, now);
        let BucketRule { capacity, per_second, .. } = self.rule;
        let until_one = (1.0 - LEVEL_TOLERANCE - level).max(0.0) / per_second;
        let until_full = (capacity - level) / per_second;
        let seconds = |time: f64| time.clamp(0.0, MAX_REPORTED_SECONDS).ceil() as u64;
        RateDecision {
            granted,
            limit: capacity as u64,
            remaining: if granted { (level + LEVEL_TOLERANCE) as u64 } else { 0 },
            reset: seconds(until_full.max(blocked_seconds)),
            retry_after: seconds(until_one.max(blocked_seconds)).max(1),
        }
    }

    /// Removes full buckets. Requests do this too; the call is for quotas without requests.
    pub(super) fn remove_full_buckets(&self, now: Time) {
        self.buckets.remove_full(now);
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

    #[test]
    fn clients_without_an_address_share_a_bucket() {
        let limiter = limits(1.0, 1, 0);
        assert!(limiter.take_request(None, START).granted && !limiter.take_request(None, START).granted);
        assert!(limiter.take_request(v4(0), START).granted);
    }
}
