//! The clock as a parameter, and the parsing and formatting of durations.
//!
//! Everything that needs the time takes a [`Clock`]; tests use one that they move by hand.
//!
//! A clock may have a reference: the clock of a shared database. Expiry and dates are decided by the local clock, but
//! only while it agrees with the reference ([`Clock::require_synchronized`]). Between two comparisons with the database
//! ([`Clock::set_reference`]), the monotonic clock extrapolates the reference, so the next check detects a step of the
//! local clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;

use crate::error::{Error, Kind, Result};

/// A point in time, UTC, with nanosecond resolution.
pub type Time = time::OffsetDateTime;

/// The source of the current time. Clones share one clock.
#[derive(Clone, Default)]
pub struct Clock {
    manual: Option<Arc<Mutex<Time>>>,
    reference: Arc<ReferenceClock>,
}

/// The reference time at the last comparison with the database, and the accepted difference.
struct ReferenceClock {
    base_instant: Instant,
    /// The reference time at `base_instant`, in nanoseconds since the epoch; [`NO_REFERENCE`] without a reference.
    base_nanos: AtomicI64,
    /// Largest accepted difference between the local clock and its reference, in nanoseconds.
    limit_nanos: AtomicI64,
}

const NO_REFERENCE: i64 = i64::MIN;

impl Default for ReferenceClock {
    fn default() -> Self {
        Self { base_instant: Instant::now(), base_nanos: AtomicI64::new(NO_REFERENCE), limit_nanos: AtomicI64::new(0) }
    }
}

impl Clock {
    /// Creates a clock that shows the system's time.
    pub fn system() -> Self {
        Self::default()
    }

    /// Creates a clock that shows `now` until [`Clock::advance`] or [`Clock::set`] moves it.
    pub fn manual(now: Time) -> Self {
        Self { manual: Some(Arc::new(Mutex::new(now))), ..Self::default() }
    }

    /// Records that this clock was ahead of its reference by `ahead` when it showed `now`, a moment ago. `limit` is the
    /// largest accepted difference.
    pub fn set_reference(&self, now: Time, ahead: time::Duration, limit: Duration) {
        let base_nanos = (now - ahead).unix_timestamp_nanos() - nanoseconds(self.reference.base_instant.elapsed());
        let narrow = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
        self.reference.limit_nanos.store(narrow(nanoseconds(limit)), Ordering::Relaxed);
        self.reference.base_nanos.store(narrow(base_nanos), Ordering::Relaxed);
    }

    /// `true` if the clock has no reference, or `now` differs from the reference by at most the limit. `now` must be a
    /// time that this clock has just shown.
    fn is_near_reference(&self, now: Time) -> bool {
        let base_nanos = self.reference.base_nanos.load(Ordering::Relaxed);
        if base_nanos == NO_REFERENCE {
            return true;
        }
        let reference_nanos = i128::from(base_nanos) + nanoseconds(self.reference.base_instant.elapsed());
        let limit = self.reference.limit_nanos.load(Ordering::Relaxed);
        (now.unix_timestamp_nanos() - reference_nanos).abs() <= i128::from(limit)
    }

    /// `true` if this clock differs from its reference by at most the limit, or has no reference.
    pub fn is_synchronized(&self) -> bool {
        self.is_near_reference(self.now())
    }

    /// Checks that this clock is close enough to its reference to decide expiry and to date signed objects.
    ///
    /// # Errors
    /// `Unavailable` when the clock differs too much from its reference.
    pub fn require_synchronized(&self) -> Result<()> {
        self.synchronized_now().map(drop)
    }

    /// Returns the current time.
    #[expect(clippy::disallowed_methods, reason = "here the system is asked what time it is")]
    pub fn now(&self) -> Time {
        match &self.manual {
            None => Time::now_utc(),
            Some(at) => *at.lock().unwrap_or_else(|e| e.into_inner()),
        }
    }

    /// Returns the current time, for dating signed objects and removing expired ones.
    ///
    /// # Errors
    /// As [`Clock::require_synchronized`].
    pub fn synchronized_now(&self) -> Result<Time> {
        let now = self.now();
        self.is_near_reference(now).then_some(now).ok_or_else(clock_skew_error)
    }

