//! How much one sender may have put away.
//!
//! Everybody with a token may wrap what they like, and the store keeps it until it is fetched or its time is over, which
//! may be weeks. So each sender has a bucket of octets, on each node: wrapping takes out of it, and it fills again within
//! an hour, whatever becomes of what was wrapped. Requests that are under way at the same time may take more than there
//! is; another token for the same answer takes nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::http::sender::Sender;

/// Octets in a full bucket.
const MOST: u64 = 256 << 20;
/// How long an empty one takes to fill.
const FILLS: Duration = Duration::from_secs(3600);
/// What is kept beside an answer takes so many octets of the store, about.
const BESIDE: u64 = 512;
/// Buckets are looked through for full ones, which mean nothing, when there are this many.
const MANY: usize = 10_000;

/// The buckets of a node.
#[derive(Default)]
pub struct PutAway(Mutex<HashMap<Sender, Level>>);

/// What is lacking in a bucket.
struct Level {
    octets: f64,
    at: Instant,
}

impl Level {
    fn settle(&mut self, now: Instant) -> f64 {
        let filled = now.saturating_duration_since(self.at).as_secs_f64() / FILLS.as_secs_f64() * MOST as f64;
        (self.octets, self.at) = ((self.octets - filled).max(0.0), now);
        self.octets
    }
}

impl PutAway {
    /// Whether a sender may have one more answer put away. Asked before anything is done.
    ///
    /// # Errors
    /// `Quota` when the bucket is empty.
    pub fn check(&self, sender: &Sender) -> Result<()> {
        self.check_at(sender, Instant::now())
    }

    /// Takes what was put away out of the sender's bucket.
    pub fn take(&self, sender: Sender, octets: usize) {
        self.take_at(sender, octets as u64, Instant::now());
    }

    fn check_at(&self, sender: &Sender, now: Instant) -> Result<()> {
        let mut levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match levels.get_mut(sender).map(|level| level.settle(now)) {
            Some(lacking) if lacking >= MOST as f64 => Err(Error::new(
                Kind::Quota,
                format!("wrap-ttl: too much was wrapped: {0} MiB at once, and {0} MiB in an hour", MOST >> 20),
            )),
            _ => Ok(()),
        }
    }

    fn take_at(&self, sender: Sender, octets: u64, now: Instant) {
        let mut levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() >= MANY {
            levels.retain(|_, level| level.settle(now) > 0.0);
        }
        let level = levels.entry(sender).or_insert(Level { octets: 0.0, at: now });
        level.octets = level.settle(now) + (octets + BESIDE) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_bucket_fills_within_an_hour_beside_others() {
        let (budget, now) = (PutAway::default(), Instant::now());
        let (one, other) = (Sender::User(1), Sender::User(2));
        let refused = |sender, after| budget.check_at(sender, now + after).err().map(|error| error.kind());
        for _ in 0..256 {
            assert_eq!(refused(&one, Duration::ZERO), None);
            budget.take_at(one.clone(), 1 << 20, now);
        }
        assert_eq!((refused(&one, Duration::ZERO), refused(&other, Duration::ZERO)), (Some(Kind::Quota), None));
        assert_eq!(refused(&one, FILLS / 256), None, "room for one more");
        budget.take_at(one.clone(), 256 << 20, now + FILLS);
        assert_eq!((refused(&one, FILLS), refused(&one, FILLS * 2)), (Some(Kind::Quota), None));
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let (budget, now) = (PutAway::default(), Instant::now());
        (0..MANY as i64).for_each(|user| budget.take_at(Sender::User(user), 1, now));
        budget.take_at(Sender::Team(1), 1, now + FILLS);
        assert_eq!(budget.0.lock().unwrap().len(), 1);
    }
}
