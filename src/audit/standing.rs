//! Whether what is written to takes entries.
//!
//! One that failed is *down*: nobody waits for it, and its thread tries it at once and then about each second. When it has
//! taken a line it is on *trial*, where it gets entries that are waited for only if no other device has them: a collector
//! that accepts connections and reads nothing takes whatever fits on the way, and each of its failures would hold everybody
//! for as long as a write may take. Who failed soon after a trial has a longer one the next time.

use std::time::{Duration, Instant};

/// How long after a failure there is another attempt.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a trial lasts, and how long at most.
const TRIAL: Duration = Duration::from_secs(5);
const LONGEST_TRIAL: Duration = Duration::from_secs(120);

/// How it stands with one device.
pub(super) struct Standing {
    now: Now,
    /// How long the next trial lasts, or the one that is on.
    trial: Duration,
    /// When the last trial ended well.
    trusted: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Now {
    Up,
    Down { since: Instant, next: Instant },
    Trial { since: Instant, until: Instant },
}

/// What the thread is to do for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, for so long if there is an end to that.
    Nothing(Option<Duration>),
    /// To try it.
    Attempt,
    /// To say that it takes entries again, which it has not done, or not for long, for so long.
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

    /// It failed; whether that is news.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let longer = (self.trial * 2).min(LONGEST_TRIAL);
        let is_news = self.is_up();
        // It may have been that one write.
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

    /// It took what it was tried with.
    pub(super) fn took(&mut self, now: Instant) {
        if let Now::Down { since, .. } = self.now {
            self.now = Now::Trial { since, until: now + self.trial };
        }
    }

    /// What is down is tried without further delay.
    pub(super) fn hurry(&mut self, now: Instant) {
        if let Now::Down { next, .. } = &mut self.now {
            *next = now;
        }
    }

    /// What is to be done.
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
            // It takes something for as long as three seconds.
            if second % 4 == 3 {
                told += u32::from(standing.failed(now));
            }
        }
        assert_eq!(told, 1);
        // Another one, which takes something for longer than a trial.
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
        // What was well for long enough begins anew.
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
