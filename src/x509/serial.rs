//! Certificate serial numbers (RFC 5280 4.1.2.2): positive, at most 20 bytes.
//!
//! Other authorities have issued 20-byte numbers whose first bit is set, which take 21 bytes in DER. Such
//! certificates can still be revoked here.

use std::fmt;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};

const MAX_SERIAL_OCTETS: usize = 20;

/// A serial number: an unsigned big-endian integer without leading zeros (one zero byte for zero). Ordered by bytes,
/// as in storage.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial {
    octets: [u8; MAX_SERIAL_OCTETS],
    len: u8,
}

const TIME_PREFIX_BYTES: usize = 6;
/// The times that a time-based serial can start with, in milliseconds since 1970. Times from 2004 on have no leading
/// zero byte, so every serial has 20 bytes. Until 6429, the first bit is not set, so DER adds no byte.
const TIME_RANGE_MILLIS: RangeInclusive<u64> = 1 << 40..=(1 << 47) - 1;

impl Serial {
    /// Random bytes of a time-based serial. 112 bits exceed the 64 bits that CA/B BR 7.1 requires.
    pub const RANDOM_BYTES: usize = MAX_SERIAL_OCTETS - TIME_PREFIX_BYTES;

    /// A placeholder of maximum length, to validate requests; no certificate has this serial number.
    pub(crate) const PLACEHOLDER: Self = Self { octets: [1; MAX_SERIAL_OCTETS], len: MAX_SERIAL_OCTETS as u8 };

    /// Creates a serial from a time (milliseconds since 1970, clamped to the years 2004 to 6429) followed by `random`.
    pub fn time_based(millis: u64, random: [u8; Self::RANDOM_BYTES]) -> Self {
        let millis = millis.clamp(*TIME_RANGE_MILLIS.start(), *TIME_RANGE_MILLIS.end());
        let mut octets = [0; MAX_SERIAL_OCTETS];
        octets[..TIME_PREFIX_BYTES].copy_from_slice(&millis.to_be_bytes()[8 - TIME_PREFIX_BYTES..]);
        octets[TIME_PREFIX_BYTES..].copy_from_slice(&random);
        Self { octets, len: MAX_SERIAL_OCTETS as u8 }
    }

    /// Creates a uniformly random serial in `[1, 2^159)`: more than 64 bits of entropy (CA/B BR 7.1), positive in
    /// DER, at most 20 bytes.
    pub fn random() -> Self {
        loop {
            let mut octets: [u8; MAX_SERIAL_OCTETS] = crate::random::bytes();
            octets[0] &= 0x7f;
            if octets.iter().any(|&b| b != 0) {
                return Self::from_stripped(&octets);
            }
        }
    }

    /// Creates a serial from an unsigned big-endian integer.
    ///
    /// # Errors
    /// `Invalid` when empty or longer than 20 bytes without leading zeros.
    pub fn from_octets(octets: &[u8]) -> Result<Self> {
        let start = octets.iter().position(|&b| b != 0).unwrap_or(octets.len().saturating_sub(1));
        let octets = &octets[start..];
        if octets.is_empty() || octets.len() > MAX_SERIAL_OCTETS {
            return Err(Error::invalid("serial_number: must be 1 to 20 octets (RFC 5280 4.1.2.2)"));
        }
        Ok(Self::from_stripped(octets))
    }

    fn from_stripped(octets: &[u8]) -> Self {
        let start = octets.iter().position(|&b| b != 0).unwrap_or(octets.len() - 1);
        let kept = &octets[start..];
        let mut all = [0; MAX_SERIAL_OCTETS];
        all[..kept.len()].copy_from_slice(kept);
        Self { octets: all, len: kept.len() as u8 }
    }

    /// Parses a hexadecimal number, with or without `0x`: digits, or bytes separated by `:`, `-` or spaces.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        Self::from_octets(&parse_octets(text).ok_or_else(|| {
            Error::invalid("serial_number: must be a hexadecimal number, with or without ':' or '-' between octets")
        })?)
    }

    /// Returns the greatest serial whose text does not sort after `text`; `None` if every serial sorts after it.
    pub fn last_up_to(text: &str) -> Option<Self> {
        let mut octets = Vec::with_capacity(MAX_SERIAL_OCTETS);
        let mut prefix = String::new();
        while octets.len() < MAX_SERIAL_OCTETS {
            let colon = if prefix.is_empty() { "" } else { ":" };
            // Texts sort like the bytes that they encode. The first byte of a serial is not zero.
            let first = u8::from(octets.is_empty());
            let Some(octet) = (first..=u8::MAX).rev().find(|octet| *format!("{prefix}{colon}{octet:02x}") <= *text)
            else {
                break;
            };
            prefix = format!("{prefix}{colon}{octet:02x}");
            octets.push(octet);
        }
        Self::from_octets(&octets).ok()
    }

    /// The bytes without leading zeros.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// `true` if the serial takes more than 20 bytes in DER, the maximum in a certificate (RFC 5280 4.1.2.2).
    pub fn is_too_long(&self) -> bool {
        usize::from(self.len) == MAX_SERIAL_OCTETS && self.octets[0] >= 0x80
    }

    /// Returns the serial as 20 bytes, padded with zeros at the end, and its length without the padding.
    pub(super) fn padded(&self) -> (&[u8; MAX_SERIAL_OCTETS], usize) {
        (&self.octets, usize::from(self.len))
    }
}

