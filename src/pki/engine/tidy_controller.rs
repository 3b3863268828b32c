//! This node's state of a mount's tidy runs, which remove expired data: the active run and the next due time
//! ([`tidy`](crate::pki::tidy)).

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::Time;
use crate::pki::mount::settings::tidy::AutoTidyConfig;

/// Signals to the active run of this node.
#[derive(Default)]
pub(crate) struct TidySignals {
    pub(crate) wake: Notify,
    stopping: AtomicBool,
}

impl TidySignals {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

pub(crate) struct TidyController {
    background: Handle,
    opened_at: Time,
    /// Position of this node's first run within the configured range of start-up delays: 0 for the minimum, 255 for the
    /// maximum.
    startup_position: u8,
    /// Start of the interval after which the next automatic run is due, as last read from storage; epoch microseconds.
    interval_start: AtomicI64,
    /// Time before which this node does not check if a run is due; epoch microseconds.
    suppressed_until: AtomicI64,
    run: Mutex<Option<(Arc<TidySignals>, JoinHandle<()>)>>,
}

impl TidyController {
    pub(crate) fn new(background: Handle, opened_at: Time) -> Self {
        Self {
            background,
            opened_at,
            startup_position: crate::random::bytes::<1>()[0],
            interval_start: AtomicI64::new(i64::MIN),
            suppressed_until: AtomicI64::new(i64::MIN),
            run: Mutex::default(),
        }
    }

    /// Returns `true` if an automatic run may be due according to what this node last read.
    pub(crate) fn may_be_due(&self, config: &AutoTidyConfig, now: Time) -> bool {
        let delay = config.min_startup_backoff_duration
            + (config.max_startup_backoff_duration - config.min_startup_backoff_duration)
                * u64::from(self.startup_position)
                / 255;
        config.enabled
            && now - self.opened_at >= Duration::from_secs(delay)
            && epoch_micros(now) >= self.suppressed_until.load(Ordering::Relaxed)
            && is_due(self.interval_start.load(Ordering::Relaxed), config.interval_duration, now)
    }

    /// Spawns background work that outlives the request that started it.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.background.spawn(work)
    }

    /// Sets the start of the interval after which the next automatic run is due, epoch microseconds.
    pub(crate) fn set_interval_start(&self, at: i64) {
        self.interval_start.store(at, Ordering::Relaxed);
    }

    /// Suppresses the check for a due run until `at`.
    pub(crate) fn suppress_until(&self, at: Time) {
        self.suppressed_until.store(epoch_micros(at), Ordering::Relaxed);
    }

    /// Sets the active run of this node.
    pub(crate) fn set_run(&self, signals: Arc<TidySignals>, task: JoinHandle<()>) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some((signals, task));
    }

    /// Wakes the active run of this node, if any.
    pub(crate) fn wake(&self) {
        if let Some((signals, _)) = &*self.run.lock().unwrap_or_else(PoisonError::into_inner) {
            signals.wake.notify_one();
        }
    }

    /// Stops the active run of this node after its current step, and waits for its end.
    pub(crate) async fn stop(&self) {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((signals, task)) = run {
            signals.stopping.store(true, Ordering::Relaxed);
            signals.wake.notify_one();
            let _ = task.await;
        }
    }
}

/// Returns `true` if `interval` seconds have passed since `since` (epoch microseconds).
pub(crate) fn is_due(since: i64, interval: u64, now: Time) -> bool {
    let interval = i64::try_from(interval).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    epoch_micros(now) >= since.saturating_add(interval)
}

/// Converts a time to epoch microseconds, rounded down.
pub(crate) fn epoch_micros(at: Time) -> i64 {
    // Years up to 9999 are 2.6e17 µs, which fits.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tidy_is_due_after_startup_delay_and_interval() {
        let opened = Time::UNIX_EPOCH + Duration::from_secs(10_000);
        let mut tidying = TidyController::new(Handle::current(), opened);
        let config = AutoTidyConfig {
            enabled: true,
            interval_duration: 100,
            min_startup_backoff_duration: 5,
            max_startup_backoff_duration: 15,
            ..AutoTidyConfig::default()
        };
        let after = |seconds| opened + Duration::from_secs(seconds);
        for (startup_position, delay) in [(0, 5), (255, 15)] {
            tidying.startup_position = startup_position;
            assert!(!tidying.may_be_due(&config, after(delay - 1)) && tidying.may_be_due(&config, after(delay)));
        }
        assert!(!tidying.may_be_due(&AutoTidyConfig { enabled: false, ..config.clone() }, after(999)));
        tidying.interval_start.store(epoch_micros(after(20)), Ordering::Relaxed);
        assert!(!tidying.may_be_due(&config, after(119)) && tidying.may_be_due(&config, after(120)));
        tidying.suppressed_until.store(epoch_micros(after(200)), Ordering::Relaxed);
        assert!(!tidying.may_be_due(&config, after(199)) && tidying.may_be_due(&config, after(200)));
    }
}
