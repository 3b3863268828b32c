//! When a request last began or ended in this process: for work that is put off until nobody asks for anything.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Milliseconds after [`EPOCH`].
static LAST: AtomicU64 = AtomicU64::new(0);

/// A request begins or ends.
pub fn note(now: Instant) {
    let at = since_epoch(now);
    // Looked at first: most requests of a busy server leave the line in every worker's cache as it is.
    if LAST.load(Ordering::Relaxed) < at {
        LAST.fetch_max(at, Ordering::Relaxed);
    }
}

/// How long no request has begun or ended, to the millisecond.
pub fn quiet_for() -> Duration {
    Duration::from_millis(since_epoch(Instant::now()).saturating_sub(LAST.load(Ordering::Relaxed)))
}

fn since_epoch(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*EPOCH).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_from_the_latest_request_on() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let latest = Instant::now();
        note(latest);
        // One that began earlier and is told of late.
        note(before);
        assert!(quiet_for() < Duration::from_millis(15) + latest.elapsed(), "{:?}", quiet_for());
        std::thread::sleep(Duration::from_millis(5));
        assert!(quiet_for() >= Duration::from_millis(4));
    }
}
