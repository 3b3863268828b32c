//! Distinguished names (RFC 5280 4.1.2.4): encoding of RDNs, and reading of attributes.
//!
//! RDNs can be encoded once and joined for each certificate. An issuer's name is copied without decoding.

use std::collections::HashSet;

use super::oid::oid_text;
use super::pieces::{Name, Rdns};
use super::reader::{DerError, DerReader, DerResult};
use super::writer::{
    BMP_STRING, DerWriter, IA5_STRING, NUMERIC_STRING, PRINTABLE_STRING, SEQUENCE, SET, TELETEX_STRING,
    UNIVERSAL_STRING, UTF8_STRING, VISIBLE_STRING, build,
};
use crate::error::Result;

/// Maximum number of attributes in the subject of a request, and of any name in a certificate to be signed.
pub const MAX_NAME_ATTRIBUTES: usize = 1000;

/// An attribute type of a distinguished name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// commonName, 2.5.4.3.
    CommonName,
    /// surname, 2.5.4.4.
    Surname,
    /// serialNumber of the subject, 2.5.4.5; not the certificate's serial number.
    SerialNumber,
    /// countryName, 2.5.4.6.
    Country,
    /// localityName, 2.5.4.7.
    Locality,
    /// stateOrProvinceName, 2.5.4.8.
    Province,
    /// streetAddress, 2.5.4.9.
    StreetAddress,
    /// organizationName, 2.5.4.10.
    Organization,
    /// organizationalUnitName, 2.5.4.11.
    OrganizationalUnit,
    /// title, 2.5.4.12.
    Title,
    /// postalCode, 2.5.4.17.
    PostalCode,
    /// givenName, 2.5.4.42.
    GivenName,
    /// userId, 0.9.2342.19200300.100.1.1 (RFC 4519 2.39).
    UserId,
    /// domainComponent, 0.9.2342.19200300.100.1.25 (RFC 4519 2.4); always IA5String.
    DomainComponent,
    /// emailAddress, 1.2.840.113549.1.9.1 (RFC 2985 5.2.1); always IA5String.
    EmailAddress,
}

impl Attribute {
    /// The attribute type's OID, DER content bytes.
    pub fn oid(self) -> &'static [u8] {
        ATTRIBUTE_TABLE[self as usize].1
    }

    /// The string type in which this server encodes a value.
    pub(crate) fn string_tag(self, value: &str) -> u8 {
        match self {
            Self::DomainComponent | Self::EmailAddress if value.is_ascii() => IA5_STRING,
            _ if value.bytes().all(is_printable) => PRINTABLE_STRING,
            _ => UTF8_STRING,
        }
    }
}

