//! Strings of GeneralNames: host names, mailboxes, URIs, and the bases of name constraints (RFC 5280 4.2.1.6 and
//! 4.2.1.10, RFC 2821 4.1.2, RFC 3986).

use std::net::{Ipv4Addr, Ipv6Addr};

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use super::require;
use crate::x509::general_name::read_ia5;
use crate::x509::reader::{DerError, DerResult};

/// Maximum length of a host name and of a label, in bytes (RFC 1035 2.3.4).
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Like [`read_ia5`], but rejects an empty string.
fn read_nonempty_ia5(content: &[u8]) -> DerResult<&str> {
    require(!content.is_empty(), "a name is empty (RFC 5280 4.2.1.6)")?;
    read_ia5(content)
}

/// `true` for a host name whose labels consist of letters, digits, hyphens and underscores. Underscores are accepted
/// because real host names contain them.
fn is_host(text: &str) -> bool {
    text.len() <= MAX_HOST_BYTES && text.split('.').all(|label| is_label(label, b"-_"))
}

fn is_label(label: &str, more: &[u8]) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
        && is_decodable(label)
}

/// `false` for a label that starts with `xn--` but is not a valid A-label. Clients and resolvers decode A-labels (RFC
/// 5890 2.3.2.1, UTS #46).
pub(crate) fn is_decodable(label: &str) -> bool {
    let begins = label.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case("xn--"));
    let label = || label.to_ascii_lowercase();
    !begins
        || Uts46::new().to_ascii(label().as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore).is_ok()
}

/// Validates a dNSName: a host name whose first label may contain one wildcard (RFC 6125 6.4.3).
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_dns_name(content: &[u8]) -> DerResult<()> {
    let name = read_nonempty_ia5(content)?;
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let is_one = first.bytes().filter(|b| *b == b'*').count() <= 1;
    let holds = name.len() <= MAX_HOST_BYTES && is_label(first, b"-_*") && is_one && rest.is_none_or(is_host);
    require(holds, "a dNSName is not a host name (RFC 5280 4.2.1.6)")
}

/// Validates an rfc822Name.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_mailbox(content: &[u8]) -> DerResult<()> {
    let name = read_nonempty_ia5(content)?;
    require(is_mailbox(name), "an rfc822Name is not a mailbox (RFC 5280 4.2.1.6)")
}

/// Validates an SmtpUTF8Mailbox: a local part with non-ASCII characters and an ASCII host (RFC 9598 3).
pub(super) fn validate_utf8_mailbox(content: &[u8]) -> DerResult<()> {
    let rest = || DerError("an SmtpUTF8Mailbox is not a mailbox (RFC 9598 3)");
    let name = std::str::from_utf8(content).map_err(|_| rest())?;
    let (local, host) = name.rsplit_once('@').ok_or_else(rest)?;
    require(!local.is_ascii(), "an SmtpUTF8Mailbox has an ASCII local part; use an rfc822Name (RFC 9598 3)")?;
    // Non-ASCII characters are allowed wherever atoms are (RFC 6531 3.3), except for a byte order mark.
    let plain: String = local.chars().map(|c| if c.is_ascii() { c } else { 'x' }).collect();
    let is_mail = !local.contains(|c: char| c.is_control() || c == '\u{feff}') && is_local_part(&plain);
    if is_mail && (is_host(host) || is_address_literal(host)) { Ok(()) } else { Err(rest()) }
}

/// Validates an SRVName: `_service.` and a host name (RFC 4985 2).
pub(super) fn validate_srv_name(content: &[u8]) -> DerResult<()> {
    let name = read_nonempty_ia5(content)?;
    let parts = name.strip_prefix('_').and_then(|rest| rest.split_once('.'));
    let holds = parts.is_some_and(|(service, host)| is_label(service, b"-") && is_host(host));
    require(holds, "an SRVName must be _service.host (RFC 4985 2)")
}

/// Validates the base of an SRVName subtree: a service, a host, or both (RFC 4985 4).
///
/// # Errors
/// As [`validate_host_base`].
pub(super) fn validate_srv_name_base(content: &[u8]) -> DerResult<()> {
    let base = read_ia5(content)?;
    match base.strip_prefix('_') {
        Some(name) if !name.contains('.') => {
            require(is_label(name, b"-"), "an SRVName must be _service.host (RFC 4985 2)")
        }
        Some(_) => validate_srv_name(content),
        None => validate_host_base(content),
    }
}

fn is_mailbox(text: &str) -> bool {
    text.rsplit_once('@')
        .is_some_and(|(local, host)| is_local_part(local) && (is_host(host) || is_address_literal(host)))
}

/// `true` for a valid local part of a mailbox: a dot-string or a quoted string (RFC 2821 4.1.2).
fn is_local_part(local: &str) -> bool {
    let is_atom = |atom: &str| {
        !atom.is_empty() && atom.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b))
    };
    match local.strip_prefix('"') {
        None => local.split('.').all(is_atom),
        Some(rest) => rest.strip_suffix('"').is_some_and(is_quoted),
    }
}

