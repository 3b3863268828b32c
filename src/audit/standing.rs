//! The health of an audit output.
//!
//! After a failure an output is *down*: entries are rejected, and its thread tries it immediately and then every
//! second. When it accepts a line it is on *trial*: requests wait for it only if no other device has their entries. A
//! collector that accepts connections but reads nothing would otherwise delay all requests at each of its failures. A
//! failure soon after a trial makes the next trial longer.

use std::time::{Duration, Instant};

/// Delay between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// Duration of a trial, and its maximum.
const TRIAL: Duration = Duration::from_secs(5);
const LONGEST_TRIAL: Duration = Duration::from_secs(120);

/// The health of an output.
pub(super) struct Standing {
    now: Now,
    /// Duration of the current or next trial.
    trial: Duration,
    /// End of the last successful trial.
    trusted: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Now {
    Up,
    Down { since: Instant, next: Instant },
    Trial { since: Instant, until: Instant },
}

/// The next task of the thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing to do until this time has passed, if any.
    Nothing(Option<Duration>),
    Attempt,
    /// Log that it accepts entries again, with the time since it failed.
    Back(Duration),
}

impl Default for Standing {
    fn default() -> Self {
        Self { now: Now::Up, trial: TRIAL, trusted: None }
    }
}

impl Standing {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.now, Now::Up)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.now, Now::Down { .. })
    }

    /// Notes a failure; `true` if it must be logged.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let longer = (self.trial * 2).min(LONGEST_TRIAL);
        let is_news = self.is_up();
        // The failure may concern only that write, so the first attempt is immediate.
        let next = if is_news { now } else { now + AGAIN };
        let since = match self.now {
            Now::Up => {
                let is_same = self.trusted.is_some_and(|at| now.saturating_duration_since(at) < LONGEST_TRIAL);
                self.trial = if is_same { longer } else { TRIAL };
                now
            }
            Now::Trial { since, .. } => {
                self.trial = longer;
                since
            }
            Now::Down { since, .. } => since,
        };
        self.now = Now::Down { since, next };
        is_news
    }

    pub(super) fn took(&mut self, now: Instant) {
        if let Now::Down { since, .. } = self.now {
            self.now = Now::Trial { since, until: now + self.trial };
        }
    }

    /// Makes the next attempt immediate.
    pub(super) fn hurry(&mut self, now: Instant) {
        if let Now::Down { next, .. } = &mut self.now {
            *next = now;
        }
    }

    pub(super) fn due(&mut self, now: Instant) -> Due {
        match self.now {
            Now::Up => Due::Nothing(None),
            Now::Down { next, .. } if next <= now => Due::Attempt,
            Now::Trial { since, until } if until <= now => {
                (self.now, self.trusted) = (Now::Up, Some(now));
                Due::Back(now.saturating_duration_since(since))
            }
            Now::Down { next: end, .. } | Now::Trial { until: end, .. } => {
                Due::Nothing(Some(end.saturating_duration_since(now)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_failed_is_tried_each_second_and_trusted_after_a_trial() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        assert_eq!((standing.is_up(), standing.due(start)), (true, Due::Nothing(None)));
        assert!(standing.failed(start) && standing.is_down());
        assert_eq!(standing.due(start), Due::Attempt, "at once");
        assert!(!standing.failed(start));
        assert_eq!(standing.due(start), Due::Nothing(Some(SECOND)));
        assert_eq!(standing.due(start + SECOND), Due::Attempt);
        assert!(!standing.failed(start + 2 * SECOND), "it is said once");
        assert_eq!(standing.due(start + 3 * SECOND), Due::Attempt);
        standing.took(start + 3 * SECOND);
        assert!(!standing.is_down() && !standing.is_up());
        assert_eq!(standing.due(start + 4 * SECOND), Due::Nothing(Some(4 * SECOND)));
        assert_eq!(standing.due(start + 8 * SECOND), Due::Back(8 * SECOND));
        assert!(standing.is_up());
    }

    #[test]
    fn what_comes_and_goes_has_longer_trials_and_is_told_seldom() {
        let (mut standing, start, mut told) = (Standing::default(), Instant::now(), 0);
        for second in 0..3600 {
            let now = start + second * SECOND;
            match standing.due(now) {
                Due::Attempt => standing.took(now),
                Due::Back(_) => told += 1,
                Due::Nothing(_) => {}
            }
            // It works for three seconds at a time.
            if second % 4 == 3 {
                told += u32::from(standing.failed(now));
            }
        }
        assert_eq!(told, 1);
        // It works for longer than the shortest trial.
        let (mut standing, mut fails) = (Standing::default(), 0);
        for second in 0..3600 {
            let now = start + second * SECOND;
            match standing.due(now) {
                Due::Attempt => standing.took(now),
                Due::Back(_) | Due::Nothing(_) => {}
            }
            if second % 20 == 19 {
                fails += u32::from(standing.failed(now));
            }
        }
        assert!(fails < 4, "{fails}");
        // After a long healthy time trials are short again.
        let mut standing = Standing::default();
        for round in 0..3 {
            let now = start + round * 1000 * SECOND;
            standing.failed(now);
            standing.took(now + SECOND);
            assert_eq!(standing.due(now + SECOND), Due::Nothing(Some(TRIAL)));
            assert!(matches!(standing.due(now + 7 * SECOND), Due::Back(_)));
        }
    }

    #[test]
    fn one_that_is_opened_anew_is_tried_at_once() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        standing.hurry(start);
        assert!(standing.is_up());
        standing.failed(start);
        standing.hurry(start);
        assert_eq!(standing.due(start), Due::Attempt);
    }
}
