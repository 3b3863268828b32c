//! GeneralNames (RFC 5280 4.2.1.6): alternative names, issuer names and locations.

use super::{identifier, name, text};
use crate::x509::general_name::{
    DIRECTORY, DNS, EDI, EMAIL, IP, OTHER, REGISTERED, SMTP_UTF8_MAILBOX, SRV_NAME, URI, X400, mapped,
};
use crate::x509::name::is_nameless;
use crate::x509::oid::check_size;
use crate::x509::reader::{DerError, Read, Reader, Tlv, check_der, check_oid};
use crate::x509::writer::{IA5_STRING, UTF8_STRING, context_constructed};

/// Rejects malformed names, and kinds of names that some readers do not support.
///
/// # Errors
/// The violated rule.
pub(crate) fn names(mut names: Reader<'_>) -> Read<()> {
    while !names.is_empty() {
        one(&names.any()?, text::uri_name)?;
    }
    Ok(())
}

/// Validates one name. `uri` validates a URI, whose rules depend on its use.
pub(super) fn one(name: &Tlv<'_>, uri: fn(&[u8]) -> Read<()>) -> Read<()> {
    match name.tag {
        EMAIL => text::mailbox(name.content),
        DNS => text::dns(name.content),
        URI => uri(name.content),
        IP => address(name.content),
        _ => other_kind(name),
    }
}

/// Rejects IPv4-mapped IPv6 addresses, which would bypass name constraints on IPv4 addresses.
fn address(octets: &[u8]) -> Read<()> {
    match octets.len() {
        16 if mapped(octets).is_some() => Err(DerError("an IPv4 address must have 4 octets (RFC 5280 4.2.1.6)")),
        4 | 16 => Ok(()),
        _ => Err(DerError("an IP address must have 4 or 16 octets")),
    }
}

/// Validates the kinds with the same rules in names and constraints.
pub(super) fn other_kind(name: &Tlv<'_>) -> Read<()> {
    match name.tag {
        OTHER => other(name.reader(), text::service),
        DIRECTORY => {
            name::name(name.content)?;
            if is_nameless(name.content) {
                return Err(DerError("a directoryName is empty (RFC 5280 4.2.1.6)"));
            }
            Ok(())
        }
        REGISTERED => check_oid(name.content).and_then(|()| check_size(name.content)),
        X400 | EDI => Err(DerError("an x400Address or ediPartyName is a kind of name that not every reader takes")),
        _ => Err(DerError("unknown kind of GeneralName")),
    }
}

/// As [`names`], for the text of an otherName in the string type of its kind.
///
/// # Errors
/// The violated rule.
pub(crate) fn other_text(kind: &[u8], value: &[u8]) -> Read<()> {
    match kind {
        SMTP_UTF8_MAILBOX => text::utf8_mailbox(value),
        SRV_NAME => text::service(value),
        _ => Ok(()),
    }
}

/// Validates an otherName. `service` validates the text of an SRVName, whose rules depend on its use. Unknown kinds
/// must be DER, and valid UTF-8 in a UTF8String.
pub(super) fn other(mut name: Reader<'_>, service: fn(&[u8]) -> Read<()>) -> Read<()> {
    let kind = identifier(&mut name)?;
    let explicit = name.expect(context_constructed(0))?;
    name.done()?;
    let mut inside = explicit.reader();
    let value = inside.any()?;
    inside.done()?;
    match (kind, value.tag) {
        (SMTP_UTF8_MAILBOX, UTF8_STRING) => text::utf8_mailbox(value.content),
        (SMTP_UTF8_MAILBOX, _) => Err(DerError("an SmtpUTF8Mailbox is no UTF8String (RFC 9598 3)")),
        (SRV_NAME, IA5_STRING) => service(value.content),
        (SRV_NAME, _) => Err(DerError("an SRVName is no IA5String (RFC 4985 2)")),
        (_, UTF8_STRING) => name::text(value.tag, value.content),
        _ => check_der(value.raw),
    }
}
