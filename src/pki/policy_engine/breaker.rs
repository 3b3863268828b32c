//! Circuit breaker of [`policy_engine`](crate::pki::policy_engine). After several consecutive failures it rejects calls
//! for a short time, then lets one through as a probe. An open breaker rejects requests; it never bypasses the policy.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::Time;
use crate::telemetry;

/// Number of consecutive failures after which the breaker opens.
pub(super) const FAILURES_TO_OPEN: u32 = 5;
/// Duration for which an open breaker rejects all calls.
pub(super) const OPEN_DURATION: Duration = Duration::from_secs(10);

pub(super) struct CircuitBreaker(Mutex<BreakerState>);

#[derive(Clone, Copy)]
enum BreakerState {
    /// Calls are admitted; `failures` is the number of consecutive failures.
    Closed {
        failures: u32,
    },
    Open {
        since: Time,
    },
    /// One probe call is in flight; other calls are rejected.
    Probing {
        since: Time,
    },
}

impl CircuitBreaker {
    pub(super) fn new() -> Self {
        Self(Mutex::new(BreakerState::Closed { failures: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn refuses(&self, now: Time) -> bool {
        match *self.state() {
            BreakerState::Closed { .. } => false,
            BreakerState::Open { since } => !is_open_period_over(since, now),
            BreakerState::Probing { .. } => true,
        }
    }

    /// Admits a call, or returns `None` if the breaker rejects it.
    pub(super) fn admit(&self, now: Time) -> Option<BreakerTicket<'_>> {
        let mut state = self.state();
        let probe = match *state {
            BreakerState::Closed { .. } => false,
            BreakerState::Open { since } if is_open_period_over(since, now) => {
                *state = BreakerState::Probing { since };
                true
            }
            BreakerState::Open { .. } | BreakerState::Probing { .. } => return None,
        };
        Some(BreakerTicket { breaker: self, probe, recorded: false })
    }

    /// Records the outcome of a call. The outcome of a call that started before the breaker opened is ignored.
    fn record(&self, probe: bool, answered: bool, now: Time) {
        let mut state = self.state();
        *state = match (*state, answered) {
            (BreakerState::Probing { .. }, true) if probe => {
                tracing::info!("the external policy engine responds again; calls are admitted");
                add_to_gauge(-1.0);
                BreakerState::Closed { failures: 0 }
            }
            (BreakerState::Probing { .. }, false) if probe => BreakerState::Open { since: now },
            (BreakerState::Closed { .. }, true) => BreakerState::Closed { failures: 0 },
            (BreakerState::Closed { failures }, false) if failures + 1 < FAILURES_TO_OPEN => {
                BreakerState::Closed { failures: failures + 1 }
            }
            (BreakerState::Closed { .. }, false) => {
                let pause = OPEN_DURATION.as_secs();
                tracing::warn!(
                    pause_seconds = pause,
                    "the external policy engine failed {FAILURES_TO_OPEN} times in a row; calls are rejected until \
                     the pause ends"
                );
                add_to_gauge(1.0);
                BreakerState::Open { since: now }
            }
            (unchanged, _) => unchanged,
        };
    }
}

impl Drop for CircuitBreaker {
    fn drop(&mut self) {
        if !matches!(*self.state(), BreakerState::Closed { .. }) {
            add_to_gauge(-1.0);
        }
    }
}

/// `true` if the breaker may admit a probe call. A clock that was set back must not keep the breaker open.
fn is_open_period_over(since: Time, now: Time) -> bool {
    now < since || now - since >= OPEN_DURATION
}

fn add_to_gauge(change: f64) {
    metrics::gauge!(telemetry::PKI_POLICY_BREAKERS).increment(change);
}

/// An admitted call. If it is dropped without an outcome, no success or failure is recorded and another probe may
/// start.
#[must_use]
pub(super) struct BreakerTicket<'a> {
    breaker: &'a CircuitBreaker,
    probe: bool,
    recorded: bool,
}

impl BreakerTicket<'_> {
    /// Records the outcome of the call; `answered` is `true` if the policy engine is available.
    pub(super) fn record(mut self, answered: bool, now: Time) {
        self.recorded = true;
        self.breaker.record(self.probe, answered, now);
    }
}

impl Drop for BreakerTicket<'_> {
    fn drop(&mut self) {
        if self.recorded || !self.probe {
            return;
        }
        let mut state = self.breaker.state();
        if let BreakerState::Probing { since } = *state {
            *state = BreakerState::Open { since };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-06-01 12:00:00 UTC);

    fn call(breaker: &CircuitBreaker, answered: bool, now: Time) {
        breaker.admit(now).unwrap().record(answered, now);
    }

    fn opened() -> CircuitBreaker {
        let breaker = CircuitBreaker::new();
        (0..FAILURES_TO_OPEN).for_each(|_| call(&breaker, false, NOW));
        breaker
    }

    #[test]
    fn breaker_opens_only_after_consecutive_failures() {
        let breaker = CircuitBreaker::new();
        for _ in 0..3 {
            (1..FAILURES_TO_OPEN).for_each(|_| call(&breaker, false, NOW));
            call(&breaker, true, NOW);
        }
        assert!(!breaker.refuses(NOW));
        (0..FAILURES_TO_OPEN).for_each(|_| call(&breaker, false, NOW));
        assert!(breaker.refuses(NOW) && breaker.admit(NOW).is_none());
    }

    #[test]
    fn breaker_admits_one_probe_after_the_pause() {
        let breaker = opened();
        let later = NOW + OPEN_DURATION;
        assert!(breaker.refuses(later - Duration::from_millis(1)) && !breaker.refuses(later));
        let probe = breaker.admit(later).unwrap();
        assert!(breaker.refuses(later) && breaker.admit(later).is_none(), "one at a time");
        probe.record(false, later);
        assert!(breaker.refuses(later), "open again, for a whole pause");
        call(&breaker, true, later + OPEN_DURATION);
        (1..FAILURES_TO_OPEN).for_each(|_| call(&breaker, false, later + OPEN_DURATION));
        assert!(!breaker.refuses(later + OPEN_DURATION), "closed, and the count was reset");
    }

    #[test]
    fn probe_without_a_result_releases_its_slot() {
        let breaker = opened();
        drop(breaker.admit(NOW + OPEN_DURATION).unwrap());
        assert!(breaker.admit(NOW + OPEN_DURATION).is_some());
    }

    #[test]
    fn calls_started_before_the_breaker_opened_are_ignored() {
        let breaker = CircuitBreaker::new();
        let slow = breaker.admit(NOW).unwrap();
        let slower = breaker.admit(NOW).unwrap();
        (0..FAILURES_TO_OPEN).for_each(|_| call(&breaker, false, NOW));
        slow.record(true, NOW);
        slower.record(false, NOW + OPEN_DURATION);
        assert!(breaker.refuses(NOW) && !breaker.refuses(NOW + OPEN_DURATION));
    }

    #[test]
    fn breaker_closes_despite_clock_moving_backwards() {
        assert!(opened().admit(NOW - Duration::from_secs(3600)).is_some());
    }
}
