//! The state of one outage: when it begins, when it is over, and if it recurs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time without failures after which an outage is over.
pub(crate) const MIN_QUIET_TIME: Duration = Duration::from_secs(5);
/// Maximum quiet time. Each recurrence of an outage doubles the required time up to this limit.
const MAX_QUIET_TIME: Duration = Duration::from_secs(120);
/// An outage within this time after the end of the last one counts as recurring.
const RECURRENCE_WINDOW: Duration = Duration::from_secs(60);

pub(super) struct Outage {
    on: AtomicBool,
    state: Mutex<OutageState>,
}

#[derive(Clone, Copy)]
struct OutageState {
    ongoing: Option<OngoingOutage>,
    ended_at: Option<Instant>,
    required_quiet_time: Duration,
}

#[derive(Clone, Copy)]
struct OngoingOutage {
    first_failure: Instant,
    last_failure: Instant,
    failures: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedOutage {
    /// Seconds from the first failure to the last.
    pub(super) seconds: u64,
    pub(super) failures: u64,
    /// Seconds since the last failure.
    pub(super) quiet: u64,
}

impl Outage {
    pub(super) const fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            state: Mutex::new(OutageState { ongoing: None, ended_at: None, required_quiet_time: MIN_QUIET_TIME }),
        }
    }

    pub(super) fn is_ongoing(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts a failure; returns `true` if it begins an outage.
    pub(super) fn record(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outage) = &mut state.ongoing {
            (outage.last_failure, outage.failures) = (now, outage.failures + 1);
            return false;
        }
        let is_recurring = state.ended_at.is_some_and(|ended| now.saturating_duration_since(ended) < RECURRENCE_WINDOW);
        state.required_quiet_time =
            if is_recurring { (state.required_quiet_time * 2).min(MAX_QUIET_TIME) } else { MIN_QUIET_TIME };
        state.ongoing = Some(OngoingOutage { first_failure: now, last_failure: now, failures: 1 });
        self.on.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the outage if it is over, and returns it.
    pub(super) fn take_ended(&self, now: Instant) -> Option<EndedOutage> {
        if !self.is_ongoing() {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let required = state.required_quiet_time;
        let over = state.ongoing.take_if(|outage| now.saturating_duration_since(outage.last_failure) >= required)?;
        state.ended_at = Some(now);
        self.on.store(false, Ordering::Relaxed);
        let quiet = now.saturating_duration_since(over.last_failure).as_secs();
        Some(EndedOutage {
            seconds: (over.last_failure - over.first_failure).as_secs(),
            failures: over.failures,
            quiet,
        })
    }

    /// `true` if this state can be dropped: the outage is over, and a new failure would not count as a recurrence.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ongoing.is_none()
            && state.ended_at.is_none_or(|ended| now.saturating_duration_since(ended) >= RECURRENCE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_begins_at_a_failure_and_ends_after_a_quiet_time() {
        let outage = Outage::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(outage.take_ended(at(0)), None);
        assert!(outage.record(at(0)) && outage.is_ongoing());
        for second in 1..=600 {
            assert!(!outage.record(at(second)));
            assert_eq!(outage.take_ended(at(second)), None, "the outage goes on while some requests fail");
        }
        assert_eq!(outage.take_ended(at(604)), None);
        assert_eq!(outage.take_ended(at(605)), Some(EndedOutage { seconds: 600, failures: 601, quiet: 5 }));
        assert!(!outage.is_ongoing());
        assert_eq!(outage.take_ended(at(700)), None);
    }

    #[test]
    fn outage_of_a_flapping_store_logs_under_twenty_lines() {
        for every in [6, 10, 20, 30, 59] {
            let outage = Outage::new();
            let start = Instant::now();
            let mut lines = 0;
            for second in 0..600 {
                let now = start + Duration::from_secs(second);
                lines += u32::from(second % every == 0 && outage.record(now));
                lines += u32::from(outage.take_ended(now).is_some());
            }
            assert!(lines < 20, "{lines} lines for a store that fails every {every} s");
        }
    }
}
