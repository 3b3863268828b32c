//! The health of an audit output.
//!
//! After a failure an output is *down*: entries are rejected, and the thread of the output tries to write a test line,
//! immediately and then every second. When such a write succeeds, the output is on *trial*: requests wait for it only
//! if no other device accepted their entries. Without the trial, a collector that accepts connections but reads nothing
//! would delay all requests at each of its failures. A failure soon after a trial makes the next trial longer.

use std::time::{Duration, Instant};

/// Delay between two attempts to write to an output that is down.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Initial duration of a trial.
const MIN_TRIAL_DURATION: Duration = Duration::from_secs(5);
/// Maximum duration of a trial.
const MAX_TRIAL_DURATION: Duration = Duration::from_secs(120);

/// The health of an output.
pub(super) struct DeviceHealth {
    state: DeviceHealthState,
    /// Duration of the current or next trial.
    trial_duration: Duration,
    /// End of the last successful trial.
    last_trial_end: Option<Instant>,
}

#[derive(Clone, Copy)]
enum DeviceHealthState {
    Up,
    Down { since: Instant, next: Instant },
    Trial { since: Instant, until: Instant },
}

/// The next task of the output's thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeviceHealthTask {
    /// Wait for this duration, or, if it is `None`, until the next failure.
    Nothing(Option<Duration>),
    Attempt,
    /// Log that the output accepts entries again, with the time since it failed.
    Recovered(Duration),
}

impl Default for DeviceHealth {
    fn default() -> Self {
        Self { state: DeviceHealthState::Up, trial_duration: MIN_TRIAL_DURATION, last_trial_end: None }
    }
}

impl DeviceHealth {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, DeviceHealthState::Up)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, DeviceHealthState::Down { .. })
    }

    /// Records a failure; returns `true` if it begins an outage and must be logged.
    pub(super) fn record_failure(&mut self, now: Instant) -> bool {
        let longer = (self.trial_duration * 2).min(MAX_TRIAL_DURATION);
        let is_new_outage = self.is_up();
        // The failure may concern a single write, so the first retry is immediate.
        let next = if is_new_outage { now } else { now + RETRY_INTERVAL };
        let since = match self.state {
            DeviceHealthState::Up => {
                let is_same =
                    self.last_trial_end.is_some_and(|at| now.saturating_duration_since(at) < MAX_TRIAL_DURATION);
                self.trial_duration = if is_same { longer } else { MIN_TRIAL_DURATION };
                now
            }
            DeviceHealthState::Trial { since, .. } => {
                self.trial_duration = longer;
                since
            }
            DeviceHealthState::Down { since, .. } => since,
        };
        self.state = DeviceHealthState::Down { since, next };
        is_new_outage
    }

    pub(super) fn record_success(&mut self, now: Instant) {
        if let DeviceHealthState::Down { since, .. } = self.state {
            self.state = DeviceHealthState::Trial { since, until: now + self.trial_duration };
        }
    }

    /// If the output is down, schedules the next attempt to write to it at `now`.
    pub(super) fn retry_now(&mut self, now: Instant) {
        if let DeviceHealthState::Down { next, .. } = &mut self.state {
            *next = now;
        }
    }

    pub(super) fn next_task(&mut self, now: Instant) -> DeviceHealthTask {
        match self.state {
            DeviceHealthState::Up => DeviceHealthTask::Nothing(None),
            DeviceHealthState::Down { next, .. } if next <= now => DeviceHealthTask::Attempt,
            DeviceHealthState::Trial { since, until } if until <= now => {
                (self.state, self.last_trial_end) = (DeviceHealthState::Up, Some(now));
                DeviceHealthTask::Recovered(now.saturating_duration_since(since))
            }
            DeviceHealthState::Down { next: end, .. } | DeviceHealthState::Trial { until: end, .. } => {
                DeviceHealthTask::Nothing(Some(end.saturating_duration_since(now)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failed_device_is_retried_each_second_and_up_after_a_trial() {
        let mut health = DeviceHealth::default();
        let start = Instant::now();
        assert_eq!((health.is_up(), health.next_task(start)), (true, DeviceHealthTask::Nothing(None)));
        assert!(health.record_failure(start) && health.is_down());
        assert_eq!(health.next_task(start), DeviceHealthTask::Attempt, "the first retry is immediate");
        assert!(!health.record_failure(start));
        assert_eq!(health.next_task(start), DeviceHealthTask::Nothing(Some(SECOND)));
        assert_eq!(health.next_task(start + SECOND), DeviceHealthTask::Attempt);
        assert!(!health.record_failure(start + 2 * SECOND), "an outage is logged once");
        assert_eq!(health.next_task(start + 3 * SECOND), DeviceHealthTask::Attempt);
        health.record_success(start + 3 * SECOND);
        assert!(!health.is_down() && !health.is_up());
        assert_eq!(health.next_task(start + 4 * SECOND), DeviceHealthTask::Nothing(Some(4 * SECOND)));
        assert_eq!(health.next_task(start + 8 * SECOND), DeviceHealthTask::Recovered(8 * SECOND));
        assert!(health.is_up());
    }

    #[test]
    fn flapping_device_gets_longer_trials_and_few_log_lines() {
        let mut health = DeviceHealth::default();
        let start = Instant::now();
        let mut logged = 0;
        for second in 0..3600 {
            let now = start + second * SECOND;
            match health.next_task(now) {
                DeviceHealthTask::Attempt => health.record_success(now),
                DeviceHealthTask::Recovered(_) => logged += 1,
                DeviceHealthTask::Nothing(_) => {}
            }
            // The device fails in every fourth second.
            if second % 4 == 3 {
                logged += u32::from(health.record_failure(now));
            }
        }
        assert_eq!(logged, 1);
        // The device fails every 20 seconds, so it works for longer than the minimum trial.
        let mut health = DeviceHealth::default();
        let mut fails = 0;
        for second in 0..3600 {
            let now = start + second * SECOND;
            match health.next_task(now) {
                DeviceHealthTask::Attempt => health.record_success(now),
                DeviceHealthTask::Recovered(_) | DeviceHealthTask::Nothing(_) => {}
            }
            if second % 20 == 19 {
                fails += u32::from(health.record_failure(now));
            }
        }
        assert!(fails < 4, "{fails}");
        // After a long time without failures, trials have their minimum duration again.
        let mut health = DeviceHealth::default();
        for round in 0..3 {
            let now = start + round * 1000 * SECOND;
            health.record_failure(now);
            health.record_success(now + SECOND);
            assert_eq!(health.next_task(now + SECOND), DeviceHealthTask::Nothing(Some(MIN_TRIAL_DURATION)));
            assert!(matches!(health.next_task(now + 7 * SECOND), DeviceHealthTask::Recovered(_)));
        }
    }

    #[test]
    fn reopened_device_is_retried_immediately() {
        let mut health = DeviceHealth::default();
        let start = Instant::now();
        health.retry_now(start);
        assert!(health.is_up());
        health.record_failure(start);
        health.retry_now(start);
        assert_eq!(health.next_task(start), DeviceHealthTask::Attempt);
    }
}
