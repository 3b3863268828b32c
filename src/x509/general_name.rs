//! GeneralNames (RFC 5280 4.2.1.6) in subject alternative names. They are written in a fixed order and validated when
//! read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::reader::{DerError, DerReader, DerResult};
use super::writer::{DerWriter, IA5_STRING, SEQUENCE, UTF8_STRING, context, context_constructed};

/// Maximum number of names in the subjectAltName of a request or of a certificate to be signed.
pub const MAX_ALT_NAMES: usize = 1000;
/// Maximum length of one alternative name, in bytes.
pub const MAX_ALT_NAME_BYTES: usize = 4096;

/// The names of a subjectAltName extension to be encoded. The names of each kind keep their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectAltNames {
    /// DNS names, in ASCII.
    pub dns: Vec<String>,
    /// Mailboxes, in ASCII.
    pub emails: Vec<String>,
    /// IP addresses. IPv4-mapped IPv6 addresses are written as IPv4.
    pub ips: Vec<IpAddr>,
    /// URIs, in ASCII.
    pub uris: Vec<String>,
    /// otherNames: type OID (DER content bytes) and text, encoded as a UTF8String unless the type requires another
    /// encoding.
    pub other: Vec<(Vec<u8>, String)>,
}

impl SubjectAltNames {
    /// `true` if there are no names.
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty()
            && self.emails.is_empty()
            && self.ips.is_empty()
            && self.uris.is_empty()
            && self.other.is_empty()
    }

    /// Writes the names: otherName, DNS, e-mail, IP, URI.
    pub(crate) fn write(&self, w: &mut DerWriter) {
        for (oid, value) in &self.other {
            w.nest(context_constructed(0), |w| {
                w.oid(oid);
                w.explicit(0, string_tag_of(oid), |w| w.raw(value.as_bytes()));
            });
        }
        self.dns.iter().for_each(|name| w.tlv(DNS_NAME, name.as_bytes()));
        self.emails.iter().for_each(|name| w.tlv(RFC822_NAME, name.as_bytes()));
        self.ips.iter().for_each(|ip| with_octets(*ip, |octets| w.tlv(IP_ADDRESS, octets)));
        self.uris.iter().for_each(|name| w.tlv(URI_NAME, name.as_bytes()));
    }
}

/// OID of the otherName SmtpUTF8Mailbox (RFC 9598), 1.3.6.1.5.5.7.8.9.
pub(crate) const SMTP_UTF8_MAILBOX: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 8, 9];
/// OID of the otherName SRVName (RFC 4985), 1.3.6.1.5.5.7.8.7.
pub(crate) const SRV_NAME: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 8, 7];
/// Tag of otherName.
pub(crate) const OTHER_NAME: u8 = context_constructed(0);
/// Tag of x400Address.
pub(crate) const X400_ADDRESS: u8 = context_constructed(3);
/// Tag of directoryName.
pub(crate) const DIRECTORY_NAME: u8 = context_constructed(4);
/// Tag of ediPartyName.
pub(crate) const EDI_PARTY_NAME: u8 = context_constructed(5);
/// Tag of registeredID.
pub(crate) const REGISTERED_ID: u8 = context(8);
/// Tag of rfc822Name.
pub(crate) const RFC822_NAME: u8 = context(1);
/// Tag of dNSName.
pub(crate) const DNS_NAME: u8 = context(2);
/// Tag of uniformResourceIdentifier.
pub(crate) const URI_NAME: u8 = context(6);
/// Tag of iPAddress.
pub(crate) const IP_ADDRESS: u8 = context(7);

/// `true` if a byte of a URI is unreserved, a sub-delim, `:` or `@` (RFC 3986 3.3), or `%`.
pub(crate) fn is_pchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&b)
}

