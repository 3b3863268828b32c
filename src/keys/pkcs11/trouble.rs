//! When a token on which no session can be opened is tried again: by one call after 1 s, 2 s, 4 s … 30 s, while
//! all others are refused at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Whether the token of a key is out of reach, and until when nobody looks for it.
#[derive(Default)]
pub(super) struct Trouble(Mutex<Option<(Instant, Duration)>>);

/// What a call may do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Nothing is known to be wrong.
    Usual,
    /// This call looks whether the token is there again.
    Looks,
    Refused,
}

impl Trouble {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admit(&self, now: Instant) -> Admission {
        let mut state = self.lock();
        match *state {
            None => Admission::Usual,
            Some((until, _)) if now < until => Admission::Refused,
            Some((_, step)) => {
                let step = (step * 2).min(LONGEST);
                *state = Some((now + step, step));
                Admission::Looks
            }
        }
    }

    /// No session could be opened.
    pub(super) fn begin(&self, now: Instant) {
        self.lock().get_or_insert((now + FIRST, FIRST));
    }

    pub(super) fn end(&self) {
        *self.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_looks_after_steps_that_grow_to_half_a_minute() {
        let (trouble, mut now) = (Trouble::default(), Instant::now());
        assert_eq!(trouble.admit(now), Admission::Usual);
        for step in [1, 2, 4, 8, 16, 30, 30] {
            trouble.begin(now);
            assert_eq!(trouble.admit(now + Duration::from_millis(step * 1000 - 1)), Admission::Refused, "{step}");
            now += Duration::from_secs(step);
            assert_eq!(trouble.admit(now), Admission::Looks, "{step}");
            assert_eq!(trouble.admit(now), Admission::Refused, "{step}");
        }
        trouble.end();
        assert_eq!(trouble.admit(now), Admission::Usual);
    }
}
