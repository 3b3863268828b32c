//! Computes the lifetime that a token is granted at creation and renewal.

use std::time::Duration;

use super::record::remaining_time;
use crate::clock::Time;
use crate::error::{Error, Result, Warnings};

/// Limits on the lifetime of one token. Zero means that the limit is not set.
pub(super) struct TtlLimits {
    /// Time at which the token was created; renewals do not change it.
    pub start: Time,
    pub mount_default: Duration,
    /// Maximum lifetime of the mount's tokens, or a shorter maximum that the role defines.
    pub mount_max: Duration,
    pub explicit_max: Duration,
    pub period: Duration,
}

/// A TTL that a token is granted, counted from now, and warnings about it.
pub(super) struct GrantedTtl {
    pub ttl: Duration,
    pub warnings: Warnings,
}

impl TtlLimits {
    /// Computes the TTL that a token is granted at `now` if the client requests the TTL `requested`; zero requests the
    /// default.
    ///
    /// # Errors
    /// `Invalid` if the TTL or the remaining lifetime is less than a second, because responses would show it as 0,
    /// which means unlimited.
    pub(super) fn grant(&self, now: Time, requested: Duration) -> Result<GrantedTtl> {
        let mut warnings = Warnings::default();
        let (mut ttl, longest) = if self.period.is_zero() {
            let max = if self.explicit_max.is_zero() { self.mount_max } else { self.mount_max.min(self.explicit_max) };
            (if requested.is_zero() { self.mount_default } else { requested }, Some(max))
        } else {
            (self.period, (!self.explicit_max.is_zero()).then_some(self.explicit_max))
        };
        if !self.period.is_zero() && self.period > self.mount_max {
            ttl = self.mount_max;
            warnings.add(capped_warning("period", self.period, self.mount_max));
        }
        if ttl < Duration::from_secs(1) {
            let what = if self.period.is_zero() { "ttl" } else { "period" };
            return Err(Error::invalid(format!("{what}: must be at least 1s")));
        }
        if let Some(longest) = longest {
            let left = remaining_time(saturating_add(self.start, longest), now);
            if left < Duration::from_secs(1) {
                return Err(Error::invalid("past the max TTL, cannot renew"));
            }
            if ttl > left {
                warnings.add(capped_warning("TTL", ttl, longest));
                ttl = left;
            }
        }
        Ok(GrantedTtl { ttl, warnings })
    }
}

/// Returns `at` plus `by`, limited to the latest representable time.
pub(super) fn saturating_add(at: Time, by: Duration) -> Time {
    at.saturating_add(time::Duration::try_from(by).unwrap_or(time::Duration::MAX))
}

/// Returns the lesser of two durations; zero means that a duration is not set.
pub(super) fn lesser_duration(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || (other < one && !other.is_zero()) { other } else { one }
}

fn capped_warning(what: &str, value: Duration, max: Duration) -> String {
    let value = format_duration(value);
    let max = format_duration(max);
    format!("{what} of \"{value}\" exceeded the effective max_ttl of \"{max}\"; {what} value is capped accordingly")
}

/// Renders a duration in hours, minutes and seconds, such as `768h`, `1h30m` or `45s`.
pub(super) fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    const START: Time = datetime!(2030-01-01 00:00 UTC);
    const HOUR: Duration = Duration::from_secs(3600);

    fn limits() -> TtlLimits {
        TtlLimits {
            start: START,
            mount_default: HOUR,
            mount_max: 10 * HOUR,
            explicit_max: Duration::ZERO,
            period: Duration::ZERO,
        }
    }

    #[test]
    fn ttl_below_one_second_is_refused() {
        let short = Duration::from_millis(999);
        let text = |limits: TtlLimits, requested| limits.grant(START, requested).err().map(|e| e.text().to_owned());
        let refused = text(limits(), short);
        assert_eq!(refused.as_deref(), Some("ttl: must be at least 1s"));
        let refused = text(TtlLimits { period: short, ..limits() }, HOUR);
        assert_eq!(refused.as_deref(), Some("period: must be at least 1s"));
        assert!(limits().grant(START, Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn requested_ttl_is_capped_by_the_remaining_time() {
        let grant = limits().grant(START, Duration::ZERO).unwrap();
        assert_eq!((grant.ttl, grant.warnings.len()), (HOUR, 0));
        let grant = limits().grant(START + 9 * HOUR, 2 * HOUR).unwrap();
        assert_eq!(grant.ttl, HOUR);
        let want = "TTL of \"2h\" exceeded the effective max_ttl of \"10h\"; TTL value is capped accordingly";
        assert_eq!(*grant.warnings, [want]);
        assert!(limits().grant(START + 10 * HOUR - Duration::from_millis(999), HOUR).is_err());
    }

    #[test]
    fn period_is_capped_only_by_explicit_max_ttl() {
        let mut periodic = TtlLimits { period: 2 * HOUR, ..limits() };
        assert_eq!(periodic.grant(START + 1000 * HOUR, HOUR).unwrap().ttl, 2 * HOUR);
        periodic.explicit_max = 3 * HOUR;
        assert_eq!(periodic.grant(START + 2 * HOUR, HOUR).unwrap().ttl, HOUR);
        assert!(periodic.grant(START + 3 * HOUR, HOUR).is_err());
        periodic.period = 11 * HOUR;
        periodic.explicit_max = Duration::ZERO;
        let grant = periodic.grant(START, HOUR).unwrap();
        assert_eq!(grant.ttl, 10 * HOUR);
        assert!(grant.warnings[0].starts_with("period of \"11h\" exceeded"));
    }

    #[test]
    fn format_duration_renders_hours_minutes_and_seconds() {
        for (seconds, text) in [(5400, "1h30m"), (2_764_800, "768h"), (61, "1m1s"), (0, "0s")] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn ttl_never_exceeds_its_cap_or_rounds_to_zero(
            age in 0u64..50_000_000, requested in 0u64..400_000_000_000, explicit in 0u64..400_000_000_000, period in 0u64..9_000_000
        ) {
            let seconds = Duration::from_secs;
            let limits = TtlLimits { explicit_max: seconds(explicit), period: seconds(period), mount_max: seconds(30_000_000), ..limits() };
            let now = START + seconds(age);
            if let Ok(grant) = limits.grant(now, seconds(requested)) {
                prop_assert!(grant.ttl >= seconds(1));
                if explicit > 0 {
                    prop_assert!(saturating_add(now, grant.ttl) <= saturating_add(START, seconds(explicit)));
                }
            }
        }
    }
}