/// Percent-encodes the bytes of `tail`, the part of a URI after the authority, that are not allowed there.
pub(crate) fn percent_encode(tail: &str) -> String {
    let mut out = String::with_capacity(tail.len());
    let mut in_fragment = false;
    for b in tail.bytes() {
        let opens_fragment = b == b'#' && !in_fragment;
        in_fragment |= opens_fragment;
        if is_pchar(b) || b == b'/' || b == b'?' || opens_fragment {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn with_octets(ip: IpAddr, each: impl FnOnce(&[u8])) {
    match ip.to_canonical() {
        IpAddr::V4(v4) => each(&v4.octets()),
        IpAddr::V6(v6) => each(&v6.octets()),
    }
}

/// Returns the IPv4 address of an IPv4-mapped IPv6 address (RFC 4291 2.5.5.2).
pub(crate) fn unmap_ipv4(octets: &[u8]) -> Option<[u8; 4]> {
    let octets = <[u8; 16]>::try_from(octets).ok()?;
    Ipv6Addr::from(octets).to_ipv4_mapped().map(|v4| v4.octets())
}

/// Returns the string type of an otherName of this type: IA5String for an SRVName (RFC 4985 2), else UTF8String.
fn string_tag_of(oid: &[u8]) -> u8 {
    if oid == SRV_NAME { IA5_STRING } else { UTF8_STRING }
}

/// The value of an otherName.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherNameValue {
    /// The value is a text.
    Text(String),
    /// The value is of any other type.
    Other,
}

/// The subject alternative names of a request or of a stored certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedSans {
    /// DNS names, unchanged.
    pub dns: Vec<String>,
    /// Mailboxes, unchanged.
    pub emails: Vec<String>,
    /// IP addresses. IPv4-mapped IPv6 addresses are converted to IPv4.
    pub ips: Vec<IpAddr>,
    /// URIs, unchanged.
    pub uris: Vec<String>,
    /// otherNames: type OID (DER content bytes) and value.
    pub other: Vec<(Vec<u8>, OtherNameValue)>,
    /// The first kind of name that no role can allow (directoryName, registeredID, x400Address or ediPartyName); `None`
    /// if there is no such name.
    pub unsupported_name_kind: Option<&'static str>,
}

impl ParsedSans {
    /// Reads the value of a subjectAltName extension.
    pub(crate) fn read(value: &[u8]) -> DerResult<Self> {
        let mut names = DerReader::read_single(value, SEQUENCE)?.reader();
        let mut sans = Self::default();
        while !names.is_empty() {
            let name = names.any()?;
            match name.tag {
                RFC822_NAME => sans.emails.push(read_ia5(name.content)?.to_owned()),
                DNS_NAME => sans.dns.push(read_ia5(name.content)?.to_owned()),
                URI_NAME => sans.uris.push(read_ia5(name.content)?.to_owned()),
                IP_ADDRESS => sans.ips.push(read_ip(name.content)?),
                OTHER_NAME => sans.other.push(read_other_name(name.reader())?),
                tag => {
                    let kind = unsupported_kind_name(tag)?;
                    sans.unsupported_name_kind.get_or_insert(kind);
                }
            }
        }
        Ok(sans)
    }
}

fn unsupported_kind_name(tag: u8) -> DerResult<&'static str> {
    match tag {
        X400_ADDRESS => Ok("x400Address"),
        DIRECTORY_NAME => Ok("directoryName"),
        EDI_PARTY_NAME => Ok("ediPartyName"),
        REGISTERED_ID => Ok("registeredID"),
        _ => Err(DerError("unknown kind of GeneralName")),
    }
}

/// Rejects more than [`MAX_ALT_NAMES`] names, or a name above [`MAX_ALT_NAME_BYTES`] bytes, without parsing the names.
///
/// # Errors
/// The limit, or the violated DER rule.
pub(crate) fn check_alt_names_size(value: &[u8]) -> DerResult<()> {
    let mut names = DerReader::read_single(value, SEQUENCE)?.reader();
    let mut count = 0;
    while !names.is_empty() {
        count += 1;
        if count > MAX_ALT_NAMES {
            return Err(DerError("more than 1000 subject alternative names"));
        }
        if names.any()?.content.len() > MAX_ALT_NAME_BYTES {
            return Err(DerError("a name is longer than 4096 octets"));
        }
    }
    Ok(())
}

/// Reads the content of an IA5String: ASCII without control characters.
pub(super) fn read_ia5(content: &[u8]) -> DerResult<&str> {
    let text = std::str::from_utf8(content).ok().filter(|text| text.is_ascii());
    let text = text.ok_or(DerError("a name of type IA5String contains octets above 0x7F"))?;
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err(DerError("a name contains control characters"));
    }
    Ok(text)
}

