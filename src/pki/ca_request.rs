//! What a request for a CA certificate, or for a CSR of one, decides beyond the names and dates that it
//! shares with leaves: subject, usages, path length, name constraints, signature hash. Each function
//! reads its own body members and names them when it refuses.

use super::oid;
use crate::error::{Error, Result};
use crate::fields::{Cap, Fields};
use crate::pki::role::SUBJECT_VALUES;
use crate::x509::extension::MAX_SUBTREES;
use crate::x509::extension::{self, KeyUsage, NameConstraints, Subtrees};
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::profile;
use crate::x509::reader::Read;

/// The usages of every authority.
pub(super) const AUTHORITY: KeyUsage = KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN);

/// What a list of usages may hold.
const USAGES: Cap = Cap::new(100, 128);

/// Body members of the subject, read by [`subject`].
pub(super) const SUBJECT_FIELDS: [&str; 8] =
    ["ou", "organization", "country", "locality", "province", "street_address", "postal_code", "serial_number"];

/// Body members of the name constraints, read by [`name_constraints`].
pub(super) const CONSTRAINT_FIELDS: [&str; 8] = [
    "permitted_dns_domains",
    "permitted_email_addresses",
    "permitted_ip_ranges",
    "permitted_uri_domains",
    "excluded_dns_domains",
    "excluded_email_addresses",
    "excluded_ip_ranges",
    "excluded_uri_domains",
];

/// Body members of the names.
pub(super) const NAME_FIELDS: [&str; 6] =
    ["common_name", "alt_names", "ip_sans", "uri_sans", "other_sans", "exclude_cn_from_sans"];

/// One list of body members out of several; `N` is their number.
pub(super) const fn joined<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut list, mut to) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[to] = lists[list][at];
            (at, to) = (at + 1, to + 1);
        }
        list += 1;
    }
    assert!(to == N);
    all
}

/// `signature_bits`: 0 takes the default of the signing key.
///
/// # Errors
/// `Invalid` for anything but 0, 256, 384 and 512.
pub(super) fn signature_bits(fields: &Fields) -> Result<u32> {
    match fields.int("signature_bits")?.unwrap_or(0) {
        bits @ (0 | 256 | 384 | 512) => Ok(bits as u32),
        _ => Err(Error::invalid("signature_bits: must be 0, 256, 384 or 512")),
    }
}

/// The keyUsage bits of a CA: always keyCertSign and cRLSign, and what `key_usage` names.
///
/// # Errors
/// `Invalid` when the field is no list, or has a name that is no usage's.
pub(super) fn key_usage(fields: &Fields) -> Result<KeyUsage> {
    Ok(named_key_usage(fields)?.unwrap_or_default().union(AUTHORITY))
}

/// What `key_usage` names; `None` when it is absent.
///
/// # Errors
/// As [`key_usage`].
pub(super) fn named_key_usage(fields: &Fields) -> Result<Option<KeyUsage>> {
    if !fields.has("key_usage") {
        return Ok(None);
    }
    let names = usages(fields, "key_usage")?;
    check_key_usage(&names)?;
    Ok(Some(KeyUsage::from_names(&names)))
}

