//! Per-sender limit on wrapped responses.
//!
//! Each caller with a token may wrap responses, which the store keeps until they are unwrapped or expire, possibly for
//! weeks. So each sender has a token bucket of bytes on each node, which refills within an hour. Concurrent requests
//! may overdraw it. Creating another wrapping token for the same wrapped response takes no bytes out of the bucket.

use std::time::{Duration, Instant};

use super::sender::Sender;
use crate::error::{Error, Kind, Result};
use crate::rationing::{BucketRule, TokenBuckets};

/// Bucket size of each sender, in bytes.
const WRAP_QUOTA_BYTES: u64 = 256 << 20;
/// Time in which an empty bucket refills.
const WRAP_QUOTA_REFILL_TIME: Duration = Duration::from_secs(3600);
/// Estimated size of a wrapped response in the store beyond its body, in bytes.
const WRAP_OVERHEAD_BYTES: u64 = 512;

/// The buckets of this node, one per sender.
pub struct WrapQuota(TokenBuckets<Sender, Instant>);

impl Default for WrapQuota {
    fn default() -> Self {
        let capacity = WRAP_QUOTA_BYTES as f64;
        let per_second = capacity / WRAP_QUOTA_REFILL_TIME.as_secs_f64();
        Self(TokenBuckets::new(BucketRule { capacity, per_second, block_seconds: 0.0 }))
    }
}

impl WrapQuota {
    /// Checks the sender's limit before a request is handled.
    ///
    /// # Errors
    /// `Quota` when the bucket is empty.
    pub fn check(&self, sender: &Sender) -> Result<()> {
        self.check_at(sender, Instant::now())
    }

    /// Takes the size of a wrapped response out of the sender's bucket.
    pub fn charge(&self, sender: Sender, bytes: usize) {
        self.charge_at(sender, bytes as u64, Instant::now());
    }

    fn check_at(&self, sender: &Sender, now: Instant) -> Result<()> {
        if self.0.level(sender, now) > 0.0 {
            return Ok(());
        }
        let text = format!(
            "wrap-ttl: limit of {} MiB of wrapped responses per hour reached; retry later",
            WRAP_QUOTA_BYTES >> 20
        );
        Err(Error::new(Kind::Quota, text))
    }

    fn charge_at(&self, sender: Sender, bytes: u64, now: Instant) {
        self.0.overdraw(sender, (bytes + WRAP_OVERHEAD_BYTES) as f64, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_quota_of_a_sender_refills_within_an_hour() {
        let quota = WrapQuota::default();
        let now = Instant::now();
        let one = Sender::User(1);
        let other = Sender::User(2);
        let refused = |sender, after| quota.check_at(sender, now + after).err().map(|error| error.kind());
        for _ in 0..256 {
            assert_eq!(refused(&one, Duration::ZERO), None);
            quota.charge_at(one.clone(), 1 << 20, now);
        }
        assert_eq!((refused(&one, Duration::ZERO), refused(&other, Duration::ZERO)), (Some(Kind::Quota), None));
        assert_eq!(refused(&one, WRAP_QUOTA_REFILL_TIME / 256), None, "one more is allowed");
        quota.charge_at(one.clone(), 256 << 20, now + WRAP_QUOTA_REFILL_TIME);
        assert_eq!(
            (refused(&one, WRAP_QUOTA_REFILL_TIME), refused(&one, WRAP_QUOTA_REFILL_TIME * 2)),
            (Some(Kind::Quota), None)
        );
    }
}
