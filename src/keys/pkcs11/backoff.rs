//! Backoff for a token on which no session can be opened: one call tries again after 1 s, 2 s, 4 s … 30 s, and all
//! other calls fail immediately with the last error.
//!
//! Initializing a module again may find more tokens but ends all its sessions. So initialization has a backoff with the
//! same steps, shared by all keys of a library.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct BackoffPause {
    until: Instant,
    step: Duration,
}

impl BackoffPause {
    fn first(now: Instant) -> Self {
        Self { until: now + FIRST_PAUSE, step: FIRST_PAUSE }
    }

    /// Returns `true` if the pause is over, and then starts the next, longer pause.
    fn advance_if_over(&mut self, now: Instant) -> bool {
        if now < self.until {
            return false;
        }
        let step = (self.step * 2).min(MAX_PAUSE);
        *self = Self { until: now + step, step };
        true
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The backoff for opening sessions with one managed key.
#[derive(Default)]
pub(super) struct KeyBackoff(Mutex<KeyBackoffState>);

#[derive(Default)]
struct KeyBackoffState {
    /// The current pause, with the error of the last attempt.
    pause: Option<(BackoffPause, Error)>,
    /// `true` if a session has been opened since the last failure.
    has_worked: bool,
}

#[derive(Debug)]
pub(super) enum BackoffAdmission {
    /// No failure is known.
    NoBackoff,
    /// The pause is over: this call tries to open a session, to check if the token is back.
    Retry,
    /// The call must fail with this error, that of the last attempt to open a session.
    Refused(Error),
}

impl KeyBackoff {
    pub(super) fn admit(&self, now: Instant) -> BackoffAdmission {
        match &mut lock(&self.0).pause {
            None => BackoffAdmission::NoBackoff,
            Some((pause, error)) => {
                if pause.advance_if_over(now) {
                    return BackoffAdmission::Retry;
                }
                BackoffAdmission::Refused(error.clone())
            }
        }
    }

    /// Records that no session could be opened. Returns `true` for the first failure after a success.
    pub(super) fn record_failure(&self, now: Instant, error: &Error) -> bool {
        let mut state = lock(&self.0);
        let pause = state.pause.take().map_or_else(|| BackoffPause::first(now), |(pause, _)| pause);
        state.pause = Some((pause, error.clone()));
        std::mem::take(&mut state.has_worked)
    }

    pub(super) fn record_success(&self) {
        *lock(&self.0) = KeyBackoffState { pause: None, has_worked: true };
    }
}

/// The backoff for initializing a module again because a token is missing.
#[derive(Default)]
pub(super) struct ReinitializationBackoff(Mutex<Option<BackoffPause>>);

impl ReinitializationBackoff {
    /// Returns `true` if the module may be initialized now, and then starts the next, longer pause.
    pub(super) fn admit(&self, now: Instant) -> bool {
        let mut state = lock(&self.0);
        match &mut *state {
            Some(pause) => pause.advance_if_over(now),
            none => {
                *none = Some(BackoffPause::first(now));
                true
            }
        }
    }

    /// Shortens the pause for a token that has just been lost: it may be back soon, even if other tokens have
    /// been missing for long.
    pub(super) fn retry_now(&self, now: Instant) {
        if let Some(pause) = &mut *lock(&self.0) {
            *pause = BackoffPause { until: pause.until.min(now + FIRST_PAUSE), step: FIRST_PAUSE };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_error() -> Error {
        Error::invalid("away")
    }

    fn is_refused(backoff: &KeyBackoff, now: Instant, text: &str) -> bool {
        matches!(backoff.admit(now), BackoffAdmission::Refused(error) if error.text() == text)
    }

    #[test]
    fn one_call_retries_at_intervals_growing_to_30_seconds() {
        let backoff = KeyBackoff::default();
        let mut now = Instant::now();
        assert!(matches!(backoff.admit(now), BackoffAdmission::NoBackoff));
        for step in [1, 2, 4, 8, 16, 30, 30] {
            backoff.record_failure(now, &token_error());
            assert!(is_refused(&backoff, now + Duration::from_millis(step * 1000 - 1), "away"), "{step}");
            now += Duration::from_secs(step);
            assert!(matches!(backoff.admit(now), BackoffAdmission::Retry), "{step}");
            assert!(is_refused(&backoff, now, "away"), "{step}");
        }
        backoff.record_success();
        assert!(matches!(backoff.admit(now), BackoffAdmission::NoBackoff));
    }

    #[test]
    fn refused_caller_gets_the_error_of_the_last_lookup() {
        let backoff = KeyBackoff::default();
        let now = Instant::now();
        assert!(!backoff.record_failure(now, &token_error()), "it has never worked");
        backoff.record_failure(now, &Error::invalid("the key is missing"));
        assert!(is_refused(&backoff, now, "the key is missing"));
        backoff.record_success();
        assert!(backoff.record_failure(now, &token_error()) && !backoff.record_failure(now, &token_error()));
        assert!(is_refused(&backoff, now, "away"));
    }

    #[test]
    fn reinitialization_backoff_is_shared_by_keys_of_a_library() {
        let backoff = ReinitializationBackoff::default();
        let start = Instant::now();
        let admitted = |from: u64, to: u64| {
            let seconds = from..to;
            // Nine callers ask for permission every second.
            seconds
                .filter(|second| (0..9).filter(|_| backoff.admit(start + Duration::from_secs(*second))).count() == 1)
                .collect::<Vec<u64>>()
        };
        assert_eq!(admitted(0, 100), [0, 1, 3, 7, 15, 31, 61, 91]);
        backoff.retry_now(start + Duration::from_secs(100));
        assert_eq!(admitted(100, 110), [101, 103, 107]);
    }
}