/// Attribute types in the order of [`Attribute`], each with its OID and its short name; the short name is empty if it
/// has none.
static ATTRIBUTE_TABLE: [(Attribute, &[u8], &str); 15] = [
    (Attribute::CommonName, &[0x55, 4, 3], "CN"),
    (Attribute::Surname, &[0x55, 4, 4], ""),
    (Attribute::SerialNumber, &[0x55, 4, 5], "SERIALNUMBER"),
    (Attribute::Country, &[0x55, 4, 6], "C"),
    (Attribute::Locality, &[0x55, 4, 7], "L"),
    (Attribute::Province, &[0x55, 4, 8], "ST"),
    (Attribute::StreetAddress, &[0x55, 4, 9], "STREET"),
    (Attribute::Organization, &[0x55, 4, 10], "O"),
    (Attribute::OrganizationalUnit, &[0x55, 4, 11], "OU"),
    (Attribute::Title, &[0x55, 4, 12], ""),
    (Attribute::PostalCode, &[0x55, 4, 17], "POSTALCODE"),
    (Attribute::GivenName, &[0x55, 4, 42], ""),
    (Attribute::UserId, &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (Attribute::DomainComponent, &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (Attribute::EmailAddress, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "EMAIL"),
];

/// `true` for characters of a PrintableString (X.680 41.4).
pub(crate) fn is_printable(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b)
}

/// Encodes one RelativeDistinguishedName with all `values`, each as PrintableString if possible, else as UTF8String.
/// Repeated and empty values are omitted. Several values are sorted as a DER SET OF requires. Without values the result
/// is empty.
pub fn rdn(attribute: Attribute, values: &[String]) -> Rdns {
    match values {
        [] => Rdns::default(),
        [value] if value.is_empty() => Rdns::default(),
        [value] => Rdns::encoded(build(SET, 2 * value.len().min(64) + 32, |w| write_attribute(w, attribute, value))),
        _ => encode_multi_value(attribute, values),
    }
}

/// Like [`rdn`], but if `separate` is set, each value becomes a RelativeDistinguishedName of its own, in order.
pub fn rdns(attribute: Attribute, values: &[String], separate: bool) -> Rdns {
    if !separate {
        return rdn(attribute, values);
    }
    let mut seen = HashSet::new();
    values.iter().filter(|value| seen.insert(*value)).map(|value| rdn(attribute, std::slice::from_ref(value))).collect()
}

fn write_attribute(w: &mut DerWriter, attribute: Attribute, value: &str) {
    w.nest(SEQUENCE, |w| {
        w.oid(attribute.oid());
        w.tlv(attribute.string_tag(value), value.as_bytes());
    });
}

fn encode_multi_value(attribute: Attribute, values: &[String]) -> Rdns {
    let mut encoded: Vec<Vec<u8>> = values
        .iter()
        .filter(|value| !value.is_empty())
        .map(|value| {
            let mut w = DerWriter::with_capacity(value.len() + 20);
            write_attribute(&mut w, attribute, value);
            w.finish()
        })
        .collect();
    // X.690 11.6: ascending order of the encodings.
    encoded.sort_unstable();
    encoded.dedup();
    if encoded.is_empty() {
        return Rdns::default();
    }
    let len = encoded.iter().map(Vec::len).sum::<usize>() + 4;
    Rdns::encoded(build(SET, len, |w| encoded.iter().for_each(|pair| w.raw(pair))))
}

/// Joins encoded RDNs to a complete Name.
pub fn name(rdns: &[&Rdns]) -> Name {
    join_encoded(rdns.iter().map(|rdns| rdns.as_der()))
}

fn join_encoded<'a>(rdns: impl Iterator<Item = &'a [u8]> + Clone) -> Name {
    let len = rdns.clone().map(<[u8]>::len).sum::<usize>() + 4;
    Name::encoded(build(SEQUENCE, len, |w| rdns.for_each(|rdns| w.raw(rdns))))
}

impl Name {
    /// Returns the name with RDNs appended. Its existing RDNs keep their bytes.
    ///
    /// # Errors
    /// Never: a name is always one SEQUENCE.
    pub fn with_rdns(&self, rdns: &Rdns) -> Result<Self> {
        let own = DerReader::read_single(self.as_der(), SEQUENCE).map_err(|e| e.into_error("subject"))?.content;
        Ok(join_encoded([own, rdns.as_der()].into_iter()))
    }

    /// Returns all values of `attribute`, in order.
    ///
    /// # Errors
    /// Those of [`values`].
    pub fn values(&self, attribute: Attribute) -> Result<Vec<String>> {
        values(self.as_der(), attribute)
    }

    /// The common name: the last one if there are several. An empty string if it is absent or unreadable.
    pub fn common_name(&self) -> String {
        self.values(Attribute::CommonName).ok().and_then(|mut all| all.pop()).unwrap_or_default()
    }

    /// `true` if the name has no RDN.
    pub fn is_empty(&self) -> bool {
        is_empty(self.as_der())
    }

    /// `true` if all attribute values of the name are empty; see [`has_no_text`].
    pub fn has_no_text(&self) -> bool {
        has_no_text(self.as_der())
    }