/// `true` if `text`, the content of a quoted string, has no quotation mark or backslash without an escaping backslash.
fn is_quoted(text: &str) -> bool {
    let mut octets = text.bytes();
    while let Some(octet) = octets.next() {
        let pair = octet != b'\\' || octets.next().is_some();
        if octet == b'"' || !pair {
            return false;
        }
    }
    true
}

fn is_address_literal(host: &str) -> bool {
    let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else { return false };
    match address.strip_prefix("IPv6:") {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => address.parse::<Ipv4Addr>().is_ok(),
    }
}

/// Validates a URI in a subjectAltName: absolute, and with a host if it has an authority.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_uri_name(content: &[u8]) -> DerResult<()> {
    validate_uri(content, |_| false)
}

/// Validates the URI of a resource, such as a CRL. Directory URIs (`ldap:///…`) may omit the host (RFC 5280 4.2.1.13,
/// 4.2.2.1).
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_location_uri(content: &[u8]) -> DerResult<()> {
    validate_uri(content, |scheme| scheme.eq_ignore_ascii_case("ldap"))
}

fn validate_uri(content: &[u8], may_lack_host: fn(&str) -> bool) -> DerResult<()> {
    let uri = read_nonempty_ia5(content)?;
    require(has_only_uri_bytes(content), "a URI has a character or a % that URIs must not contain (RFC 3986 2)")?;
    let absolute = DerError("a URI is not absolute (RFC 5280 4.2.1.6)");
    let (scheme, specific) = uri.split_once(':').ok_or(absolute)?;
    if !is_scheme(scheme) || specific.is_empty() {
        return Err(absolute);
    }
    let Some(after) = specific.strip_prefix("//") else {
        return require(
            !specific.contains(['[', ']']),
            "a URI has a character or a % that URIs must not contain (RFC 3986 2)",
        );
    };
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    require(!path.contains(['[', ']']), "a URI has a character or a % that URIs must not contain (RFC 3986 2)")?;
    let holds = has_host(authority) || authority.is_empty() && may_lack_host(scheme);
    require(holds, "a URI has no usable host (RFC 5280 4.2.1.6)")
}

/// `true` if a URI consists of unreserved and reserved characters and two-digit escapes, with at most one `#` (RFC 3986
/// 2 and 3.5).
fn has_only_uri_bytes(uri: &[u8]) -> bool {
    let octet = |(at, b): (usize, &u8)| match b {
        b'%' => matches!(uri[at + 1..], [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()),
        b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'?' | b'#' | b'[' | b']' | b'@' => true,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
        b => b.is_ascii_alphanumeric(),
    };
    uri.iter().enumerate().all(octet) && uri.iter().filter(|b| **b == b'#').count() <= 1
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// `true` if `[user@]host[:port]` has a host name or an address (RFC 5280 4.2.1.6).
fn has_host(authority: &str) -> bool {
    let (user, host_and_port) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match host_and_port.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (host_and_port, ""),
    };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    !user.contains(['@', '[', ']'])
        && port.bytes().all(|b| b.is_ascii_digit())
        && address.map_or_else(|| is_host(host), |address| address.parse::<Ipv6Addr>().is_ok())
}

/// Validates the base of a host name subtree: empty for all hosts, or a host name, optionally with a leading dot.
///
/// # Errors
/// The violated rule.
pub(crate) fn validate_host_base(content: &[u8]) -> DerResult<()> {
    let base = read_ia5(content)?;
    let host = base.strip_prefix('.').unwrap_or(base);
    let labelled = host.is_empty() || host.split('.').all(|label| !label.is_empty() && !label.contains(' '));
    require(labelled, "a subtree has an empty label or a space (RFC 5280 4.2.1.10)")?;
    require(base.is_empty() || is_host(host), "a subtree is not a host name or domain (RFC 5280 4.2.1.10)")
}

/// Validates the base of a mailbox subtree: empty for all mailboxes, a mailbox, a host, or a domain with a leading dot.
///
/// # Errors
/// As [`validate_host_base`].
pub(crate) fn validate_mailbox_base(content: &[u8]) -> DerResult<()> {
    let base = read_ia5(content)?;
    if base.contains('@') {
        return require(is_mailbox(base), "a subtree is not a mailbox, host or domain (RFC 5280 4.2.1.10)");
    }
    validate_host_base(content)
}

/// Validates the base of a URI subtree: empty for all URIs, a host that is not an address, or a domain with a leading
/// dot.
///
/// # Errors
/// As [`validate_host_base`].
pub(crate) fn validate_uri_base(content: &[u8]) -> DerResult<()> {
    let base = read_ia5(content)?;
    require(base.parse::<Ipv4Addr>().is_err(), "a subtree of URIs is an address (RFC 5280 4.2.1.10)")?;
    validate_host_base(content)
}
