//! A strict, zero-copy DER reader (ITU-T X.690). All results are slices of the input.
//!
//! It rejects indefinite and non-minimal lengths, multi-byte tags, non-minimal integers, BOOLEANs other than 0x00 and
//! 0xFF, and truncated content. It does not recurse, so nested input cannot exhaust the stack.

use super::writer::{
    BIT_STRING, BMP_STRING, BOOLEAN, CONSTRUCTED, ENUMERATED, INTEGER, NULL, OCTET_STRING, OID, SEQUENCE, SET,
    UNIVERSAL_STRING, context_constructed,
};
use crate::error::Error;

/// A violated encoding rule, without the name of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerError(pub &'static str);

impl DerError {
    /// Converts the violation to an `Invalid` error that names `field`.
    pub fn into_error(self, field: &str) -> Error {
        Error::invalid(format!("{field}: {}", self.0))
    }
}

/// The result of reading DER.
pub type DerResult<T> = Result<T, DerError>;

/// One DER value: tag, content, and encoding.
#[derive(Clone, Copy, Debug)]
pub struct Tlv<'a> {
    /// The tag byte, with class and constructed bit.
    pub tag: u8,
    /// The content bytes.
    pub content: &'a [u8],
    /// Tag, length and content.
    pub raw: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Returns a reader of the content.
    pub fn reader(&self) -> DerReader<'a> {
        DerReader::new(self.content)
    }
}

/// A reader of consecutive DER values.
#[derive(Clone, Copy)]
pub struct DerReader<'a> {
    rest: &'a [u8],
}

impl<'a> DerReader<'a> {
    /// Creates a reader of concatenated values.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Reads the only value of `der`, which must have this tag.
    pub fn read_single(der: &'a [u8], tag: u8) -> DerResult<Tlv<'a>> {
        Self::read_to_end(der, |reader| reader.expect(tag))
    }

    /// Calls `read` on a reader of `der`; rejects data that `read` leaves unread.
    pub fn read_to_end<T>(der: &'a [u8], read: impl FnOnce(&mut Self) -> DerResult<T>) -> DerResult<T> {
        let mut reader = Self::new(der);
        let value = read(&mut reader)?;
        reader.done()?;
        Ok(value)
    }

    /// `true` if all data was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Rejects unread data.
    pub fn done(self) -> DerResult<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DerError("trailing data after the DER structure")) }
    }

    /// Reads the next value, of any tag.
    pub fn any(&mut self) -> DerResult<Tlv<'a>> {
        let (&tag, after_tag) = self.rest.split_first().ok_or(TRUNCATED_DER)?;
        if tag & 0x1f == 0x1f {
            return Err(DerError("multi-octet DER tags are not supported"));
        }
        let (len, after_len) = read_length(after_tag)?;
        if after_len.len() < len {
            return Err(TRUNCATED_DER);
        }
        let header = self.rest.len() - after_len.len();
        let (raw, rest) = self.rest.split_at(header + len);
        self.rest = rest;
        Ok(Tlv { tag, content: &raw[header..], raw })
    }

    /// Reads a tag and a length without requiring the content. Returns the length and a reader of the remaining data.
    pub fn open(der: &'a [u8], tag: u8) -> DerResult<(usize, Self)> {
        let rest = match der {
            [first, rest @ ..] if *first == tag => rest,
            _ => return Err(DerError("unexpected DER tag")),
        };
        let (len, rest) = read_length(rest)?;
        Ok((len, Self::new(rest)))
    }

    /// The unread data.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next value, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> DerResult<Tlv<'a>> {
        match self.optional(tag)? {
            Some(value) => Ok(value),
            None if self.rest.is_empty() => Err(TRUNCATED_DER),
            None => Err(DerError("unexpected DER tag")),
        }
    }

    /// Reads the next value if it has this tag.
    pub fn optional(&mut self, tag: u8) -> DerResult<Option<Tlv<'a>>> {
        if self.next_tag() == Some(tag) { self.any().map(Some) } else { Ok(None) }
    }

    /// The tag of the next value; `None` at the end.
    pub fn next_tag(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads `[n] EXPLICIT` with one value of this tag, if it is next.
    pub fn optional_explicit(&mut self, n: u8, tag: u8) -> DerResult<Option<Tlv<'a>>> {
        self.optional(context_constructed(n))?.map(|explicit| Self::read_single(explicit.content, tag)).transpose()
    }

    /// Reads a SEQUENCE and returns a reader of its content.
    pub fn sequence(&mut self) -> DerResult<DerReader<'a>> {
        Ok(self.expect(SEQUENCE)?.reader())
    }

    /// Reads an OBJECT IDENTIFIER and returns its content bytes.
    pub fn oid(&mut self) -> DerResult<&'a [u8]> {
        let content = self.expect(OID)?.content;
        check_oid(content)?;
        Ok(content)
    }

    /// Reads a non-negative INTEGER and returns its bytes without leading zeros (one zero byte for zero).
    pub fn unsigned(&mut self) -> DerResult<&'a [u8]> {
        match self.expect(INTEGER)?.content {
            [] => Err(DerError("empty INTEGER")),
            [0] => Ok(&[0]),
            [0, rest @ ..] if rest[0] >= 0x80 => Ok(rest),
            [0, ..] => Err(DerError("INTEGER is not minimal")),
            [first, ..] if *first >= 0x80 => Err(DerError("INTEGER is negative")),
            content => Ok(content),
        }
    }

    /// Reads an INTEGER in `0..=u32::MAX`.
    pub fn read_u32(&mut self) -> DerResult<u32> {
        let value = to_u64(self.unsigned()?).and_then(|value| value.try_into().ok());
        value.ok_or(DerError("INTEGER is too large"))
    }

    /// Reads the next value if it is a BOOLEAN.
    pub fn optional_boolean(&mut self) -> DerResult<Option<bool>> {
        self.optional_flag(BOOLEAN)
    }

    /// Reads the next value if it is a BOOLEAN with this implicit tag.
    pub fn optional_flag(&mut self, tag: u8) -> DerResult<Option<bool>> {
        match self.optional(tag)?.map(|v| v.content) {
            None => Ok(None),
            Some([0]) => Ok(Some(false)),
            Some([0xff]) => Ok(Some(true)),
            Some(_) => Err(DerError("BOOLEAN must be 0x00 or 0xFF in DER")),
        }
    }

    /// Reads a BIT STRING of whole bytes.
    pub fn bit_string(&mut self) -> DerResult<&'a [u8]> {
        match self.expect(BIT_STRING)?.content {
            [0, octets @ ..] => Ok(octets),
            _ => Err(DerError("BIT STRING must contain whole octets")),
        }
    }

    /// Reads an OCTET STRING.
    pub fn octet_string(&mut self) -> DerResult<&'a [u8]> {
        Ok(self.expect(OCTET_STRING)?.content)
    }
}