    /// Returns the types of the attributes whose values `other` lacks, without duplicates, formatted as in
    /// [`Name::display`]. The comparison ignores string types and surrounding white space.
    pub(crate) fn missing_in(&self, other: &Self) -> Vec<String> {
        if self.as_der() == other.as_der() {
            return Vec::new();
        }
        let text = |tag, content: &[u8]| -> DerResult<Vec<u8>> {
            Ok(decode_string(tag, content)?.map_or_else(|| content.to_vec(), |text| text.trim().as_bytes().to_vec()))
        };
        let mut present = HashSet::new();
        let mut missing = Vec::new();
        let read = for_each_attribute(other.as_der(), |oid, tag, content| {
            present.insert((oid.to_vec(), text(tag, content)?));
            Ok(())
        });
        let compared = for_each_attribute(self.as_der(), |oid, tag, content| {
            let attribute = (oid.to_vec(), text(tag, content)?);
            if !attribute.1.is_empty() && present.insert(attribute) {
                missing.push(short_name(oid));
            }
            Ok(())
        });
        // Both names were validated before. If one cannot be read nevertheless, no attribute is reported.
        if read.and(compared).is_err() {
            return Vec::new();
        }
        let mut seen = HashSet::new();
        missing.retain(|name| seen.insert(name.clone()));
        missing
    }

    /// `true` if an attribute value is empty.
    pub(crate) fn has_empty_value(&self) -> bool {
        let mut has_empty_value = false;
        let read = for_each_attribute(self.as_der(), |_, _, content| {
            has_empty_value |= content.is_empty();
            Ok(())
        });
        read.is_ok() && has_empty_value
    }

    /// Formats the name for messages and logs, in order: `C=DE, O=Example, CN=a.example`. Commas in values are
    /// escaped (RFC 4514 2.4); unreadable values become `?`.
    pub fn display(&self) -> String {
        let mut parts = Vec::new();
        let read = for_each_attribute(self.as_der(), |oid, tag, content| {
            let value = decode_string(tag, content).ok().flatten().unwrap_or_else(|| "?".into());
            let value: String = value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            parts.push(format!("{}={}", short_name(oid), value.replace('\\', "\\\\").replace(',', "\\,")));
            Ok(())
        });
        if read.is_err() {
            parts.push("?".into());
        }
        parts.join(", ")
    }
}

/// Returns all values of `attribute`, in order.
///
/// # Errors
/// `Invalid` when the name is not DER or a value of this attribute is not a readable string.
pub fn values(name_der: &[u8], attribute: Attribute) -> Result<Vec<String>> {
    let read = |(tag, content): (u8, Vec<u8>)| {
        decode_string(tag, &content)?.ok_or(DerError("an attribute value is not a character string"))
    };
    let all = tagged_values(name_der, attribute).and_then(|all| all.into_iter().map(read).collect());
    all.map_err(|e: DerError| e.into_error("subject"))
}

/// Returns all values of `attribute`, in order, each with its tag and content bytes.
pub(crate) fn tagged_values(name_der: &[u8], attribute: Attribute) -> DerResult<Vec<(u8, Vec<u8>)>> {
    let mut found = Vec::new();
    for_each_attribute(name_der, |oid, tag, content| {
        if oid == attribute.oid() {
            found.push((tag, content.to_vec()));
        }
        Ok(())
    })?;
    Ok(found)
}

/// `true` if the name has no RDN.
pub fn is_empty(name_der: &[u8]) -> bool {
    name_der == [SEQUENCE, 0]
}

/// `true` if all attribute values of the name are empty, or if the name is invalid.
pub fn has_no_text(name_der: &[u8]) -> bool {
    let mut has_character = false;
    let read = for_each_attribute(name_der, |_, _, content| {
        has_character |= !content.is_empty();
        Ok(())
    });
    read.is_err() || !has_character
}

/// A name in canonical form: equal for names that match by RFC 5280 7.1. An unreadable name matches only itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalName(CanonicalForm);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CanonicalForm {
    Readable(Vec<ComparableRdn>),
    Unreadable(Vec<u8>),
}

impl Name {
    /// Returns the canonical form.
    pub fn canonical(&self) -> CanonicalName {
        let readable = to_comparable(self.as_der(), CaseFolding::Unicode).map(CanonicalForm::Readable);
        CanonicalName(readable.unwrap_or_else(|_| CanonicalForm::Unreadable(self.as_der().to_vec())))
    }

