//! Times of certificates and CRLs (RFC 5280 4.1.2.5): UTCTime for the years 1950 to 2049, otherwise GeneralizedTime,
//! in whole seconds and UTC.

use time::{Date, Month, OffsetDateTime, UtcOffset};

use super::reader::{DerError, DerReader, DerResult};
use super::writer::{DerWriter, GENERALIZED_TIME, UTC_TIME};
use crate::clock::Time;

/// 9999-12-31T23:59:59Z, the latest GeneralizedTime, which means "no well-defined expiration" (RFC 5280 4.1.2.5); epoch
/// seconds.
pub const MAX_EPOCH_SECONDS: i64 = 253_402_300_799;

/// 0001-01-01T00:00:00Z in epoch seconds. Some certificate readers do not support the year 0.
const MIN_EPOCH_SECONDS: i64 = -62_135_596_800;

/// 1950-01-01T00:00:00Z in epoch seconds, the earliest UTCTime and the earliest time that RFC 5280 4.1.2.5 provides
/// for.
pub const MIN_UTC_EPOCH_SECONDS: i64 = -631_152_000;

/// Converts epoch seconds to a time, clamped to the supported range.
pub fn from_epoch(seconds: i64) -> Time {
    OffsetDateTime::from_unix_timestamp(seconds.clamp(MIN_EPOCH_SECONDS, MAX_EPOCH_SECONDS))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Appends `at`, truncated to seconds, as UTCTime or GeneralizedTime, depending on the year.
pub(crate) fn write(w: &mut DerWriter, at: Time) {
    let (text, year) = format_digits(at);
    if is_utc(year) {
        w.tlv(UTC_TIME, &text[2..]);
    } else {
        w.tlv(GENERALIZED_TIME, &text);
    }
}

/// Appends `at` as GeneralizedTime for any year, as invalidityDate requires (RFC 5280 5.3.2).
pub(crate) fn write_generalized(w: &mut DerWriter, at: Time) {
    w.tlv(GENERALIZED_TIME, &format_digits(at).0);
}

fn is_utc(year: i32) -> bool {
    (1950..2050).contains(&year)
}

/// The text of an encoded time, in two parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeText {
    /// `true` for a UTCTime, which omits the first two digits.
    pub(crate) is_utc: bool,
    /// `YYYYMMDD`.
    pub(crate) date: [u8; 8],
    /// `HHMMSSZ` and one unused byte.
    pub(crate) clock: [u8; 8],
}

/// Formats times. Consecutive times on the same day share the date conversion.
#[derive(Default)]
pub(crate) struct TimeFormatter {
    /// The last formatted day (in days since 1970), its date text, and `true` if it is in the range of UTCTime.
    last: Option<(i64, [u8; 8], bool)>,
}

impl TimeFormatter {
    /// Formats epoch seconds, clamped to the supported range.
    pub(crate) fn format(&mut self, seconds: i64) -> TimeText {
        let seconds = seconds.clamp(MIN_EPOCH_SECONDS, MAX_EPOCH_SECONDS);
        let day = seconds.div_euclid(SECONDS_PER_DAY);
        let (date, is_utc) = match self.last {
            Some((last, date, is_utc)) if last == day => (date, is_utc),
            _ => {
                let ([date @ .., _, _, _, _, _, _, _], year) = format_digits(from_epoch(seconds));
                self.last = Some((day, date, is_utc(year)));
                (date, is_utc(year))
            }
        };
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY) as u32;
        let fields = [of_day / 3600, of_day / 60 % 60, of_day % 60];
        // The digits are computed in one machine word and stored at once.
        let [hour, minute, second] =
            fields.map(|field| u64::from(b'0') * 0x101 + u64::from((field / 10) | ((field % 10) << 8)));
        let clock = hour | minute << 16 | second << 32 | u64::from(b'Z') << 48;
        TimeText { is_utc, date, clock: clock.to_le_bytes() }
    }
}

const SECONDS_PER_DAY: i64 = 86_400;

/// Returns `YYYYMMDDHHMMSSZ` and the year.
fn format_digits(at: Time) -> ([u8; 15], i32) {
    let at = at.to_offset(UtcOffset::UTC);
    let (year, month, day) = at.to_calendar_date();
    let year = year.clamp(0, 9999);
    let century = (year / 100) as u8;
    let fields = [century, (year % 100) as u8, u8::from(month), day, at.hour(), at.minute(), at.second()];
    let mut text = [b'Z'; 15];
    for (i, field) in fields.into_iter().enumerate() {
        text[2 * i] = b'0' + field / 10;
        text[2 * i + 1] = b'0' + field % 10;
    }
    (text, year)
}

/// Reads a UTCTime or GeneralizedTime of the year 1 or later, and returns epoch seconds.
pub(crate) fn read(reader: &mut DerReader<'_>) -> DerResult<i64> {
    let value = reader.any()?;
    parse(value.tag, value.content)
}

/// Reads the next value if it is a time.
pub(crate) fn read_optional(reader: &mut DerReader<'_>) -> DerResult<Option<i64>> {
    let is_time = matches!(reader.next_tag(), Some(UTC_TIME | GENERALIZED_TIME));
    is_time.then(|| read(reader)).transpose()
}