    /// Moves a manual clock forward; no effect on the system clock.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Sets a manual clock; no effect on the system clock.
    pub fn set(&self, to: Time) {
        if let Some(at) = &self.manual {
            *at.lock().unwrap_or_else(|e| e.into_inner()) = to;
        }
    }
}

fn clock_skew_error() -> Error {
    Error::new(
        Kind::Unavailable,
        "clock: this node's clock differs too much from the database's; synchronize the node's clock",
    )
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// Formats a time as RFC 3339 in UTC. A zero fraction of a second is omitted.
pub fn format_rfc3339(at: Time) -> String {
    at.to_offset(time::UtcOffset::UTC).format(&Rfc3339).unwrap_or_default()
}

/// Appends a time to `out`, in the format of [`format_rfc3339`].
pub fn push_rfc3339(out: &mut Vec<u8>, at: Time) {
    // Writing to memory cannot fail.
    let _ = at.to_offset(time::UtcOffset::UTC).format_into(out, &Rfc3339);
}

/// Parses an RFC 3339 time with a zone; the error text names `field`.
pub fn parse_rfc3339(field: &str, text: &str) -> Result<Time> {
    Time::parse(text, &Rfc3339)
        .ok()
        // A time on the last day of the year 9999 may be out of range after the conversion to UTC.
        .and_then(|t| t.checked_to_offset(time::UtcOffset::UTC))
        .ok_or_else(|| Error::invalid(format!("{field}: not an RFC 3339 time with zone, such as 2030-01-02T03:04:05Z")))
}

/// Maximum length in bytes of a duration text that is stored as written.
pub const MAX_DURATION_TEXT_BYTES: usize = 64;

/// A duration as it was written, such as `72h` or `90`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(String);

impl DurationText {
    /// Returns `None` if the text is longer than [`MAX_DURATION_TEXT_BYTES`] bytes or [`parse_duration`] rejects it.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (text.len() <= MAX_DURATION_TEXT_BYTES && parse_duration(&text).is_some()).then_some(Self(text))
    }

    /// Returns the text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the duration that the text describes.
    pub fn duration(&self) -> Duration {
        // `new` accepts only texts that parse.
        parse_duration(&self.0).unwrap_or_default()
    }
}

/// Maximum duration in seconds: 10,000 years, which keeps later sums inside the range of [`Time`].
const MAX_DURATION_SECONDS: f64 = 315_576_000_000.0;

/// Parses a duration: `""` (zero), bare seconds (`"90"`), or a sum of numbers with the units `ns us µs ms s m h d w`
/// (`"1h30m"`, `"1.5h"`, `"1w"`). Returns `None` when the duration is malformed, negative or too long.
pub fn parse_duration(text: &str) -> Option<Duration> {
    try_parse_duration(text).ok()
}

/// Returns the rule that an invalid duration violates, for an error message: the maximum if the duration is too long,
/// otherwise `form`, the expected syntax.
pub fn violated_duration_rule<'a>(text: &str, form: &'a str) -> &'a str {
    if try_parse_duration(text) == Err(DurationError::TooLong) { "at most 10000 years (87660000h)" } else { form }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DurationError {
    Malformed,
    TooLong,
}

fn try_parse_duration(text: &str) -> std::result::Result<Duration, DurationError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Duration::ZERO);
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let seconds: u64 = text.parse().map_err(|_| DurationError::TooLong)?;
        return check_range(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut too_long = false;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurationError::Malformed)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        // A malformed term later in the text takes precedence over a term that is too long.
        match parse_term(number, unit) {
            Ok(term) => total = total.saturating_add(term),
            Err(DurationError::TooLong) => too_long = true,
            Err(DurationError::Malformed) => return Err(DurationError::Malformed),
        }
        rest = tail;
    }
    if too_long { Err(DurationError::TooLong) } else { check_range(total) }
}

fn check_range(duration: Duration) -> std::result::Result<Duration, DurationError> {
    if duration.as_secs_f64() <= MAX_DURATION_SECONDS { Ok(duration) } else { Err(DurationError::TooLong) }
}

