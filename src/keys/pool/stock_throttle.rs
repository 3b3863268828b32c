//! Limits the processor use of the pool's threads. A low-priority thread that has to wait for a processor contends with
//! other processes and backs off.
//!
//! A thread that generated a key for a caller pauses ([`pause_after`]). Threads that fill the stock share a
//! [`StockThrottle`]: two at a time at most, then one under contention, then one with pauses.

use std::time::{Duration, Instant};

/// Maximum number of keys that are generated for the stock concurrently.
const MAX_CONCURRENT_KEYS: usize = 2;
/// A thread contends if it waits for a processor for more than this fraction of its work.
const CONTENTION_RATIO: f64 = 0.1;
/// Tolerated wait of threads for the stock beyond that fraction. Background activity of the machine is often over
/// before backing off would help.
const TOLERATED_WAIT: Duration = Duration::from_millis(20);
/// Keys without contention after which one more is generated concurrently. Doubles up to `MAX_UNCONTENDED_KEYS` if
/// contention soon returns.
const MIN_UNCONTENDED_KEYS: u32 = 2;
const MAX_UNCONTENDED_KEYS: u32 = 32;
/// Contention after this many keys without any is unrelated to earlier contention.
const CONTENTION_RESET_KEYS: u32 = 8;
/// Pause after contention: a multiple of the key's duration, up to `MAX_PAUSE`.
const PAUSE_FACTOR: f64 = 3.0;
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);
pub(super) const FAILURE_PAUSE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeSpent {
    /// Wall-clock time.
    pub(super) took: Duration,
    /// Processor time.
    pub(super) active_threads: Duration,
}

impl TimeSpent {
    fn waited(self) -> Duration {
        self.took.saturating_sub(self.active_threads)
    }

    fn usual_wait(self) -> Duration {
        self.took.mul_f64(CONTENTION_RATIO)
    }
}

/// Returns the pause of a thread after a key for a caller; zero without contention.
pub(super) fn pause_after(spent: TimeSpent) -> Duration {
    if spent.waited() > spent.usual_wait() { contention_pause(spent) } else { Duration::ZERO }
}

fn contention_pause(spent: TimeSpent) -> Duration {
    spent.took.mul_f64(PAUSE_FACTOR).min(MAX_PAUSE)
}

/// Concurrency and pauses of the threads that fill the stock.
pub(super) struct StockThrottle {
    /// Maximum concurrency; not more than the number of processors.
    limit: usize,
    concurrency: usize,
    /// Consecutive keys without contention.
    uncontended: u32,
    /// Value of `uncontended` at which the concurrency grows.
    keys_to_grow: u32,
    /// Accumulated wait for processors above the tolerated fraction, at most [`TOLERATED_WAIT`]. Keys that
    /// did not wait reduce it.
    waited: Duration,
    /// Earliest start of the next key.
    from: Option<Instant>,
}

impl StockThrottle {
    pub(super) fn on(processors: usize) -> Self {
        let limit = processors.clamp(1, MAX_CONCURRENT_KEYS);
        Self {
            limit,
            concurrency: limit,
            uncontended: 0,
            keys_to_grow: MIN_UNCONTENDED_KEYS,
            waited: Duration::ZERO,
            from: None,
        }
    }