/// Like [`read`], for a value with this universal tag and this content.
pub(crate) fn parse(tag: u8, content: &[u8]) -> DerResult<i64> {
    let (year, rest) = match (tag, content.len()) {
        (UTC_TIME, 13) => {
            let year = i32::from(parse_two_digits(&content[..2])?);
            // RFC 5280 4.1.2.5.1: 50 and above means 19YY.
            (if year >= 50 { 1900 + year } else { 2000 + year }, &content[2..])
        }
        (GENERALIZED_TIME, 15) => {
            let century = i32::from(parse_two_digits(&content[..2])?);
            (century * 100 + i32::from(parse_two_digits(&content[2..4])?), &content[4..])
        }
        _ => return Err(MALFORMED_TIME),
    };
    if rest[10] != b'Z' {
        return Err(MALFORMED_TIME);
    }
    let month = Month::try_from(parse_two_digits(&rest[..2])?).map_err(|_| MALFORMED_TIME)?;
    let date = Date::from_calendar_date(year, month, parse_two_digits(&rest[2..4])?).map_err(|_| MALFORMED_TIME)?;
    let at = date
        .with_hms(parse_two_digits(&rest[4..6])?, parse_two_digits(&rest[6..8])?, parse_two_digits(&rest[8..10])?)
        .map_err(|_| MALFORMED_TIME)?;
    let at = at.assume_utc().unix_timestamp();
    if at < MIN_EPOCH_SECONDS { Err(DerError("the year 0000 is not supported")) } else { Ok(at) }
}

const MALFORMED_TIME: DerError = DerError("a time must be YYMMDDHHMMSSZ or YYYYMMDDHHMMSSZ (RFC 5280 4.1.2.5)");

fn parse_two_digits(digits: &[u8]) -> DerResult<u8> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Ok((a - b'0') * 10 + (b - b'0')),
        _ => Err(MALFORMED_TIME),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn encoded(at: Time) -> Vec<u8> {
        let mut w = DerWriter::default();
        write(&mut w, at);
        w.finish()
    }

    #[test]
    fn time_type_depends_on_the_year() {
        let cases: [(Time, &[u8]); 6] = [
            (datetime!(1949-12-31 23:59:59 UTC), b"\x18\x0f19491231235959Z"),
            (datetime!(1950-01-01 0:00 UTC), b"\x17\x0d500101000000Z"),
            (datetime!(2049-12-31 23:59:59.9 UTC), b"\x17\x0d491231235959Z"),
            (datetime!(2050-01-01 0:00 UTC), b"\x18\x0f20500101000000Z"),
            (datetime!(9999-12-31 23:59:59 UTC), b"\x18\x0f99991231235959Z"),
            (datetime!(2024-02-29 1:30 +2), b"\x17\x0d240228233000Z"),
        ];
        for (at, expected) in cases {
            assert_eq!(encoded(at), expected, "{at}");
        }
        assert_eq!(encoded(from_epoch(i64::MAX)), b"\x18\x0f99991231235959Z");
    }

    #[test]
    fn malformed_times_are_refused() {
        for der in [
            &b"\x17\x0b2402290000Z"[..],
            b"\x17\x0d240230000000Z",
            b"\x17\x0d24022900000AZ",
            b"\x17\x0d2402290000001",
            b"\x18\x1120240229000000+1",
            b"\x18\x1120240229000000.Z",
            b"\x16\x0d240229000000Z",
            b"\x17\x0d240229006060Z",
        ] {
            assert!(read(&mut DerReader::new(der)).is_err(), "{}", String::from_utf8_lossy(der));
        }
    }

    #[test]
    fn times_before_the_year_1_are_refused() {
        assert_eq!(read(&mut DerReader::new(b"\x18\x0f00010101000000Z")), Ok(MIN_EPOCH_SECONDS));
        let before = read(&mut DerReader::new(b"\x18\x0f00001231235959Z")).unwrap_err();
        assert!(before.0.contains("year 0000"), "{}", before.0);
        assert_eq!(encoded(from_epoch(i64::MIN)), b"\x18\x0f00010101000000Z");
        assert_eq!(encoded(from_epoch(MIN_UTC_EPOCH_SECONDS)), b"\x17\x0d500101000000Z");
    }

    proptest! {
        #[test]
        fn times_read_back(seconds in MIN_EPOCH_SECONDS..=MAX_EPOCH_SECONDS) {
            prop_assert_eq!(read(&mut DerReader::new(&encoded(from_epoch(seconds)))), Ok(seconds));
        }

        #[test]
        fn time_formatter_agrees_with_single_times(
            first in any::<i64>(), steps in proptest::collection::vec(-200_000_i64..200_000, 0..40)
        ) {
            let mut times = TimeFormatter::default();
            let mut at = first;
            for step in std::iter::once(0).chain(steps) {
                at = at.saturating_add(step);
                let (text, year) = format_digits(from_epoch(at));
                let found = times.format(at);
                prop_assert_eq!([&found.date[..], &found.clock[..7]].concat(), text);
                prop_assert_eq!(found.is_utc, is_utc(year));
            }
        }

        #[test]
        fn time_of_any_bytes_does_not_panic(der in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = read(&mut DerReader::new(&der));
        }
    }
}
