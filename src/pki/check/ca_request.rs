//! Checks that apply only to requests for CA certificates and their CSRs: key, subject, usages, name constraints.
//! Errors name the field.

use super::request::{RequestedSubject, RequestedUsages};
use super::structure::FieldSources;
use crate::error::{Error, Result, Warnings};
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::extension::{self, KeyUsage, NameConstraints, Subtrees};
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::oid;
use crate::x509::pieces::{Extensions, Name};
use crate::x509::profile;
use crate::x509::reader::DerResult;

/// Checks that a key of this kind is suitable for a CA.
///
/// # Errors
/// `Invalid` naming `field`, for a P-224 key, which issuers must not use, and for an RSA key below 2048 bits.
pub(crate) fn check_ca_key(field: &str, kind: KeyKind) -> Result<()> {
    match kind {
        KeyKind::Ec(Curve::P224) => Err(Error::invalid(format!("{field}: a P-224 key cannot sign certificates"))),
        KeyKind::Rsa { bits: ..2048 } => {
            Err(Error::invalid(format!("{field}: RSA keys below 2048 bits are not supported")))
        }
        _ => Ok(()),
    }
}

/// Key usages that every CA certificate has.
pub(crate) const CA_KEY_USAGE: KeyUsage = KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN);

/// Returns the keyUsage of a CA certificate: keyCertSign, cRLSign and the requested usages.
pub(crate) fn ca_key_usage(requested: &RequestedUsages) -> KeyUsage {
    requested.key_usage.unwrap_or_default().union(CA_KEY_USAGE)
}

/// Encodes the subject of a CA: C, ST, L, STREET, POSTALCODE, O, OU, CN, SERIALNUMBER.
///
/// # Errors
/// `Invalid` naming the field with control characters.
pub(crate) fn encode_ca_subject(requested: &RequestedSubject, common_name: &str, serial_number: &str) -> Result<Name> {
    let mut rdns = Vec::new();
    for (attribute, field, values) in [
        (Attribute::Country, "country", &requested.country),
        (Attribute::Province, "province", &requested.province),
        (Attribute::Locality, "locality", &requested.locality),
        (Attribute::StreetAddress, "street_address", &requested.street_address),
        (Attribute::PostalCode, "postal_code", &requested.postal_code),
        (Attribute::Organization, "organization", &requested.organization),
        (Attribute::OrganizationalUnit, "ou", &requested.ou),
    ] {
        if values.iter().any(|v| v.chars().any(char::is_control)) {
            return Err(Error::invalid(format!("{field}: control characters are not allowed")));
        }
        rdns.push(name::rdns(attribute, values, requested.separate_rdns));
    }
    for (attribute, value) in [(Attribute::CommonName, common_name), (Attribute::SerialNumber, serial_number)] {
        if !value.is_empty() {
            rdns.push(rdn(attribute, &[value.to_owned()]));
        }
    }
    Ok(name::name(&rdns.iter().collect::<Vec<_>>()))
}

/// Returns the request field that each part of a CA certificate comes from, for error messages.
pub(crate) fn ca_field_sources() -> FieldSources {
    FieldSources::all("certificate")
        .with_subject("common_name")
        .with_extension(oid::SUBJECT_ALT_NAME, "alt_names")
        .with_extension(oid::KEY_USAGE, "key_usage")
        .with_extension(oid::EXT_KEY_USAGE, "ext_key_usage")
}

/// Rejects a CA without a subject; `field` is the request field of the subject. The structural checks have the same
/// rule; this one applies before a key is generated.
///
/// # Errors
/// `Invalid` naming the field.
pub(crate) fn check_subject(field: &str, subject: &Name) -> Result<()> {
    if subject.has_no_text() {
        return Err(Error::invalid(format!("{field}: a CA certificate must have a subject (RFC 5280 4.1.2.6)")));
    }
    Ok(())
}

/// Encodes the nameConstraints extension; the result is empty without constraints.
///
/// # Errors
/// `Invalid` naming the list and the rule.
pub(crate) fn encode_name_constraints(requested: &NameConstraints) -> Result<Extensions> {
    check_subtrees("permitted", &requested.permitted)?;
    check_subtrees("excluded", &requested.excluded)?;
    Ok(extension::name_constraints(requested))
}

/// Warns about name constraints that can be signed but make some verifiers reject the certificates below the CA.
pub(crate) fn constraint_warnings(requested: &NameConstraints) -> Warnings {
    let sides =
        [("permitted_dns_domains", &requested.permitted.dns), ("excluded_dns_domains", &requested.excluded.dns)];
    let dotted = sides.into_iter().filter(|(_, values)| values.iter().any(|value| value.starts_with('.')));
    let text = |(field, _)| {
        format!(
            "{field}: an entry begins with a dot, which RFC 5280 4.2.1.10 does not permit for host names: the \
             verifier of Python's cryptography refuses every certificate below this authority; write the domain \
             without the dot"
        )
    };
    dotted.map(text).collect()
}

fn check_subtrees(side: &str, subtrees: &Subtrees) -> Result<()> {
    let check = |kind: &str, values: &[String], base: fn(&[u8]) -> DerResult<()>| -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let field = format!("{side}_{kind}");
        check_ascii(&field, values)?;
        values.iter().try_for_each(|value| base(value.as_bytes())).map_err(|e| e.into_error(&field))
    };
    check("dns_domains", &subtrees.dns, profile::validate_host_base)?;
    check("email_addresses", &subtrees.emails, profile::validate_mailbox_base)?;
    check("uri_domains", &subtrees.uris, profile::validate_uri_base)
}

/// Rejects values that an IA5String cannot hold (RFC 5280 4.2.1.10). International names must be given as A-labels.
///
/// # Errors
/// `Invalid` naming `field`.
pub(crate) fn check_ascii(field: &str, values: &[String]) -> Result<()> {
    if values.iter().all(|v| v.bytes().all(|b| b.is_ascii_graphic())) {
        return Ok(());
    }
    Err(Error::invalid(format!("{field}: every entry must be visible ASCII; write international names as xn--…")))
}
