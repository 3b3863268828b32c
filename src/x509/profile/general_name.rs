//! GeneralNames (RFC 5280 4.2.1.6): alternative names, issuer names and locations.

use super::{name, read_oid, text};
use crate::x509::general_name::{
    DIRECTORY_NAME, DNS_NAME, EDI_PARTY_NAME, IP_ADDRESS, OTHER_NAME, REGISTERED_ID, RFC822_NAME, SMTP_UTF8_MAILBOX,
    SRV_NAME, URI_NAME, X400_ADDRESS, unmap_ipv4,
};
use crate::x509::name::has_no_text;
use crate::x509::oid::check_oid_size;
use crate::x509::reader::{DerError, DerReader, DerResult, Tlv, check_der, check_oid};
use crate::x509::writer::{IA5_STRING, UTF8_STRING, context_constructed};

/// Rejects malformed GeneralNames, and kinds of names that some certificate readers do not support.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_names(mut names: DerReader<'_>) -> DerResult<()> {
    while !names.is_empty() {
        validate_name(&names.any()?, text::validate_uri_name)?;
    }
    Ok(())
}

/// Validates one GeneralName. `uri` validates a URI, whose rules depend on its use.
pub(super) fn validate_name(name: &Tlv<'_>, uri: fn(&[u8]) -> DerResult<()>) -> DerResult<()> {
    match name.tag {
        RFC822_NAME => text::validate_mailbox(name.content),
        DNS_NAME => text::validate_dns_name(name.content),
        URI_NAME => uri(name.content),
        IP_ADDRESS => validate_ip_address(name.content),
        _ => validate_other_kind(name),
    }
}

/// Rejects IPv4-mapped IPv6 addresses, which would bypass name constraints on IPv4 addresses.
fn validate_ip_address(octets: &[u8]) -> DerResult<()> {
    match octets.len() {
        16 if unmap_ipv4(octets).is_some() => Err(DerError("an IPv4 address must have 4 octets (RFC 5280 4.2.1.6)")),
        4 | 16 => Ok(()),
        _ => Err(DerError("an IP address must have 4 or 16 octets")),
    }
}

/// Validates the kinds of GeneralNames whose rules are the same in alternative names and in name constraints.
pub(super) fn validate_other_kind(name: &Tlv<'_>) -> DerResult<()> {
    match name.tag {
        OTHER_NAME => validate_other_name(name.reader(), text::validate_srv_name),
        DIRECTORY_NAME => {
            name::validate_directory_name(name.content)?;
            if has_no_text(name.content) {
                return Err(DerError("a directoryName is empty (RFC 5280 4.2.1.6)"));
            }
            Ok(())
        }
        REGISTERED_ID => check_oid(name.content).and_then(|()| check_oid_size(name.content)),
        X400_ADDRESS | EDI_PARTY_NAME => {
            Err(DerError("x400Address and ediPartyName are not supported, because some readers reject them"))
        }
        _ => Err(DerError("unknown kind of GeneralName")),
    }
}

/// Validates the text of an otherName of type `kind` by the rules of [`validate_names`]. The text must be encoded in
/// the string type that `kind` requires.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_other_name_text(kind: &[u8], value: &[u8]) -> DerResult<()> {
    match kind {
        SMTP_UTF8_MAILBOX => text::validate_utf8_mailbox(value),
        SRV_NAME => text::validate_srv_name(value),
        _ => Ok(()),
    }
}

/// Validates an otherName. `service` validates the text of an SRVName, whose rules depend on its use. The value of an
/// unknown type must be DER, and valid UTF-8 if it is a UTF8String.
pub(super) fn validate_other_name(mut name: DerReader<'_>, service: fn(&[u8]) -> DerResult<()>) -> DerResult<()> {
    let kind = read_oid(&mut name)?;
    let explicit = name.expect(context_constructed(0))?;
    name.done()?;
    let value = DerReader::read_to_end(explicit.content, DerReader::any)?;
    match (kind, value.tag) {
        (SMTP_UTF8_MAILBOX, UTF8_STRING) => text::validate_utf8_mailbox(value.content),
        (SMTP_UTF8_MAILBOX, _) => Err(DerError("an SmtpUTF8Mailbox is not a UTF8String (RFC 9598 3)")),
        (SRV_NAME, IA5_STRING) => service(value.content),
        (SRV_NAME, _) => Err(DerError("an SRVName is not an IA5String (RFC 4985 2)")),
        (_, UTF8_STRING) => name::validate_string(value.tag, value.content),
        _ => check_der(value.raw),
    }
}