const TRUNCATED_DER: DerError = DerError("truncated DER");

/// Reads the length of a value and returns it with the remaining data.
fn read_length(octets: &[u8]) -> DerResult<(usize, &[u8])> {
    let (&first, octets) = octets.split_first().ok_or(TRUNCATED_DER)?;
    let count = match first {
        0x80 => return Err(DerError("indefinite length is not DER")),
        0..0x80 => return Ok((usize::from(first), octets)),
        _ => usize::from(first & 0x7f),
    };
    // Four length bytes allow 4 GiB, which is more than any limit on input.
    if count > 4 || octets.len() < count {
        return Err(TRUNCATED_DER);
    }
    let (length, rest) = octets.split_at(count);
    let value = length.iter().fold(0_usize, |n, &b| n << 8 | usize::from(b));
    if length[0] == 0 || value < 0x80 {
        return Err(DerError("DER length is not minimal"));
    }
    Ok((value, rest))
}

/// Returns the value of an unsigned big-endian number without leading zeros; `None` above 64 bits.
pub fn to_u64(octets: &[u8]) -> Option<u64> {
    (octets.len() <= size_of::<u64>()).then(|| octets.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// Checks the content of an OBJECT IDENTIFIER: complete, minimal sub-identifiers (X.690 8.19.2).
pub fn check_oid(content: &[u8]) -> DerResult<()> {
    let whole = content.last().is_some_and(|&b| b < 0x80);
    let minimal = content.first() != Some(&0x80) && content.windows(2).all(|w| w[0] >= 0x80 || w[1] != 0x80);
    if whole && minimal { Ok(()) } else { Err(DerError("malformed OBJECT IDENTIFIER")) }
}

/// Maximum nesting depth of a value of unknown type.
const MAX_DER_NESTING: usize = 32;

/// Checks that a value of unknown type is DER at all levels: lengths, no segmented strings (X.690 10.2), and the
/// content of universal types that have a canonical form.
///
/// # Errors
/// The violated rule.
pub(crate) fn check_der(value: &[u8]) -> DerResult<()> {
    let mut open = vec![DerReader::new(value)];
    while let Some(innermost) = open.last_mut() {
        if innermost.is_empty() {
            open.pop();
            continue;
        }
        let value = innermost.any()?;
        check_universal_type(&value)?;
        if value.tag & CONSTRUCTED != 0 {
            if open.len() == MAX_DER_NESTING {
                return Err(DerError("values are nested deeper than 32"));
            }
            open.push(value.reader());
        }
    }
    Ok(())
}

fn check_universal_type(value: &Tlv<'_>) -> DerResult<()> {
    match (value.tag, value.content) {
        // 0x28 is EXTERNAL and 0x2b is EMBEDDED PDV.
        (SEQUENCE | SET | 0x28 | 0x2b, _) => Ok(()),
        (0x20..=0x3f, _) => Err(DerError("constructed strings are not allowed in DER (X.690 10.2)")),
        (0x10 | 0x11, _) => Err(DerError("a SEQUENCE or SET is not constructed (X.690 8.9)")),
        (0, _) => Err(DerError("unexpected DER tag")),
        (BOOLEAN, [0 | 0xff]) => Ok(()),
        (BOOLEAN, _) => Err(DerError("BOOLEAN must be 0x00 or 0xFF in DER")),
        (INTEGER | ENUMERATED, content) => check_integer(content),
        (NULL, [_, ..]) => Err(DerError("NULL must have no content")),
        (OID, content) => check_oid(content),
        (BIT_STRING, content) => check_bit_string(content),
        (BMP_STRING, content) if content.len() % 2 != 0 => {
            Err(DerError("a BMPString is cut within a character (X.690 8.23)"))
        }
        (UNIVERSAL_STRING, content) if content.len() % 4 != 0 => {
            Err(DerError("a UniversalString is cut within a character (X.690 8.23)"))
        }
        _ => Ok(()),
    }
}

/// Checks the content of an INTEGER of any sign.
pub(crate) fn check_integer(content: &[u8]) -> DerResult<()> {
    match content {
        [] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] => Err(DerError("INTEGER is not minimal")),
        _ => Ok(()),
    }
}

/// Checks the content of a BIT STRING: the number of unused bits (X.690 8.6.2), which must be zero (11.2.1).
pub(crate) fn check_bit_string(content: &[u8]) -> DerResult<()> {
    match content {
        [unused @ 0..=7, .., last] if last & ((1_u8 << unused) - 1) != 0 => {
            Err(DerError("unused bits are not zero (X.690 11.2.1)"))
        }
        [0] | [0..=7, _, ..] => Ok(()),
        _ => Err(DerError("malformed BIT STRING (X.690 8.6.2)")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn non_der_input_is_refused() {
        let cases: [(&str, &[u8]); 8] = [
            ("indefinite length", &[0x30, 0x80, 0, 0]),
            ("length not minimal, short form exists", &[0x04, 0x81, 1, 0]),
            ("length not minimal, leading zero", &[0x04, 0x82, 0, 0x80]),
            ("multi-octet tag", &[0x1f, 0x81, 1, 0]),
            ("content cut", &[0x04, 2, 0]),
            ("length cut", &[0x04, 0x82, 1]),
            ("tag alone", &[0x04]),
            ("nothing", &[]),
        ];
        for (name, der) in cases {
            assert!(DerReader::new(der).any().is_err(), "{name}");
        }
        assert_eq!(DerReader::read_single(&[0x30, 0, 0], 0x30).unwrap_err().0, "trailing data after the DER structure");
    }

    #[test]
    fn integers_are_read_strictly() {
        let read = |der: &'static [u8]| DerReader::new(der).unsigned();
        assert_eq!(read(&[2, 1, 0]), Ok(&[0][..]));
        assert_eq!(read(&[2, 2, 0, 0x80]), Ok(&[0x80][..]));
        assert!(read(&[2, 2, 0, 0x7f]).is_err());
        assert!(read(&[2, 1, 0x80]).is_err());
        assert!(read(&[2, 0]).is_err());
        assert_eq!(DerReader::new(&[2, 2, 1, 0]).read_u32(), Ok(256));
    }

    #[test]
    fn check_der_validates_nested_values() {
        let nested = |depth: usize| {
            (0..depth).fold(Vec::new(), |inner, _| crate::x509::writer::build(SEQUENCE, 0, |w| w.raw(&inner)))
        };
        for good in [
            &[5, 0][..],
            &[0x1e, 2, 0, b'a'],
            &[0x1c, 4, 0, 0, 0, b'a'],
            &[0x30, 3, 2, 1, 0xff],
            &[0xa0, 2, 0x81, 0],
            &[3, 2, 1, 0xfe],
            &nested(MAX_DER_NESTING - 1),
        ] {
            assert_eq!(check_der(good), Ok(()), "{good:?}");
        }
        for bad in [
            &[0x30, 1, 1][..],
            &[0x30, 2, 1, 0x80],
            &[0x2c, 3, 0x0c, 1, b'a'],
            &[0x30, 3, 1, 1, 1],
            &[0x30, 4, 2, 2, 0, 1],
            &[0x31, 3, 5, 1, 0],
            &[0x10, 0],
            &[3, 0],
            &[3, 2, 1, 1],
            &[3, 2, 8, 0],
            &[6, 1, 0x80],
            &[0x1e, 3, 0, b'a', 0],
            &[0x1c, 6, 0, 0, 0, b'a', 0, 0],
            &[0, 0],
            &nested(MAX_DER_NESTING + 1),
        ] {
            assert!(check_der(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn reader_of_any_bytes_does_not_panic(der in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_der(&der);
        }

        #[test]
        fn reader_raw_elements_rebuild_any_accepted_input(der in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = DerReader::new(&der);
            let mut rebuilt = Vec::new();
            while let Ok(value) = reader.any() {
                rebuilt.extend_from_slice(value.raw);
                prop_assert!(value.raw.ends_with(value.content));
            }
            prop_assert!(der.starts_with(&rebuilt));
        }
    }
}