    /// `true` if two names match by RFC 5280 7.1, ignoring string types, letter case and repeated spaces.
    pub fn matches(&self, other: &Self) -> bool {
        self == other || self.canonical() == other.canonical()
    }
}

/// The letters whose case is ignored when names are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseFolding {
    /// ASCII letters, to find names that every relying party considers equal.
    Ascii,
    /// Letters of all scripts, to find names that some relying party may consider equal.
    Unicode,
}

/// The attributes of one RDN: for each its type OID and its comparable value.
pub(crate) type ComparableRdn = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the name in a form that is equal for matching names (RFC 5280 7.1, simplified): for each RDN the
/// attributes sorted by type; strings in lower case with spaces compressed, other values unchanged.
///
/// # Errors
/// The violated DER rule.
pub(crate) fn to_comparable(name_der: &[u8], letters: CaseFolding) -> DerResult<Vec<ComparableRdn>> {
    let mut rdns = DerReader::read_single(name_der, SEQUENCE)?.reader();
    let mut all = Vec::new();
    while !rdns.is_empty() {
        let one = rdns.expect(SET)?.raw;
        let mut attributes = Vec::new();
        for_each_attribute(&build(SEQUENCE, one.len() + 4, |w| w.raw(one)), |oid, tag, content| {
            let value = match (decode_string(tag, content)?, letters) {
                (Some(text), CaseFolding::Unicode) => join_words(text.split_whitespace()).to_lowercase().into_bytes(),
                // NumericStrings stay unchanged, because not every relying party compares them as strings.
                (Some(text), CaseFolding::Ascii) if tag != NUMERIC_STRING => {
                    join_words(text.split_ascii_whitespace()).to_ascii_lowercase().into_bytes()
                }
                _ => [&[tag], content].concat(),
            };
            attributes.push((oid.to_vec(), value));
            Ok(())
        })?;
        attributes.sort();
        all.push(attributes);
    }
    Ok(all)
}

fn join_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// Rejects a name with more than [`MAX_NAME_ATTRIBUTES`] attributes, with a value that is invalid in its string type,
/// or with control characters. Values that are not strings are ignored.
pub(crate) fn check_strings(name_der: &[u8]) -> DerResult<()> {
    let mut count = 0;
    for_each_attribute(name_der, |_, tag, content| {
        count += 1;
        if count > MAX_NAME_ATTRIBUTES {
            return Err(DerError("more than 1000 attributes in a subject"));
        }
        if decode_string(tag, content)?.is_some_and(|text| text.contains(char::is_control)) {
            return Err(DerError("a subject value contains control characters"));
        }
        Ok(())
    })
}

fn for_each_attribute(name_der: &[u8], mut each: impl FnMut(&[u8], u8, &[u8]) -> DerResult<()>) -> DerResult<()> {
    let mut rdns = DerReader::read_single(name_der, SEQUENCE)?.reader();
    while !rdns.is_empty() {
        let mut rdn = rdns.expect(SET)?.reader();
        if rdn.is_empty() {
            return Err(DerError("a RelativeDistinguishedName is empty"));
        }
        while !rdn.is_empty() {
            let mut pair = rdn.sequence()?;
            let oid = pair.oid()?;
            let value = pair.any()?;
            pair.done()?;
            each(oid, value.tag, value.content)?;
        }
    }
    Ok(())
}

/// Decodes a string of any type that names use; `None` for other tags.
fn decode_string(tag: u8, content: &[u8]) -> DerResult<Option<String>> {
    const INVALID_CHARACTERS: DerError = DerError("a character string contains octets that its type does not allow");
    let ascii = |bytes: &[u8]| {
        if bytes.is_ascii() {
            String::from_utf8(bytes.to_vec()).map_err(|_| INVALID_CHARACTERS)
        } else {
            Err(INVALID_CHARACTERS)
        }
    };
    let text = match tag {
        UTF8_STRING => String::from_utf8(content.to_vec()).map_err(|_| INVALID_CHARACTERS),
        // In practice, PrintableStrings often contain characters that the type does not permit, such as '*', '@' and
        // '&'. So accept any ASCII character.
        NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => ascii(content),
        // CAs use TeletexString for Latin-1 text.
        TELETEX_STRING => Ok(content.iter().map(|&b| char::from(b)).collect()),
        UNIVERSAL_STRING if content.len().is_multiple_of(4) => content
            .chunks_exact(4)
            .map(|c| char::from_u32(u32::from_be_bytes([c[0], c[1], c[2], c[3]])).ok_or(INVALID_CHARACTERS))
            .collect(),
        BMP_STRING if content.len().is_multiple_of(2) => content
            .chunks_exact(2)
            .map(|c| char::from_u32(u32::from(u16::from_be_bytes([c[0], c[1]]))).ok_or(INVALID_CHARACTERS))
            .collect(),
        UNIVERSAL_STRING | BMP_STRING => Err(INVALID_CHARACTERS),
        _ => return Ok(None),
    };
    text.map(Some)
}