fn parse_term(number: &str, unit: &str) -> std::result::Result<Duration, DurationError> {
    let unit_nanos: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 604_800_000_000_000,
        _ => return Err(DurationError::Malformed),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Malformed);
    }
    // Only digits are left, so a parse failure means overflow.
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DurationError::TooLong)? };
    let nanos = u128::from(whole) * u128::from(unit_nanos);
    // Nine digits give nanosecond resolution of a second; further digits are ignored.
    let digits: String = fraction.chars().take(9).collect();
    let fraction_nanos = if digits.is_empty() {
        0
    } else {
        digits.parse::<u128>().map_err(|_| DurationError::Malformed)? * u128::from(unit_nanos)
            / 10u128.pow(digits.len() as u32)
    };
    let nanos = nanos + fraction_nanos;
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Formats whole seconds in the largest of h, m and s that divides them: `6h`, `90m`, `45s`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => "0s".to_owned(),
        s if s % 3600 == 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse_duration_accepts_seconds_units_and_sums() {
        for (text, seconds) in [
            ("", 0),
            ("90", 90),
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5400),
            ("1d", 86400),
            ("72h", 259_200),
            ("1.5h", 5400),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    }

    #[test]
    fn duration_text_keeps_its_original_spelling() {
        for text in ["72h", "90", "", " 1h "] {
            assert_eq!(DurationText::new(text).unwrap().as_str(), text);
        }
        assert_eq!(DurationText::new("90").unwrap().duration(), Duration::from_secs(90));
        assert!(DurationText::new("soon").is_none() && DurationText::new("0".repeat(65)).is_none());
    }

    #[test]
    fn parse_duration_refuses_malformed_texts() {
        for text in ["-1s", "1x", "1.5", "h", "1h2", ".s", "1..5s", "1h-2m", "99999999999999999999h", "1 h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn duration_above_the_maximum_is_reported_as_too_long() {
        for text in ["99999999h", "315576000001", "99999999999999999999", "99999999999999999999h1s", "87660000h1s"] {
            assert_eq!(parse_duration(text), None, "{text}");
            assert_eq!(violated_duration_rule(text, "form"), "at most 10000 years (87660000h)", "{text}");
        }
        for text in ["99999999999999999999x", "99999999999999999999h1x", "99999999h-1s", "99999999999999999999h5", "-1"]
        {
            assert_eq!(violated_duration_rule(text, "form"), "form", "{text}");
        }
        assert_eq!(parse_duration("87660000h"), Some(Duration::from_secs(315_576_000_000)));
    }

    #[test]
    fn format_duration_uses_the_largest_unit_that_divides() {
        for (seconds, text) in [(21_600, "6h"), (5400, "90m"), (45, "45s"), (0, "0s"), (86_400, "24h")] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn parse_rfc3339_needs_a_zone_and_a_time_in_range() {
        assert!(parse_rfc3339("f", "9999-12-31T23:59:59Z").is_ok());
        for text in ["9999-12-31T23:59:59", "9999-12-31T23:59:59-01:00", "2030-01-02", ""] {
            assert!(parse_rfc3339("f", text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in "\\PC{0,40}|([0-9]{0,25}(\\.[0-9]{0,25})?(ns|us|µs|ms|s|m|h|d|x|-)?){0,4}") {
            if let Some(duration) = parse_duration(&text) {
                prop_assert!(duration.as_secs_f64() <= MAX_DURATION_SECONDS);
            }
            let _ = parse_rfc3339("f", &text);
        }

        #[test]
        fn formatted_time_parses_to_the_same_value(text in "[0-9+-]{1,5}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,12})?(Z|[+-][0-9]{2}:[0-9]{2})?", seconds in 0i64..253_402_300_800) {
            let _ = parse_rfc3339("f", &text);
            let at = Time::from_unix_timestamp(seconds).unwrap();
            prop_assert_eq!(parse_rfc3339("f", &format_rfc3339(at)).unwrap(), at);
        }

        #[test]
        fn duration_is_the_sum_of_its_terms(h in 0u64..10_000, m in 0u64..10_000, s in 0u64..10_000, ms in 0u64..10_000) {
            let sum = Duration::from_secs(h * 3600 + m * 60 + s) + Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format!("{h}h{m}m{s}s{ms}ms")), Some(sum));
        }

        #[test]
        fn formatted_duration_parses_to_the_same_value(seconds in 0u64..100_000_000) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
    }
}
