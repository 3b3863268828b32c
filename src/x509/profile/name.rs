//! Directory names (RFC 5280 4.1.2.4): subjects, and directoryName among GeneralNames.

use super::read_oid;
use crate::x509::name::{Attribute, MAX_NAME_ATTRIBUTES, is_printable};
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{
    BMP_STRING, IA5_STRING, NUMERIC_STRING, PRINTABLE_STRING, SEQUENCE, SET, TELETEX_STRING, UTF8_STRING,
};

/// Rejects a Name that is not DER or that some certificate readers do not support. The attributes of each RDN must be
/// sorted (X.690 11.6) and unique, and each value must be a valid string without control characters.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_directory_name(der: &[u8]) -> DerResult<()> {
    let mut rdns = DerReader::read_single(der, SEQUENCE)?.reader();
    let mut count = 0;
    while !rdns.is_empty() {
        let mut attributes = rdns.expect(SET)?.reader();
        if attributes.is_empty() {
            return Err(DerError("a RelativeDistinguishedName is empty"));
        }
        let mut before: &[u8] = &[];
        while !attributes.is_empty() {
            count += 1;
            if count > MAX_NAME_ATTRIBUTES {
                return Err(DerError("more than 1000 attributes in a name"));
            }
            let attribute = attributes.expect(SEQUENCE)?;
            if before >= attribute.raw {
                return Err(DerError("attributes of an RDN are out of order or repeated (X.690 11.6)"));
            }
            before = attribute.raw;
            let mut fields = attribute.reader();
            let oid = read_oid(&mut fields)?;
            let value = fields.any()?;
            fields.done()?;
            validate_string(value.tag, value.content)?;
            if value.content.is_empty() && must_not_be_empty(oid) {
                return Err(DerError("the value of an attribute is empty (RFC 5280 A.1)"));
            }
            if matches!(value.tag, IA5_STRING | NUMERIC_STRING) && is_directory_string(oid) {
                return Err(DerError("an attribute has the wrong string type (RFC 5280 A.1)"));
            }
        }
    }
    Ok(())
}

/// `true` if values of this attribute must not be empty (RFC 5280 A.1): those of X.520, emailAddress and userId.
fn must_not_be_empty(oid: &[u8]) -> bool {
    const ATTRIBUTES_OF_X520: &[u8] = &[0x55, 4];
    let others = [Attribute::EmailAddress, Attribute::UserId];
    oid.starts_with(ATTRIBUTES_OF_X520) || others.iter().any(|other| other.oid() == oid)
}

/// `true` for attributes of X.520 whose type is DirectoryString or PrintableString; the latter is one alternative of
/// DirectoryString (RFC 5280 A.1). Certificate readers do not decode an IA5String or NumericString in these attributes.
fn is_directory_string(oid: &[u8]) -> bool {
    // commonName to countryName, localityName to description, businessCategory, postalCode, name to
    // generationQualifier, dnQualifier, pseudonym, organizationIdentifier.
    matches!(oid, [0x55, 4, 3..=13 | 15 | 17 | 41..=44 | 46 | 65 | 97])
}

/// Validates a string of a type that every certificate reader supports (X.680 41): not UniversalString or
/// VisibleString, and only ASCII in a TeletexString.
pub(super) fn validate_string(tag: u8, content: &[u8]) -> DerResult<()> {
    const INVALID_CHARACTERS: DerError =
        DerError("a character string contains octets that its type does not allow (X.680 41)");
    let fits = match tag {
        PRINTABLE_STRING => content.iter().all(|&b| is_printable(b)),
        NUMERIC_STRING => content.iter().all(|&b| b.is_ascii_digit() || b == b' '),
        UTF8_STRING => return utf8_has_control(content).ok_or(INVALID_CHARACTERS).and_then(reject_control),
        IA5_STRING | TELETEX_STRING if content.is_ascii() => {
            return reject_control(content.iter().any(u8::is_ascii_control));
        }
        BMP_STRING => return bmp_has_control(content).ok_or(INVALID_CHARACTERS).and_then(reject_control),
        IA5_STRING | TELETEX_STRING => false,
        _ => return Err(DerError("a value has an unsupported string type (RFC 5280 4.1.2.4)")),
    };
    if fits { Ok(()) } else { Err(INVALID_CHARACTERS) }
}

fn reject_control(control: bool) -> DerResult<()> {
    if control { Err(DerError("a name contains control characters")) } else { Ok(()) }
}

/// Returns `true` if UTF-8 text contains control characters; `None` if the text is invalid.
fn utf8_has_control(content: &[u8]) -> Option<bool> {
    if content.is_ascii() {
        return Some(content.iter().any(u8::is_ascii_control));
    }
    std::str::from_utf8(content).ok().map(|text| text.contains(char::is_control))
}

/// Like [`utf8_has_control`], for a BMPString: 16-bit characters without surrogates and noncharacters (Unicode 23.7).
fn bmp_has_control(content: &[u8]) -> Option<bool> {
    let mut control = false;
    let (units, rest) = content.as_chunks::<2>();
    for unit in units {
        let unit = u16::from_be_bytes(*unit);
        if matches!(unit, 0xfdd0..=0xfdef | 0xfffe..) {
            return None;
        }
        control |= char::from_u32(u32::from(unit))?.is_control();
    }
    rest.is_empty().then_some(control)
}