    pub(super) fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Returns the time until a key may start; `None` if it may start now.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.from.map(|from| from.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Records a finished key, which was started at concurrency `concurrency`. Returns `true` if the concurrency has
    /// grown.
    pub(super) fn done(&mut self, concurrency: usize, spent: TimeSpent, now: Instant) -> bool {
        let waited = (self.waited + spent.waited()).saturating_sub(spent.usual_wait());
        self.waited = waited.min(TOLERATED_WAIT);
        if waited <= TOLERATED_WAIT {
            self.uncontended = self.uncontended.saturating_add(1);
            let more = self.uncontended >= self.keys_to_grow && self.concurrency < self.limit;
            if more {
                (self.concurrency, self.uncontended) = (self.concurrency + 1, 0);
            }
            return more;
        }
        let uncontended = std::mem::take(&mut self.uncontended);
        if concurrency <= 1 {
            self.from = self.from.max(Some(now + contention_pause(spent)));
        } else if self.concurrency >= concurrency {
            // The threads may have contended only with each other.
            self.concurrency = concurrency - 1;
            self.keys_to_grow = if uncontended < CONTENTION_RESET_KEYS {
                (self.keys_to_grow * 2).min(MAX_UNCONTENDED_KEYS)
            } else {
                MIN_UNCONTENDED_KEYS
            };
        }
        false
    }

    pub(super) fn record_failure(&mut self, now: Instant) {
        self.from = self.from.max(Some(now + FAILURE_PAUSE));
    }

    #[cfg(test)]
    pub(super) fn start_now(&mut self) {
        self.from = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: TimeSpent = spent(70, 35);
    const FREE: TimeSpent = spent(60, 59);

    const fn spent(took: u64, active_threads: u64) -> TimeSpent {
        TimeSpent { took: Duration::from_millis(took), active_threads: Duration::from_millis(active_threads) }
    }

    /// Finishes keys without contention until the concurrency grows; returns their number.
    fn climb(pace: &mut StockThrottle, now: Instant) -> u32 {
        (1..100).find(|_| pace.done(1, FREE, now)).expect("never")
    }

    #[test]
    fn throttle_pauses_only_after_contention_and_briefly() {
        assert_eq!(pause_after(spent(60, 58)), Duration::ZERO);
        assert_eq!(pause_after(spent(100, 60)), Duration::from_millis(300));
        assert_eq!(pause_after(spent(9000, 60)), MAX_PAUSE);
    }

    #[test]
    fn stock_generation_uses_only_idle_cpu_time() {
        let now = Instant::now();
        let mut pace = StockThrottle::on(8);
        assert_eq!((pace.concurrency(), pace.pause(now)), (2, None));
        assert_eq!((StockThrottle::on(1).concurrency(), StockThrottle::on(0).concurrency()), (1, 1));
        // Both threads contended, perhaps with each other: one is left.
        pace.done(2, CROWD, now);
        pace.done(2, CROWD, now);
        assert_eq!((pace.concurrency(), pace.pause(now)), (1, None));
        // A single thread contends: no key for a while.
        pace.done(1, CROWD, now);
        let rest = contention_pause(CROWD);
        assert_eq!(pace.pause(now + rest / 2), Some(rest - rest / 2));
        assert_eq!(pace.pause(now + rest), None);
        climb(&mut pace, now);
        assert_eq!(pace.concurrency(), 2);
        (0..100).for_each(|_| assert!(!pace.done(2, FREE, now)));
        assert_eq!(pace.concurrency(), 2, "no more than the limit");
    }

    #[test]
    fn throttle_tolerates_occasional_contention() {
        let now = Instant::now();
        let mut pace = StockThrottle::on(2);
        for _ in 0..100 {
            pace.done(2, spent(72, 56), now);
            pace.done(2, FREE, now);
            pace.done(2, FREE, now);
            assert_eq!((pace.concurrency(), pace.pause(now)), (2, None));
        }
        // Constant contention is not tolerated, even if each wait is short.
        let keys = (1..100).find(|_| {
            pace.done(2, spent(70, 58), now);
            pace.concurrency() == 1
        });
        assert!(keys.is_some_and(|keys| keys < 10), "{keys:?}");
        assert!(!pace.done(1, spent(70, 58), now));
        assert!(pace.pause(now).is_some(), "it goes on");
    }

    #[test]
    fn throttle_backs_off_longer_after_repeated_contention() {
        let now = Instant::now();
        let mut pace = StockThrottle::on(2);
        let mut needed = Vec::new();
        for _ in 0..7 {
            pace.done(2, CROWD, now);
            needed.push(climb(&mut pace, now));
        }
        assert_eq!(needed, [4, 8, 16, 32, 32, 32, 32]);
        // Contention after a long time without any is unrelated to earlier contention.
        (0..CONTENTION_RESET_KEYS).for_each(|_| assert!(!pace.done(2, FREE, now)));
        pace.done(2, spent(120, 60), now);
        assert_eq!((pace.concurrency(), climb(&mut pace, now)), (1, MIN_UNCONTENDED_KEYS));
    }

    #[test]
    fn key_generated_after_a_failure_does_not_end_the_pause() {
        let now = Instant::now();
        let mut pace = StockThrottle::on(1);
        pace.record_failure(now);
        assert_eq!(pace.pause(now), Some(FAILURE_PAUSE));
        pace.done(1, CROWD, now);
        assert_eq!(pace.pause(now), Some(FAILURE_PAUSE));
    }
}
