//! Circuit breaker of [`policy_engine`](crate::pki::policy_engine). After several consecutive failures it rejects calls
//! for a short time, then lets one through as a probe. An open breaker rejects requests; it never bypasses the policy.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::Time;
use crate::telemetry;

/// Consecutive failures that open the breaker.
pub(super) const FAILURES: u32 = 5;
/// Time for which an open breaker rejects all calls.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

pub(super) struct Breaker(Mutex<State>);

#[derive(Clone, Copy)]
enum State {
    /// Calls pass; `failures` counts consecutive failures.
    Closed {
        failures: u32,
    },
    Open {
        since: Time,
    },
    /// One probe is in flight; other calls are rejected.
    Probing {
        since: Time,
    },
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Closed { failures: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn refuses(&self, now: Time) -> bool {
        match *self.state() {
            State::Closed { .. } => false,
            State::Open { since } => !is_over(since, now),
            State::Probing { .. } => true,
        }
    }

    /// Admits a call, or returns `None`.
    pub(super) fn enter(&self, now: Time) -> Option<Ticket<'_>> {
        let mut state = self.state();
        let probe = match *state {
            State::Closed { .. } => false,
            State::Open { since } if is_over(since, now) => {
                *state = State::Probing { since };
                true
            }
            State::Open { .. } | State::Probing { .. } => return None,
        };
        Some(Ticket { breaker: self, probe, told: false })
    }

    /// Records the outcome of a call. Calls that started before the breaker opened are ignored.
    fn ended(&self, probe: bool, answered: bool, now: Time) {
        let mut state = self.state();
        *state = match (*state, answered) {
            (State::Probing { .. }, true) if probe => {
                tracing::info!("the external policy engine answers again");
                gauge(-1.0);
                State::Closed { failures: 0 }
            }
            (State::Probing { .. }, false) if probe => State::Open { since: now },
            (State::Closed { .. }, true) => State::Closed { failures: 0 },
            (State::Closed { failures }, false) if failures + 1 < FAILURES => State::Closed { failures: failures + 1 },
            (State::Closed { .. }, false) => {
                let pause = PAUSE.as_secs();
                tracing::warn!(pause_seconds = pause, "the external policy engine failed {FAILURES} times in a row");
                gauge(1.0);
                State::Open { since: now }
            }
            (unchanged, _) => unchanged,
        };
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        if !matches!(*self.state(), State::Closed { .. }) {
            gauge(-1.0);
        }
    }
}

/// A clock that was set back must not keep the breaker open.
fn is_over(since: Time, now: Time) -> bool {
    now < since || now - since >= PAUSE
}

fn gauge(change: f64) {
    metrics::gauge!(telemetry::PKI_POLICY_BREAKERS).increment(change);
}

/// An admitted call. If it is dropped without an outcome, nothing is recorded and another probe may start.
#[must_use]
pub(super) struct Ticket<'a> {
    breaker: &'a Breaker,
    probe: bool,
    told: bool,
}

impl Ticket<'_> {
    /// Records the outcome; `answered` is `true` if the engine works.
    pub(super) fn tell(mut self, answered: bool, now: Time) {
        self.told = true;
        self.breaker.ended(self.probe, answered, now);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.told || !self.probe {
            return;
        }
        let mut state = self.breaker.state();
        if let State::Probing { since } = *state {
            *state = State::Open { since };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-06-01 12:00:00 UTC);

    fn call(breaker: &Breaker, answered: bool, now: Time) {
        breaker.enter(now).unwrap().tell(answered, now);
    }

    fn opened() -> Breaker {
        let breaker = Breaker::new();
        (0..FAILURES).for_each(|_| call(&breaker, false, NOW));
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let breaker = Breaker::new();
        for _ in 0..3 {
            (1..FAILURES).for_each(|_| call(&breaker, false, NOW));
            call(&breaker, true, NOW);
        }
        assert!(!breaker.refuses(NOW));
        (0..FAILURES).for_each(|_| call(&breaker, false, NOW));
        assert!(breaker.refuses(NOW) && breaker.enter(NOW).is_none());
    }

    #[test]
    fn after_the_pause_one_probe_decides() {
        let breaker = opened();
        let later = NOW + PAUSE;
        assert!(breaker.refuses(later - Duration::from_millis(1)) && !breaker.refuses(later));
        let probe = breaker.enter(later).unwrap();
        assert!(breaker.refuses(later) && breaker.enter(later).is_none(), "one at a time");
        probe.tell(false, later);
        assert!(breaker.refuses(later), "open again, for a whole pause");
        call(&breaker, true, later + PAUSE);
        (1..FAILURES).for_each(|_| call(&breaker, false, later + PAUSE));
        assert!(!breaker.refuses(later + PAUSE), "closed, and the count began anew");
    }

    #[test]
    fn a_probe_that_ends_untold_gives_its_place_back() {
        let breaker = opened();
        drop(breaker.enter(NOW + PAUSE).unwrap());
        assert!(breaker.enter(NOW + PAUSE).is_some());
    }

    #[test]
    fn calls_from_before_it_opened_have_no_say() {
        let breaker = Breaker::new();
        let (slow, slower) = (breaker.enter(NOW).unwrap(), breaker.enter(NOW).unwrap());
        (0..FAILURES).for_each(|_| call(&breaker, false, NOW));
        slow.tell(true, NOW);
        slower.tell(false, NOW + PAUSE);
        assert!(breaker.refuses(NOW) && !breaker.refuses(NOW + PAUSE));
    }

    #[test]
    fn a_clock_that_goes_backwards_does_not_keep_it_open() {
        assert!(opened().enter(NOW - Duration::from_secs(3600)).is_some());
    }
}
