//! A DER writer (ITU-T X.690). It appends to one buffer and patches lengths afterwards, so that encoding a certificate
//! costs one allocation. It does not validate its input.

/// BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// INTEGER.
pub const INTEGER: u8 = 0x02;
/// BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// NULL.
pub const NULL: u8 = 0x05;
/// OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// ENUMERATED.
pub const ENUMERATED: u8 = 0x0a;
/// UTF8String.
pub const UTF8_STRING: u8 = 0x0c;
/// NumericString.
pub const NUMERIC_STRING: u8 = 0x12;
/// PrintableString.
pub const PRINTABLE_STRING: u8 = 0x13;
/// TeletexString.
pub const TELETEX_STRING: u8 = 0x14;
/// IA5String.
pub const IA5_STRING: u8 = 0x16;
/// UTCTime.
pub const UTC_TIME: u8 = 0x17;
/// GeneralizedTime.
pub const GENERALIZED_TIME: u8 = 0x18;
/// VisibleString.
pub const VISIBLE_STRING: u8 = 0x1a;
/// UniversalString.
pub const UNIVERSAL_STRING: u8 = 0x1c;
/// BMPString.
pub const BMP_STRING: u8 = 0x1e;
/// The bit of a tag that marks a constructed value.
pub const CONSTRUCTED: u8 = 0x20;
/// SEQUENCE and SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;
/// SET and SET OF.
pub const SET: u8 = 0x31;

/// Returns the context-specific tag `[n]` of a primitive value.
pub const fn context(n: u8) -> u8 {
    0x80 | n
}

/// Returns the context-specific tag `[n]` of a constructed value, which EXPLICIT tags always have.
pub const fn context_constructed(n: u8) -> u8 {
    0xa0 | n
}

/// A buffer with DER under construction.
#[derive(Default)]
pub struct DerWriter(Vec<u8>);

impl DerWriter {
    /// Creates a writer with a capacity in bytes.
    pub fn with_capacity(octets: usize) -> Self {
        Self(Vec::with_capacity(octets))
    }

    /// Appends bytes that are already DER-encoded.
    pub fn raw(&mut self, der: &[u8]) {
        self.0.extend_from_slice(der);
    }

    /// Appends the tag and length of a value. The caller appends the `len` content bytes next.
    pub fn header(&mut self, tag: u8, len: usize) {
        self.0.push(tag);
        if len < 0x80 {
            self.0.push(len as u8);
        } else {
            let octets = len.to_be_bytes();
            let used = &octets[len.leading_zeros() as usize / 8..];
            self.0.push(0x80 | used.len() as u8);
            self.0.extend_from_slice(used);
        }
    }

    /// Appends a value with this tag and content.
    pub fn tlv(&mut self, tag: u8, content: &[u8]) {
        self.header(tag, content.len());
        self.raw(content);
    }

    /// Appends a value whose content `body` writes. Content above 127 bytes is moved afterwards to make room for a
    /// longer length; for very long content use [`DerWriter::header`].
    pub fn nest(&mut self, tag: u8, body: impl FnOnce(&mut Self)) {
        let start = self.0.len() + 2;
        self.0.extend_from_slice(&[tag, 0]);
        body(self);
        let end = self.0.len();
        let len = end - start;
        if len < 0x80 {
            self.0[start - 1] = len as u8;
            return;
        }
        let octets = len.to_be_bytes();
        let used = &octets[len.leading_zeros() as usize / 8..];
        self.0.resize(end + used.len(), 0);
        self.0.copy_within(start..end, start + used.len());
        self.0[start - 1] = 0x80 | used.len() as u8;
        self.0[start..start + used.len()].copy_from_slice(used);
    }

    /// Appends `[n] EXPLICIT` around one value, whose content `body` writes.
    pub fn explicit(&mut self, n: u8, tag: u8, body: impl FnOnce(&mut Self)) {
        self.nest(context_constructed(n), |w| w.nest(tag, body));
    }

    /// Appends an INTEGER from an unsigned big-endian number. Superfluous leading zeros are dropped, and one is added
    /// if the sign bit would be set.
    pub fn unsigned(&mut self, octets: &[u8]) {
        let start = octets.iter().position(|&b| b != 0).unwrap_or(octets.len());
        let octets = &octets[start..];
        let pad = octets.first().is_none_or(|&b| b >= 0x80);
        self.header(INTEGER, octets.len() + usize::from(pad));
        if pad {
            self.0.push(0);
        }
        self.raw(octets);
    }

    /// Appends an INTEGER.
    pub fn integer(&mut self, value: u64) {
        self.unsigned(&value.to_be_bytes());
    }

    /// Appends an OBJECT IDENTIFIER from its content bytes.
    pub fn oid(&mut self, content: &[u8]) {
        self.tlv(OID, content);
    }

    /// Appends a BIT STRING of whole bytes.
    pub fn bit_string(&mut self, octets: &[u8]) {
        self.header(BIT_STRING, octets.len() + 1);
        self.0.push(0);
        self.raw(octets);
    }

    /// Returns the written bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Returns the total length in bytes of an encoded value with this content length.
pub fn tlv_len(content: usize) -> usize {
    let length_octets = if content < 0x80 { 1 } else { 1 + size_of::<usize>() - content.leading_zeros() as usize / 8 };
    1 + length_octets + content
}

/// Returns an encoded value whose content `body` writes.
pub fn build(tag: u8, capacity: usize, body: impl FnOnce(&mut DerWriter)) -> Vec<u8> {
    let mut writer = DerWriter::with_capacity(capacity);
    writer.nest(tag, body);
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nest_header_and_tlv_len_agree_on_lengths() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let content = vec![7; len];
            let nested = build(SEQUENCE, 0, |w| w.raw(&content));
            let mut headed = DerWriter::default();
            headed.tlv(SEQUENCE, &content);
            assert_eq!(nested, headed.finish(), "{len}");
            assert_eq!(nested.len(), tlv_len(len), "{len}");
        }
    }

    #[test]
    fn integers_are_minimal_and_never_negative() {
        let cases: [(u64, &[u8]); 5] =
            [(0, &[2, 1, 0]), (1, &[2, 1, 1]), (127, &[2, 1, 127]), (128, &[2, 2, 0, 128]), (0x0100, &[2, 2, 1, 0])];
        for (value, expected) in cases {
            let mut w = DerWriter::default();
            w.integer(value);
            assert_eq!(w.finish(), expected, "{value}");
        }
    }
}
