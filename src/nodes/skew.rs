//! Difference between this machine's clock and the database's.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use metrics::gauge;

use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::telemetry;

/// Maximum difference of the clocks at which a node serves requests.
pub const SKEW_LIMIT: Duration = Duration::from_secs(30);
/// Difference of the clocks above which a warning is logged.
const SKEW_WARNING_THRESHOLD: Duration = Duration::from_secs(5);

/// The last measured difference between this machine's clock and the database's.
pub(super) struct ClockSkew {
    clock: Clock,
    limit: Duration,
    /// Milliseconds by which this machine is ahead of the database.
    ahead: AtomicI64,
    warned: AtomicBool,
}

impl ClockSkew {
    pub(super) fn new(clock: Clock, limit: Duration) -> Self {
        Self { clock, limit, ahead: AtomicI64::new(0), warned: AtomicBool::new(false) }
    }

    /// Records a comparison: a request that ends now and took `took` (by a monotonic clock) returned the database's
    /// time `database_time`. If `database_time` lies between this machine's times at the start and the end of the
    /// request, the difference is 0.
    pub(super) fn measure(&self, took: Duration, database_time: Time) {
        let after = self.clock.now();
        let before = after - took;
        let ahead = if database_time < before {
            before - database_time
        } else if database_time > after {
            after - database_time
        } else {
            time::Duration::ZERO
        };
        let milliseconds = i64::try_from(ahead.whole_milliseconds()).unwrap_or(i64::MAX);
        self.ahead.store(milliseconds, Ordering::Relaxed);
        self.clock.set_reference(after, ahead, self.limit);
        gauge!(telemetry::CLOCK_SKEW_SECONDS).set(ahead.unsigned_abs().as_secs_f64());
        let large = ahead.unsigned_abs() > SKEW_WARNING_THRESHOLD;
        if large && !self.warned.load(Ordering::Relaxed) {
            tracing::warn!(
                ahead_seconds = ahead.as_seconds_f64(),
                "the clocks of this machine and of the database server differ; synchronize both: this machine's clock \
                 decides what has expired"
            );
        }
        self.warned.store(large, Ordering::Relaxed);
    }

    fn difference(&self) -> Duration {
        Duration::from_millis(self.ahead.load(Ordering::Relaxed).unsigned_abs())
    }

    pub(super) fn is_within_limit(&self) -> bool {
        self.difference() <= self.limit
    }

    /// Returns `true` if this machine's clock was changed since the last measurement, and its difference from the
    /// database's clock crossed the limit.
    pub(super) fn has_crossed_limit(&self) -> bool {
        self.is_within_limit() != self.clock.is_synchronized()
    }

    /// Checks that this machine's clock is close enough to the database's.
    ///
    /// # Errors
    /// `Unavailable` when it is not.
    pub(super) fn require_clocks_agree(&self) -> Result<()> {
        self.clock.require_synchronized()
    }

    pub(super) fn require_within_limit(&self) -> Result<()> {
        if self.is_within_limit() {
            return Ok(());
        }
        let word = if self.ahead.load(Ordering::Relaxed) > 0 { "ahead of" } else { "behind" };
        Err(Error::invalid(format!(
            "clock: this machine's clock is {} seconds {word} the database server's clock (limit: {} seconds); \
             synchronize both",
            self.difference().as_secs(),
            self.limit.as_secs()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    fn skew_of_clock_ahead_by(ahead: time::Duration) -> ClockSkew {
        let now = datetime!(2030-01-01 00:00 UTC);
        let skew = ClockSkew::new(Clock::manual(now), SKEW_LIMIT);
        skew.measure(Duration::ZERO, now - ahead);
        skew
    }

    #[test]
    fn clock_skew_within_the_limit_is_allowed_beyond_is_refused() {
        for seconds in [0, 29, 30, -30] {
            assert!(
                skew_of_clock_ahead_by(time::Duration::seconds(seconds)).require_within_limit().is_ok(),
                "{seconds}"
            );
        }
        for (seconds, says) in [(31, "31 seconds ahead of"), (-3600, "3600 seconds behind")] {
            let skew = skew_of_clock_ahead_by(time::Duration::seconds(seconds));
            assert!(!skew.is_within_limit());
            let error = skew.require_within_limit().unwrap_err();
            assert!(error.text().contains(says), "{error}");
        }
    }

    #[test]
    fn clock_step_is_detected_before_the_next_measurement() {
        let now = datetime!(2030-01-01 00:00 UTC);
        let clock = Clock::manual(now);
        assert!(clock.is_synchronized(), "nothing is known of another one");
        let skew = ClockSkew::new(clock.clone(), SKEW_LIMIT);
        skew.measure(Duration::ZERO, now);
        assert!(!skew.has_crossed_limit() && clock.require_synchronized().is_ok());
        for step in [time::Duration::days(1), time::Duration::days(-400), time::Duration::days(4000)] {
            clock.set(now + step);
            assert!(skew.has_crossed_limit() && clock.require_synchronized().is_err(), "{step}");
            skew.measure(Duration::ZERO, now);
            assert!(!skew.has_crossed_limit() && clock.require_synchronized().is_err(), "{step}");
            clock.set(now);
            assert!(skew.has_crossed_limit() && clock.require_synchronized().is_ok(), "{step}");
            skew.measure(Duration::ZERO, now);
        }
    }

    #[test]
    fn clock_set_during_a_request_is_measured_as_skew() {
        let now = datetime!(2030-01-01 00:00 UTC);
        let clock = Clock::manual(now);
        let skew = ClockSkew::new(clock.clone(), SKEW_LIMIT);
        clock.set(now + time::Duration::days(366));
        skew.measure(Duration::from_millis(2), now);
        assert!(!skew.is_within_limit() && !clock.is_synchronized());
    }

    #[test]
    fn clock_skew_within_the_request_duration_counts_as_zero() {
        let took = Duration::from_secs(300);
        let clock = Clock::manual(datetime!(2030-01-01 00:05 UTC));
        let skew = ClockSkew::new(clock, SKEW_LIMIT);
        skew.measure(took, datetime!(2030-01-01 00:02 UTC));
        assert!(skew.is_within_limit());
        skew.measure(took, datetime!(2029-12-31 23:00 UTC));
        assert!(!skew.is_within_limit());
    }
}
