//! Values shared by roles, requests and settings: parsing and validation. Nothing here depends on roles or requests.
//!
//! Submodules: patterns ([`glob`]), dotted OIDs ([`oid`]), bounds of subjects ([`subject_bounds`]), times with their
//! original text ([`original_text`]), and renewal times ([`renewal`]).

pub mod glob;
pub mod oid;
pub mod original_text;
pub mod renewal;
pub mod subject_bounds;

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use self::oid::is_dotted_oid;
use crate::error::{Error, Result};
use crate::x509::extension;
use crate::x509::usage::KeyUsage;

/// Escapes and truncates a name for use in an error message.
pub(crate) fn escape_for_message(name: &str) -> String {
    name.chars().take(300).flat_map(char::escape_debug).collect()
}

/// Converts a duration to whole seconds. Rejects durations below one second except zero, because 0 seconds mean "not
/// set".
pub(crate) fn whole_seconds(field: &str, duration: Duration) -> Result<u64> {
    if duration.as_secs() == 0 && !duration.is_zero() {
        return Err(Error::invalid(format!("{field}: must be zero, or at least one second")));
    }
    Ok(duration.as_secs())
}

/// Parses a network with a prefix length, for `allowed_ip_sans_cidr` and the ranges of name constraints. Host bits are
/// cleared and IPv4-mapped networks become IPv4. IPv4-mapped addresses with a prefix below 96 are rejected.
pub(crate) fn parse_network(text: &str) -> Option<IpNet> {
    // `IpNet::from_str` accepts leading zeros, which other parsers read as octal.
    let (address, prefix) = text.split_once('/')?;
    if !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let net = IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok()?;
    let net = match net {
        IpNet::V6(v6) => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len().checked_sub(96)?).ok()?.into(),
            None => net,
        },
        IpNet::V4(_) => net,
    };
    Some(net.trunc())
}

/// Parses `<oid>;<type>:<value>`, the form of `other_sans` and, with a pattern as the value, of `allowed_other_sans`.
/// The type must be `UTF8` or `UTF-8`, in any letter case.
pub(crate) fn parse_other_name(field: &str, text: &str) -> Result<(String, String)> {
    let refuse = |problem: &str| Err(Error::invalid(format!("{field}: {} {problem}", escape_for_message(text))));
    let Some((oid, typed)) = text.split_once(';') else {
        return refuse("is not of the form <oid>;UTF8:<value>: it has no semicolon");
    };
    let Some((kind, value)) = typed.split_once(':') else {
        return refuse("is not of the form <oid>;UTF8:<value>: it has no colon");
    };
    if !is_dotted_oid(oid) {
        return refuse("does not start with a dotted OID");
    }
    if !kind.eq_ignore_ascii_case("UTF8") && !kind.eq_ignore_ascii_case("UTF-8") {
        return refuse("has another type: only UTF8 other SANs are supported");
    }
    Ok((oid.to_owned(), value.to_owned()))
}

/// Rejects unknown names of key usages, instead of ignoring them.
///
/// # Errors
/// `Invalid` naming `key_usage` and the position of the entry.
pub(crate) fn check_key_usage(names: &[String]) -> Result<()> {
    let unknown = |n| Error::invalid(format!("key_usage: entry {} is not a key usage (RFC 5280 4.2.1.3)", n + 1));
    KeyUsage::first_unknown(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// Like [`check_key_usage`], for `ext_key_usage`.
///
/// # Errors
/// `Invalid` naming `ext_key_usage` and the position of the entry.
pub(crate) fn check_ext_key_usage(names: &[String]) -> Result<()> {
    let rule = "is not the name of an extended key usage; specify its OID in ext_key_usage_oids";
    let unknown = |n| Error::invalid(format!("ext_key_usage: entry {} {rule}", n + 1));
    extension::first_unknown_eku(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// A setting whose values are keywords.
pub trait Keyword: Copy + PartialEq + 'static {
    /// Name of the field, for errors.
    const FIELD: &'static str;
    /// The values of the setting, each with its keyword.
    const KEYWORDS: &'static [(Self, &'static str)];

    /// Parses the keyword of a value.
    ///
    /// # Errors
    /// `Invalid` for an unknown value.
    fn parse(word: &str) -> Result<Self> {
        let known = Self::KEYWORDS.iter().find(|(_, keyword)| *keyword == word);
        known.map(|(value, _)| *value).ok_or_else(|| {
            let keywords: Vec<&str> = Self::KEYWORDS.iter().map(|(_, keyword)| *keyword).collect();
            let (last, others) = keywords.split_last().unwrap_or((&"", &[]));
            Error::invalid(format!("{}: must be {} or {last}", Self::FIELD, others.join(", ")))
        })
    }

    /// Returns the keyword of the value.
    fn as_str(self) -> &'static str {
        Self::KEYWORDS.iter().find(|(value, _)| *value == self).map_or("", |(_, keyword)| keyword)
    }
}

/// Parses hexadecimal digits; returns `None` for other characters and for an odd number of digits.
pub(crate) fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let parse_byte = |pair: &[u8]| match *pair {
        [high, low] => Some(value(high)? << 4 | value(low)?),
        _ => None,
    };
    digits.chunks(2).map(parse_byte).collect()
}

/// Formats bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
