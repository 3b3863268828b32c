//! Token buckets, one per sender.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::sender::Sender;

/// Number of buckets above which full ones, which carry no information, are removed.
const BUCKET_CLEANUP_THRESHOLD: usize = 10_000;

/// Token buckets, one per sender, initially full.
pub(super) struct SenderBuckets {
    capacity: f64,
    refill_per_second: f64,
    levels: Mutex<HashMap<Sender, BucketLevel>>,
}

struct BucketLevel {
    remaining: f64,
    updated_at: Instant,
}

impl SenderBuckets {
    /// Creates buckets of `capacity` tokens that refill at `refill_per_second`.
    pub(super) fn new(capacity: f64, refill_per_second: f64) -> Self {
        Self { capacity, refill_per_second, levels: Mutex::default() }
    }

    fn refilled(&self, level: &BucketLevel, now: Instant) -> f64 {
        (level.remaining + now.saturating_duration_since(level.updated_at).as_secs_f64() * self.refill_per_second)
            .min(self.capacity)
    }

    pub(super) fn remaining(&self, sender: &Sender, now: Instant) -> f64 {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.get(sender).map_or(self.capacity, |level| self.refilled(level, now))
    }

    /// Takes `amount` from a sender's bucket if the bucket holds at least `min_level`. Returns whether it was taken,
    /// and the new level, which may be negative.
    pub(super) fn withdraw(&self, sender: Sender, amount: f64, min_level: f64, now: Instant) -> (bool, f64) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() >= BUCKET_CLEANUP_THRESHOLD {
            levels.retain(|_, level| self.refilled(level, now) < self.capacity);
        }
        let level = levels.entry(sender).or_insert(BucketLevel { remaining: self.capacity, updated_at: now });
        (level.remaining, level.updated_at) = (self.refilled(level, now), now);
        let taken = level.remaining >= min_level;
        if taken {
            level.remaining -= amount;
        }
        (taken, level.remaining)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn full_rate_buckets_are_removed() {
        let buckets = SenderBuckets::new(10.0, 1.0);
        let now = Instant::now();
        (0..BUCKET_CLEANUP_THRESHOLD as i64)
            .for_each(|user| assert!(buckets.withdraw(Sender::User(user), 1.0, 1.0, now).0));
        assert!((buckets.remaining(&Sender::User(1), now) - 9.0).abs() < 1e-9);
        buckets.withdraw(Sender::Team(1), 1.0, 1.0, now + Duration::from_secs(1));
        assert_eq!(buckets.levels.lock().unwrap().len(), 1);
    }
}