/// Refuses the name of no usage: what was asked for would be left out.
///
/// # Errors
/// `Invalid` naming `key_usage` and the entry's place.
pub(super) fn check_key_usage(names: &[String]) -> Result<()> {
    let unknown = |n| Error::invalid(format!("key_usage: entry {} is no key usage (RFC 5280 4.2.1.3)", n + 1));
    KeyUsage::unknown(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// As [`check_key_usage`], of `ext_key_usage`.
///
/// # Errors
/// `Invalid` naming `ext_key_usage` and the entry's place.
pub(super) fn check_ext_key_usage(names: &[String]) -> Result<()> {
    let rule = "is the name of no extended key usage; ext_key_usage_oids takes any by its OID";
    let unknown = |n| Error::invalid(format!("ext_key_usage: entry {} {rule}", n + 1));
    extension::unknown_eku(names).map_or(Ok(()), |n| Err(unknown(n)))
}

/// extKeyUsage of `ext_key_usage` and `ext_key_usage_oids`, both added; empty without any.
///
/// # Errors
/// `Invalid` naming the field whose entry is no OID or no usage's name.
pub(super) fn ext_key_usage(fields: &Fields) -> Result<Vec<u8>> {
    let (names, oids) = (usages(fields, "ext_key_usage")?, usages(fields, "ext_key_usage_oids")?);
    check_ext_key_usage(&names)?;
    let purposes = extension::eku_oids(&names, false, false, false, false, &oids)?;
    oids.iter().try_for_each(|oid| oid::check_size("ext_key_usage_oids", oid.trim()))?;
    Ok(extension::ext_key_usage(&purposes))
}

/// `max_path_length`; `None` when it is absent or -1.
///
/// # Errors
/// `Invalid` outside of -1 to 255.
pub(super) fn max_path_length(fields: &Fields) -> Result<Option<u32>> {
    match fields.int("max_path_length")?.unwrap_or(-1) {
        -1 => Ok(None),
        n => u32::try_from(n)
            .ok()
            .filter(|n| *n <= 255)
            .map(Some)
            .ok_or_else(|| Error::invalid("max_path_length: must be -1 (no limit) or 0 to 255")),
    }
}

/// Subject of a CA: C, ST, L, STREET, POSTALCODE, O, OU, CN, SERIALNUMBER.
///
/// # Errors
/// `Invalid` naming the field with control characters.
pub(super) fn subject(fields: &Fields, common_name: &str, serial_number: &str) -> Result<Vec<u8>> {
    let mut rdns = Vec::new();
    for (attribute, field) in [
        (Attribute::Country, "country"),
        (Attribute::Province, "province"),
        (Attribute::Locality, "locality"),
        (Attribute::StreetAddress, "street_address"),
        (Attribute::PostalCode, "postal_code"),
        (Attribute::Organization, "organization"),
        (Attribute::OrganizationalUnit, "ou"),
    ] {
        let values = fields.list_within(field, SUBJECT_VALUES)?.unwrap_or_default();
        if values.iter().any(|v| v.chars().any(char::is_control)) {
            return Err(Error::invalid(format!("{field}: control characters are not allowed")));
        }
        rdns.push(rdn(attribute, &values));
    }
    for (attribute, value) in [(Attribute::CommonName, common_name), (Attribute::SerialNumber, serial_number)] {
        if !value.is_empty() {
            rdns.push(rdn(attribute, &[value.to_owned()]));
        }
    }
    let rdns: Vec<&[u8]> = rdns.iter().map(Vec::as_slice).collect();
    Ok(name::name(&rdns))
}

/// Refuses the subject of an authority that names nobody. `field` is where it comes from. What is signed is
/// held against the same rule; here it is refused before a key is made.
///
/// # Errors
/// `Invalid` naming the field.
pub(super) fn check_subject(field: &str, subject: &[u8]) -> Result<()> {
    if name::is_nameless(subject) {
        return Err(Error::invalid(format!("{field}: an authority must have a subject (RFC 5280 4.1.2.6)")));
    }
    Ok(())
}

/// Names or OIDs of usages; absent is empty.
fn usages(fields: &Fields, field: &str) -> Result<Vec<String>> {
    Ok(fields.list_within(field, USAGES)?.unwrap_or_default())
}

/// nameConstraints from the eight lists; empty without any.
///
/// # Errors
/// `Invalid` naming the list and the rule.
pub(super) fn name_constraints(fields: &Fields) -> Result<Vec<u8>> {
    let list = |name: &str, base: fn(&[u8]) -> Read<()>| -> Result<Vec<String>> {
        let values = fields.list_within(name, Cap { entries: MAX_SUBTREES, ..Cap::LIST })?.unwrap_or_default();
        if !values.iter().all(|v| v.bytes().all(|b| b.is_ascii_graphic())) {
            // IA5String, RFC 5280 4.2.1.10: names beyond ASCII in their A-label form.
            let text = format!("{name}: every entry must be visible ASCII; write international names as xn--…");
            return Err(Error::invalid(text));
        }
        values.iter().try_for_each(|value| base(value.as_bytes())).map_err(|e| e.of(name))?;
        Ok(values)
    };
    let ranges = |name: &str| -> Result<Vec<ipnet::IpNet>> {
        let parse = |text: &String| {
            text.parse().map_err(|_| Error::invalid(format!("{name}: every entry must be a CIDR range")))
        };
        list(name, |_| Ok(()))?.iter().map(parse).collect()
    };
    let subtrees = |side: &str| -> Result<Subtrees> {
        Ok(Subtrees {
            dns: list(&format!("{side}_dns_domains"), profile::host_base)?,
            emails: list(&format!("{side}_email_addresses"), profile::mailbox_base)?,
            ips: ranges(&format!("{side}_ip_ranges"))?,
            uris: list(&format!("{side}_uri_domains"), profile::uri_base)?,
        })
    };
    Ok(extension::name_constraints(&NameConstraints {
        permitted: subtrees("permitted")?,
        excluded: subtrees("excluded")?,
    }))
}
