//! Token buckets, one per key, for limits per unit of time.
//!
//! Clients can choose some keys, such as their addresses, so memory is bounded. Buckets that are full carry no
//! information and are removed regularly. If too many keys are in use, those that were not used recently are dropped:
//! they begin with a full bucket again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::clock::Time;

/// Maximum number of buckets in each of two generations: about 1 MiB.
const MAX_BUCKETS_PER_GENERATION: usize = 1 << 14;
/// Number of tokens by which a bucket may fall short of a withdrawal, because sums of fractions are rounded.
pub const LEVEL_TOLERANCE: f64 = 1e-6;

/// A time of the monotonic clock, or of the wall clock, which may be set back.
pub trait BucketTime: Copy + Ord {
    /// Returns the seconds since another time; negative if that is later.
    fn seconds_since(self, other: Self) -> f64;
}

impl BucketTime for Instant {
    fn seconds_since(self, other: Self) -> f64 {
        self.saturating_duration_since(other).as_secs_f64()
    }
}

impl BucketTime for Time {
    fn seconds_since(self, other: Self) -> f64 {
        (self - other).as_seconds_f64()
    }
}

/// The rule of all buckets of a limit.
#[derive(Clone, Copy)]
pub struct BucketRule {
    /// Tokens of a full bucket.
    pub capacity: f64,
    /// Tokens added per second.
    pub per_second: f64,
    /// Seconds for which a key over its limit is refused. With 0, it is refused only until there are enough tokens.
    pub block_seconds: f64,
}

/// Result of [`TokenBuckets::take`].
#[derive(Clone, Copy)]
pub struct Withdrawal {
    /// `true` if the tokens were taken.
    pub granted: bool,
    /// Tokens left in the bucket.
    pub level: f64,
    /// Seconds for which the key is still blocked.
    pub blocked_seconds: f64,
}

/// One bucket per key, initially full.
pub struct TokenBuckets<K, T> {
    rule: BucketRule,
    generations: Mutex<BucketGenerations<K, T>>,
}

/// The buckets. A key is in one of the generations; a withdrawal moves it to the young one.
struct BucketGenerations<K, T> {
    young: HashMap<K, TokenBucket<T>>,
    old: HashMap<K, TokenBucket<T>>,
    /// Time of the last removal of full buckets; `None` before the first one.
    cleaned_at: Option<T>,
}

#[derive(Clone, Copy)]
struct TokenBucket<T> {
    level: f64,
    updated_at: T,
    blocked_since: Option<T>,
}

impl<K: Eq + Hash, T: BucketTime> TokenBuckets<K, T> {
    /// Creates buckets that are all full.
    pub fn new(rule: BucketRule) -> Self {
        let generations = BucketGenerations { young: HashMap::new(), old: HashMap::new(), cleaned_at: None };
        Self { rule, generations: Mutex::new(generations) }
    }

    /// Takes `amount` from the bucket of a key, if the bucket is not blocked and contains that many tokens.
    pub fn take(&self, key: K, amount: f64, now: T) -> Withdrawal {
        self.lock().bucket(key, &self.rule, now).take(amount, &self.rule, now)
    }

    /// Takes `amount` from the bucket of a key, whose level may become negative.
    pub fn overdraw(&self, key: K, amount: f64, now: T) {
        self.lock().bucket(key, &self.rule, now).level -= amount;
    }

    /// Returns the tokens in the bucket of a key.
    pub fn level(&self, key: &K, now: T) -> f64 {
        let generations = self.lock();
        let bucket = generations.young.get(key).or_else(|| generations.old.get(key));
        bucket.map_or(self.rule.capacity, |bucket| bucket.refilled(&self.rule, now).level)
    }

    /// Removes full buckets. Withdrawals do this too; the call is for limits that are not used any more.
    pub fn remove_full(&self, now: T) {
        self.lock().remove_full(&self.rule, now);
    }

