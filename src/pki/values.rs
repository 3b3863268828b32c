//! Values that roles, requests and settings share: how each is written, and what is refused of it, whoever
//! wrote it. The lowest floor of the engine: nothing here knows a role or a request.
//!
//! Patterns are in [`glob`], dotted OIDs in [`oid`], the bounds of a subject in [`subject_bounds`], durations and times as they were
//! written in [`written`], and when a certificate is best replaced in [`renewal`].

pub mod glob;
pub mod oid;
pub mod renewal;
pub mod subject_bounds;
pub mod written;

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use self::oid::is_dotted_oid;
use crate::error::{Error, Result};
use crate::x509::extension;
use crate::x509::usage::KeyUsage;

/// The most that a list holds that is kept: whoever uses it walks it every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Entries.
    pub entries: usize,
    /// Octets of one entry.
    pub bytes: usize,
}

impl Most {
    /// So many entries of so many octets each.
    pub const fn new(entries: usize, bytes: usize) -> Self {
        Self { entries, bytes }
    }

    /// Refuses a list that is longer, or has a longer entry.
    ///
    /// # Errors
    /// `Invalid` naming `field` and the rule.
    pub(crate) fn hold(self, field: &str, list: &[String]) -> Result<()> {
        let Self { entries, bytes } = self;
        if list.len() > entries {
            return Err(Error::invalid(format!("{field}: at most {entries} entries are taken")));
        }
        if list.iter().any(|entry| entry.len() > bytes) {
            return Err(Error::invalid(format!("{field}: an entry is longer than {bytes} bytes")));
        }
        Ok(())
    }
}

/// A name as an error may show it: not endless, nothing unprintable.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(300).flat_map(char::escape_debug).collect()
}

/// The seconds of a duration. Below one second is refused: it would read as "unset".
pub(crate) fn whole_seconds(field: &str, duration: Duration) -> Result<u64> {
    if duration.as_secs() == 0 && !duration.is_zero() {
        return Err(Error::invalid(format!("{field}: must be zero, or at least one second")));
    }
    Ok(duration.as_secs())
}

/// Reads one entry of `allowed_ip_sans_cidr`, or of the ranges of name constraints: a network with its prefix
/// length, host bits cleared, IPv4-mapped networks as IPv4; none with an IPv4-mapped address and a prefix below
/// 96, which is a network of neither.
pub(crate) fn parse_network(text: &str) -> Option<IpNet> {
    // Not ipnet's own parser: it takes leading zeros, which others read as octal.
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

/// Reads `<oid>;<type>:<value>`, the form of `other_sans` and (with a pattern as value) of a role's
/// `allowed_other_sans`. The only type is `UTF8`, also spelt `UTF-8`, in any case.
pub(crate) fn parse_other(field: &str, text: &str) -> Result<(String, String)> {
    let refuse = |problem: &str| Err(Error::invalid(format!("{field}: {} {problem}", shown(text))));
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

/// Refuses the name of no usage: what was asked for would be left out.
///
/// # Errors
/// `Invalid` naming `key_usage` and the entry's place.
pub(crate) fn check_key_usage(names: &[String]) -> Result<()> {
    let unknown = |n| Error::invalid(format!("key_usage: entry {} is no key usage (RFC 5280 4.2.1.3)", n + 1));
    KeyUsage::unknown(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// As [`check_key_usage`], of `ext_key_usage`.
///
/// # Errors
/// `Invalid` naming `ext_key_usage` and the entry's place.
pub(crate) fn check_ext_key_usage(names: &[String]) -> Result<()> {
    let rule = "is the name of no extended key usage; ext_key_usage_oids takes any by its OID";
    let unknown = |n| Error::invalid(format!("ext_key_usage: entry {} {rule}", n + 1));
    extension::unknown_eku(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
