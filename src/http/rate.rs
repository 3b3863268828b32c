//! Per-subject rate limit of the projects API: a token bucket per user, team or organization, or per network for
//! callers without a valid token. Off by default.

use std::net::IpAddr;
use std::time::Instant;

use super::sender::Sender;
use crate::error::Kind;
use crate::projects::caller::ProjectsCaller;
use crate::projects::rejection::ApiRejection;
use crate::rationing::{BucketRule, TokenBuckets, Withdrawal};

/// The rate limits of the projects API. A full bucket holds the requests of one second.
pub struct ProjectsRateLimits {
    per_second: u32,
    buckets: TokenBuckets<Sender, Instant>,
}

/// The remaining rate of a subject, for the response headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemainingRate {
    /// Allowed requests per second.
    pub limit: u32,
    /// Requests that the subject may send immediately.
    pub remaining: u32,
    /// Seconds until another request is allowed.
    pub reset: f64,
}

impl ProjectsRateLimits {
    /// Creates rate limits of `per_second` requests per subject; 0 disables them.
    pub fn new(per_second: u32) -> Self {
        let rule = BucketRule { capacity: per_second.into(), per_second: per_second.into(), block_seconds: 0.0 };
        Self { per_second, buckets: TokenBuckets::new(rule) }
    }

    /// Returns the header values for a request that is not counted; `None` if rate limits are disabled.
    pub fn uncounted_rate(&self) -> Option<RemainingRate> {
        (self.per_second > 0).then_some(RemainingRate {
            limit: self.per_second,
            remaining: self.per_second,
            reset: 0.0,
        })
    }

    /// Takes one request out of the caller's bucket or, without a caller, out of the bucket of the network of
    /// `address`.
    ///
    /// # Errors
    /// `Quota` when the bucket is empty.
    pub fn count_request(
        &self,
        caller: Option<&ProjectsCaller>,
        address: Option<IpAddr>,
    ) -> Result<Option<RemainingRate>, (ApiRejection, RemainingRate)> {
        self.count_request_at(Sender::of_subject(caller, address), Instant::now())
    }

    fn count_request_at(
        &self,
        sender: Sender,
        now: Instant,
    ) -> Result<Option<RemainingRate>, (ApiRejection, RemainingRate)> {
        if self.per_second == 0 {
            return Ok(None);
        }
        let limit = f64::from(self.per_second);
        let Withdrawal { granted, level, .. } = self.buckets.take(sender, 1.0, now);
        let reset = if level >= 1.0 { 0.0 } else { (1.0 - level) / limit };
        // The level is at most the limit, so it fits.
        let left = RemainingRate { limit: self.per_second, remaining: level as u32, reset };
        if granted {
            return Ok(Some(left));
        }
        let mut refusal = ApiRejection::new(Kind::Quota, "you have exceeded the API's rate limit");
        refusal.retry_after = Some(reset);
        Err((refusal, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rate_limit_bucket_of_a_sender_empties_and_refills() {
        let limits = ProjectsRateLimits::new(4);
        let now = Instant::now();
        let take = |sender, after_ms| limits.count_request_at(sender, now + Duration::from_millis(after_ms));
        for remaining in [3, 2, 1, 0] {
            assert_eq!(take(Sender::User(1), 0).ok().flatten().map(|left| left.remaining), Some(remaining));
        }
        let (refusal, left) = take(Sender::User(1), 0).err().unwrap();
        assert_eq!((refusal.kind, left.remaining), (Kind::Quota, 0));
        assert!((left.reset - 0.25).abs() < 1e-9);
        assert!(take(Sender::Team(1), 0).is_ok() && take(Sender::User(1), 300).is_ok());
        assert!(ProjectsRateLimits::new(0).count_request_at(Sender::User(1), now).is_ok_and(|left| left.is_none()));
    }
}