/// Maximum length of a serial number's text, in bytes: 20 bytes with separators, and leading zeros.
pub(crate) const MAX_TEXT_BYTES: usize = 128;

fn parse_octets(text: &str) -> Option<Vec<u8>> {
    let digits = strip_hex_prefix(text.trim());
    if digits.len() > MAX_TEXT_BYTES {
        return None;
    }
    if !digits.contains(OCTET_SEPARATORS) {
        let padded = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
        return padded.as_bytes().chunks(2).map(parse_hex_octet).collect();
    }
    digits.split(OCTET_SEPARATORS).map(|pair| parse_hex_octet(pair.as_bytes())).collect()
}

const OCTET_SEPARATORS: [char; 3] = [':', '-', ' '];

pub(crate) fn strip_hex_prefix(text: &str) -> &str {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text)
}

fn parse_hex_octet(pair: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    match pair {
        [high, low] => Some((value(*high)? << 4 | value(*low)?) as u8),
        _ => None,
    }
}

impl PartialOrd for Serial {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Serial {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.octets().cmp(other.octets())
    }
}

/// Formats a serial as lower-case hex bytes separated by colons, as in every response.
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Writes the whole text in one call, because every response contains a serial.
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b':'; MAX_SERIAL_OCTETS * 3];
        for (i, octet) in self.octets().iter().enumerate() {
            text[i * 3] = HEX[usize::from(octet >> 4)];
            text[i * 3 + 1] = HEX[usize::from(octet & 15)];
        }
        f.write_str(std::str::from_utf8(&text[..self.octets().len() * 3 - 1]).unwrap_or_default())
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_texts_are_read_in_any_form() {
        let serial = Serial::parse("0A-ff-10").unwrap();
        assert_eq!(serial.to_string(), "0a:ff:10");
        for text in ["00:0a:ff:10", "0aff10", "0AFF10", "aff10", "0x0aff10", "0XAFF10", "0x0A:FF:10", " 0a ff 10 "] {
            assert_eq!(Serial::parse(text).unwrap(), serial, "{text}");
        }
    }

    #[test]
    fn invalid_serial_texts_are_refused() {
        for text in [
            "",
            "0x",
            "0x0x0a",
            "0a:f",
            "0a:",
            "0a:zz",
            "+1:02",
            "+1",
            "\u{e9}",
            &"0".repeat(129),
            &"01".repeat(21),
            &"01:".repeat(21)[..62],
        ] {
            assert!(Serial::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn last_serial_up_to_any_text_is_found() {
        let of = |text: &str| Serial::last_up_to(text).map(|serial| serial.to_string());
        let greatest = |begin: &str, octets: usize| Some(format!("{begin}{}", ":ff".repeat(octets)));
        for before_all in ["", "0", "00", "-", "!"] {
            assert_eq!(of(before_all), None, "{before_all}");
        }
        for behind_all in ["zz", "\u{e9}", "ff:zz", "fg"] {
            assert_eq!(of(behind_all), greatest("ff", 19), "{behind_all}");
        }
        assert_eq!(of("0a:ff"), Some("0a:ff".to_owned()));
        assert_eq!(of("0a:"), Some("0a".to_owned()));
        assert_eq!(of("0a:1"), greatest("0a:0f", 18));
        assert_eq!(of("0a-1"), Some("0a".to_owned()), "a hyphen sorts before a colon");
        assert_eq!(of("0A:ff"), greatest("09", 19), "capitals sort before small letters, digits before both");
    }

    #[test]
    fn random_serials_are_positive_in_der_and_differ() {
        let all: std::collections::HashSet<_> = (0..1000).map(|_| Serial::random()).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|s| s.octets().len() < 20 || s.octets()[0] < 0x80));
    }

    proptest::proptest! {
        #[test]
        fn last_serial_up_to_a_text_agrees_with_text_order(text in "[0-9a-f:zA-]{0,12}", octets in proptest::collection::vec(0u8.., 1..6)) {
            let serial = Serial::from_octets(&octets).unwrap();
            let above = Serial::last_up_to(&text).is_none_or(|last| serial > last);
            proptest::prop_assert!(serial == Serial::parse("00").unwrap() || above == (serial.to_string() > text));
        }
    }
}
