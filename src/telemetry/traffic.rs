//! Time of the last request activity in this process, for work that is deferred until the server is idle.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Time of the latest start or end of a request, in milliseconds since [`EPOCH`].
static LAST_ACTIVITY_MILLIS: AtomicU64 = AtomicU64::new(0);

/// Records that a request starts or ends at `now`.
pub fn record_activity(now: Instant) {
    let at = millis_since_epoch(now);
    // The value is loaded before it is written, so that the cache line stays shared between workers: most requests of a
    // busy server do not change it.
    if LAST_ACTIVITY_MILLIS.load(Ordering::Relaxed) < at {
        LAST_ACTIVITY_MILLIS.fetch_max(at, Ordering::Relaxed);
    }
}

/// Returns the time since the last request began or ended, in whole milliseconds.
pub fn idle_time() -> Duration {
    Duration::from_millis(
        millis_since_epoch(Instant::now()).saturating_sub(LAST_ACTIVITY_MILLIS.load(Ordering::Relaxed)),
    )
}

fn millis_since_epoch(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*EPOCH).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_time_starts_at_the_latest_request() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let latest = Instant::now();
        record_activity(latest);
        // Recording an earlier activity after a later one changes nothing.
        record_activity(before);
        assert!(idle_time() < Duration::from_millis(15) + latest.elapsed(), "{:?}", idle_time());
        std::thread::sleep(Duration::from_millis(5));
        assert!(idle_time() >= Duration::from_millis(4));
    }
}