fn read_ip(content: &[u8]) -> DerResult<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(content) {
        return Ok(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    <[u8; 16]>::try_from(content)
        .map(|octets| IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
        .map_err(|_| DerError("an IP address must have 4 or 16 octets"))
}

fn read_other_name(mut name: DerReader<'_>) -> DerResult<(Vec<u8>, OtherNameValue)> {
    let oid = name.oid()?.to_vec();
    let explicit = name.expect(context_constructed(0))?;
    name.done()?;
    let value = DerReader::read_to_end(explicit.content, DerReader::any)?;
    if value.tag != string_tag_of(&oid) {
        return Ok((oid, OtherNameValue::Other));
    }
    let text = String::from_utf8(value.content.to_vec()).map_err(|_| DerError("an otherName is not UTF-8"))?;
    if text.contains(char::is_control) {
        return Err(DerError("a name contains control characters"));
    }
    Ok((oid, OtherNameValue::Text(text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::writer::build;

    fn sans(body: impl FnOnce(&mut DerWriter)) -> DerResult<ParsedSans> {
        ParsedSans::read(&build(SEQUENCE, 0, body))
    }

    #[test]
    fn alt_names_are_written_in_fixed_order_and_read_back() {
        let names = SubjectAltNames {
            dns: vec!["b.example".into(), "a.example".into()],
            emails: vec!["a@example".into()],
            ips: vec!["1.2.3.4".parse().unwrap(), "::1".parse().unwrap(), "::ffff:9.8.7.6".parse().unwrap()],
            uris: vec!["spiffe://a/b".into()],
            other: vec![(vec![0x2a, 3], "wert ü".into())],
        };
        let der = build(SEQUENCE, 0, |w| names.write(w));
        let mut tags = Vec::new();
        let mut reader = DerReader::read_single(&der, SEQUENCE).unwrap().reader();
        while let Ok(name) = reader.any() {
            tags.push((name.tag, name.content.len()));
        }
        assert_eq!(tags.iter().map(|t| t.0).collect::<Vec<_>>(), [0xa0, 0x82, 0x82, 0x81, 0x87, 0x87, 0x87, 0x86]);
        assert_eq!(tags[4..7].iter().map(|t| t.1).collect::<Vec<_>>(), [4, 16, 4]);
        let read = ParsedSans::read(&der).unwrap();
        assert_eq!((&read.dns, &read.emails, &read.uris), (&names.dns, &names.emails, &names.uris));
        assert_eq!(read.ips[2], "9.8.7.6".parse::<IpAddr>().unwrap());
        assert_eq!(read.other, [(vec![0x2a, 3], OtherNameValue::Text("wert ü".into()))]);
    }

    #[test]
    fn alt_names_with_invalid_characters_are_refused() {
        for tag in [DNS_NAME, RFC822_NAME, URI_NAME] {
            for content in [&b"a\xffb"[..], b"a\0b", b"a\nb", b"\x7f"] {
                assert!(sans(|w| w.tlv(tag, content)).is_err(), "{tag:#x} {content:?}");
            }
        }
        assert!(sans(|w| w.tlv(IP_ADDRESS, &[1, 2, 3])).is_err());
        assert!(sans(|w| w.tlv(context(9), &[1])).is_err());
    }

    #[test]
    fn unsupported_alt_name_kinds_are_reported() {
        let read = sans(|w| {
            w.tlv(0xa4, &[0x30, 0]);
            w.tlv(0x88, &[0x2a, 3]);
            w.nest(0xa0, |w| {
                w.oid(&[0x2a, 4]);
                w.nest(0xa0, |w| w.tlv(0x16, b"ia5"));
            });
        });
        let read = read.unwrap();
        assert_eq!(read.other, [(vec![0x2a, 4], OtherNameValue::Other)]);
        assert!(read.dns.is_empty());
        assert_eq!(read.unsupported_name_kind, Some("directoryName"));
        assert_eq!(sans(|w| w.tlv(0x82, b"a")).unwrap().unsupported_name_kind, None);
    }

    #[test]
    fn ipv4_mapped_ipv6_addresses_are_unmapped() {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(unmap_ipv4(&octets("::ffff:10.0.0.1")), Some([10, 0, 0, 1]));
        for other in ["::10.0.0.1", "::1", "64:ff9b::10.0.0.1", "2001:db8::ffff:a00:1"] {
            assert_eq!(unmap_ipv4(&octets(other)), None, "{other}");
        }
        assert_eq!(unmap_ipv4(&[10, 0, 0, 1]), None);
    }

    #[test]
    fn alt_names_are_limited_in_number_and_length() {
        let many = |count: usize, len: usize| {
            build(SEQUENCE, 0, |w| (0..count).for_each(|_| w.tlv(DNS_NAME, &vec![b'a'; len])))
        };
        assert!(
            check_alt_names_size(&many(MAX_ALT_NAMES, 1)).is_ok()
                && check_alt_names_size(&many(2, MAX_ALT_NAME_BYTES)).is_ok()
        );
        assert!(check_alt_names_size(&many(MAX_ALT_NAMES + 1, 1)).unwrap_err().0.contains(&MAX_ALT_NAMES.to_string()));
        assert!(
            check_alt_names_size(&many(1, MAX_ALT_NAME_BYTES + 1))
                .unwrap_err()
                .0
                .contains(&MAX_ALT_NAME_BYTES.to_string())
        );
    }

    proptest! {
        #[test]
        fn general_name_of_any_bytes_does_not_panic(der in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (ParsedSans::read(&der), unmap_ipv4(&der));
            let _ = sans(|w| w.raw(&der));
        }
    }
}