    fn lock(&self) -> MutexGuard<'_, BucketGenerations<K, T>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, T: BucketTime> BucketGenerations<K, T> {
    /// Returns the bucket of a key, refilled.
    fn bucket(&mut self, key: K, rule: &BucketRule, now: T) -> &mut TokenBucket<T> {
        self.remove_full(rule, now);
        if self.young.len() >= MAX_BUCKETS_PER_GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let known = self.old.remove(&key);
        let full = TokenBucket { level: rule.capacity, updated_at: now, blocked_since: None };
        let bucket = self.young.entry(key).or_insert_with(|| known.unwrap_or(full));
        *bucket = bucket.refilled(rule, now);
        bucket
    }

    /// Removes full buckets. After a removal, skips further ones for the time in which an empty bucket fills, or for
    /// the duration of a block if that is longer.
    fn remove_full(&mut self, rule: &BucketRule, now: T) {
        let age = self.cleaned_at.map_or(f64::INFINITY, |cleaned_at| now.seconds_since(cleaned_at));
        let interval = (rule.capacity / rule.per_second).max(rule.block_seconds);
        // A negative age means that the clock was set back.
        if (0.0..interval).contains(&age) {
            return;
        }
        self.cleaned_at = Some(now);
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|_, bucket| {
                let bucket = bucket.refilled(rule, now);
                bucket.level < rule.capacity || bucket.blocked_since.is_some()
            });
            generation.shrink_to_fit();
        }
    }
}

impl<T: BucketTime> TokenBucket<T> {
    /// Returns the state of the bucket at `now`.
    fn refilled(self, rule: &BucketRule, now: T) -> Self {
        let seconds = now.seconds_since(self.updated_at).max(0.0);
        // If the clock was set back, the block begins again, so that it is not longer than the rule says.
        let blocked_since = self.blocked_since.map(|since| since.min(now));
        Self {
            level: (self.level + seconds * rule.per_second).min(rule.capacity),
            updated_at: now,
            blocked_since: blocked_since.filter(|since| now.seconds_since(*since) < rule.block_seconds),
        }
    }

    /// Takes tokens from a refilled bucket.
    fn take(&mut self, amount: f64, rule: &BucketRule, now: T) -> Withdrawal {
        let granted = self.blocked_since.is_none() && self.level >= amount - LEVEL_TOLERANCE;
        if granted {
            self.level = (self.level - amount).max(0.0);
        } else {
            self.blocked_since.get_or_insert(now);
        }
        let blocked_seconds = self.blocked_since.map_or(0.0, |since| rule.block_seconds - now.seconds_since(since));
        Withdrawal { granted, level: self.level, blocked_seconds }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RULE: BucketRule = BucketRule { capacity: 2.0, per_second: 0.2, block_seconds: 0.0 };

    fn count(buckets: &TokenBuckets<u32, Instant>) -> usize {
        let generations = buckets.lock();
        generations.young.len() + generations.old.len()
    }

    #[test]
    fn token_buckets_are_bounded_and_those_of_recent_keys_stay() {
        let buckets = TokenBuckets::new(RULE);
        let now = Instant::now();
        let take = |key| buckets.take(key, 1.0, now).granted;
        assert!(take(0) && take(0));
        for key in 1..100_000 {
            assert!(take(key));
            assert!(key % 1_000 != 0 || !take(0), "key 0 keeps its bucket");
        }
        assert!(count(&buckets) <= 2 * MAX_BUCKETS_PER_GENERATION);
        assert!(take(99_999) && !take(99_999));
    }

    #[test]
    fn full_token_buckets_are_removed_and_overdrawn_ones_stay() {
        let buckets = TokenBuckets::new(RULE);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        buckets.overdraw(1, 5.0, begin);
        assert!(buckets.take(2, 2.0, begin).granted && buckets.take(3, 1.0, at(9)).granted);
        assert!((buckets.level(&1, at(10)) + 1.0).abs() < 1e-9 && !buckets.take(1, 1.0, at(10)).granted);
        assert_eq!((count(&buckets), buckets.level(&2, at(10))), (2, 2.0), "the second bucket is full");
        buckets.remove_full(at(19));
        assert_eq!(count(&buckets), 2, "it is not yet time");
        buckets.remove_full(at(20));
        assert_eq!(count(&buckets), 1);
        buckets.remove_full(at(30));
        assert_eq!(count(&buckets), 0);
    }
}