/// Returns the short name of an attribute type, or its dotted OID.
fn short_name(attribute: &[u8]) -> String {
    let known = ATTRIBUTE_TABLE.iter().find(|(_, oid, short)| *oid == attribute && !short.is_empty());
    known.map_or_else(|| oid_text(attribute), |(.., short)| (*short).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(values: &[&str]) -> Vec<String> {
        values.iter().map(|&v| v.to_owned()).collect()
    }

    #[test]
    fn string_type_is_printable_if_the_characters_allow_it() {
        let tag = |value: &str| {
            let one = rdn(Attribute::Organization, &list(&[value]));
            one.as_der()[9]
        };
        assert_eq!(tag("Example (Test), Inc. 1/2:'+-=?"), PRINTABLE_STRING);
        for value in ["a*b", "a@b", "a&b", "a_b", "bücher"] {
            assert_eq!(tag(value), UTF8_STRING, "{value}");
        }
    }

    #[test]
    fn values_of_one_type_form_a_der_ordered_set_of_unique_values() {
        let ou = rdn(Attribute::OrganizationalUnit, &list(&["bb", "a", "bb", "", "ü"]));
        let whole = name(&[&ou]);
        assert_eq!(whole.values(Attribute::OrganizationalUnit).unwrap(), list(&["a", "ü", "bb"]));
        assert_eq!(DerReader::read_single(ou.as_der(), SET).unwrap().raw, ou.as_der());
        assert_eq!(
            rdn(Attribute::OrganizationalUnit, &list(&["a", "a"])),
            rdn(Attribute::OrganizationalUnit, &list(&["a"]))
        );
    }

    #[test]
    fn attribute_table_is_in_the_order_of_the_enum() {
        for (at, (attribute, oid, _)) in ATTRIBUTE_TABLE.iter().enumerate() {
            assert_eq!((*attribute as usize, attribute.oid()), (at, *oid));
        }
    }

    #[test]
    fn rdn_without_values_is_empty() {
        assert!(rdn(Attribute::Country, &[]).is_empty());
        assert!(rdn(Attribute::Country, &list(&[""])).is_empty());
        assert!(rdn(Attribute::Country, &list(&["", ""])).is_empty());
        assert!(name(&[&Rdns::default(), &Rdns::default()]).is_empty());
        assert_eq!(name(&[]).common_name(), "");
    }

    #[test]
    fn name_has_text_if_a_value_has_characters() {
        let nothing = Rdns::encoded(build(SET, 0, |w| write_attribute(w, Attribute::CommonName, "")));
        let empty = |count| name(&vec![&nothing; count]);
        assert!(name(&[]).has_no_text() && empty(1).has_no_text() && empty(3).has_no_text() && has_no_text(b"x"));
        let said = rdn(Attribute::Organization, &list(&["a"]));
        assert!(!name(&[&said]).has_no_text());
        assert!(!empty(1).with_rdns(&said).unwrap().has_no_text());
        assert_eq!(empty(1).with_rdns(&said).unwrap(), name(&[&nothing, &said]));
    }

    #[test]
    fn name_attributes_are_limited_in_number() {
        let many = |count| name(&vec![&rdn(Attribute::UserId, &list(&["a"])); count]);
        assert!(check_strings(many(MAX_NAME_ATTRIBUTES).as_der()).is_ok());
        assert!(
            check_strings(many(MAX_NAME_ATTRIBUTES + 1).as_der())
                .unwrap_err()
                .0
                .contains(&MAX_NAME_ATTRIBUTES.to_string())
        );
    }

    #[test]
    fn legacy_string_types_are_read_exactly_or_refused() {
        let with = |tag: u8, content: &[u8]| {
            let pair = build(SEQUENCE, 0, |w| {
                w.oid(Attribute::CommonName.oid());
                w.tlv(tag, content);
            });
            name(&[&Rdns::encoded(build(SET, 0, |w| w.raw(&pair)))])
        };
        let read = |tag, content: &[u8]| with(tag, content).values(Attribute::CommonName).map(|mut v| v.remove(0));
        assert_eq!(read(0x14, b"b\xfccher").unwrap(), "bücher");
        assert_eq!(read(0x1e, &[0, b'a', 0, 0xfc]).unwrap(), "aü");
        assert_eq!(read(0x1c, &[0, 0, 0, b'a']).unwrap(), "a");
        assert!(read(0x1e, &[0xd8, 0]).is_err(), "surrogate");
        assert!(read(0x1e, &[0]).is_err(), "half a character");
        assert!(read(0x16, &[0xfc]).is_err(), "IA5String is ASCII");
        assert!(read(0x0c, &[0xfc]).is_err(), "not UTF-8");
        assert!(read(0x03, &[0, 1]).is_err(), "not a string");
        assert!(check_strings(with(0x03, &[0, 1]).as_der()).is_ok());
        assert!(check_strings(with(0x0c, b"a\0b").as_der()).is_err());
        assert!(check_strings(with(0x13, b"a\nb").as_der()).is_err());
        assert!(check_strings(with(0x1e, &[0, 0]).as_der()).is_err());
    }

    #[test]
    fn names_match_in_any_string_type_case_and_spacing() {
        let of = |tag: u8, content: &[u8]| {
            let pair = build(SEQUENCE, 0, |w| {
                w.oid(Attribute::Organization.oid());
                w.tlv(tag, content);
            });
            name(&[&Rdns::encoded(build(SET, 0, |w| w.raw(&pair)))])
        };
        let printable = of(PRINTABLE_STRING, b"Example  Org");
        for (tag, content) in
            [(UTF8_STRING, &b"Example Org"[..]), (UTF8_STRING, b" EXAMPLE ORG"), (0x14, b"example org")]
        {
            assert_ne!(printable, of(tag, content));
            assert!(printable.matches(&of(tag, content)), "{content:?}");
        }
        assert!(
            of(UTF8_STRING, "BÜCHER".as_bytes()).matches(&of(0x1e, &[0, 98, 0, 252, 0, 99, 0, 104, 0, 101, 0, 114]))
        );
        for other in [&b"ExampleOrg"[..], b"Example Org 2", b""] {
            assert!(!printable.matches(&of(UTF8_STRING, other)), "{other:?}");
        }
        let unreadable = of(UTF8_STRING, &[0xfc]);
        assert!(unreadable.matches(&unreadable) && !unreadable.matches(&of(UTF8_STRING, &[0xfd])));
    }

    #[test]
    fn last_common_name_is_returned() {
        let both = [rdn(Attribute::CommonName, &list(&["a"])), rdn(Attribute::CommonName, &list(&["b"]))];
        let whole = name(&[&both[0], &both[1]]);
        assert_eq!(whole.common_name(), "b");
        assert_eq!(whole.display(), "CN=a, CN=b");
    }

    proptest! {
        #[test]
        fn attribute_values_with_any_characters_round_trip(value in "\\PC{1,40}") {
            let whole = name(&[&rdn(Attribute::UserId, std::slice::from_ref(&value))]);
            prop_assert_eq!(whole.values(Attribute::UserId).unwrap(), vec![value]);
            prop_assert!(check_strings(whole.as_der()).is_ok());
        }

        #[test]
        fn name_of_any_bytes_does_not_panic(der in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = values(&der, Attribute::CommonName);
            let _ = check_strings(&der);
            let _ = Name::encoded(der).display();
        }
    }
}
