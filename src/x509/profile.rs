//! The RFC 5280 profile: validation of everything that is signed, including content copied from requests, templates
//! and other authorities.
//!
//! Each extension that RFC 5280 or common certificate readers know has a validator here. It rejects what relying
//! parties would reject: Go, `cryptography` and OpenSSL each check only a part of that. Values of unknown extensions are
//! copied unchanged, because private extensions need not be DER and every certificate reader skips them.

mod admission;
mod general_name;
mod name;
mod points;
mod policies;
mod subtrees;
mod text;
mod timestamps;

pub(crate) use self::general_name::{validate_names, validate_other_name_text};
pub(crate) use self::name::validate_directory_name;
pub(crate) use self::text::{
    is_decodable, validate_dns_name, validate_host_base, validate_location_uri, validate_mailbox,
    validate_mailbox_base, validate_uri_base, validate_uri_name,
};

use super::oid::{self, check_oid_size};
use super::reader::{DerError, DerReader, DerResult, check_bit_string, check_der, check_integer};
use super::time;
use super::usage::KeyUsage;
use super::writer::{
    BIT_STRING, ENUMERATED, GENERALIZED_TIME, NULL, OCTET_STRING, SEQUENCE, SET, context, context_constructed,
};
use super::{general_name as alt_names, raw_extension};
use crate::error::Result;

/// The rule for the field `critical` of an extension.
enum CriticalRule {
    /// Must be TRUE.
    Always,
    /// Must be FALSE.
    Never,
    /// Both values are valid here; other checks may depend on the kind of certificate.
    Either,
}

/// The rules for one kind of extension: its name, criticality and validator.
pub(crate) struct ExtensionProfile {
    name: &'static str,
    critical: CriticalRule,
    validator: fn(&[u8]) -> DerResult<()>,
}

impl ExtensionProfile {
    /// The extension's name, as spelled in its specification.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Validates `critical` and the value, which is the content of extnValue. `field` names the field that contains the
    /// extension, for errors.
    ///
    /// # Errors
    /// `Invalid`, naming field, extension and rule.
    pub(crate) fn validate(&self, field: &str, critical: bool, value: &[u8]) -> Result<()> {
        self.validate_critical(field, critical)?;
        self.validate_value(field, value)
    }

    /// Like [`ExtensionProfile::validate`], for `critical` only.
    pub(crate) fn validate_critical(&self, field: &str, critical: bool) -> Result<()> {
        self.with_field_name(
            field,
            match (&self.critical, critical) {
                (CriticalRule::Always, false) => Err(DerError("must be critical (RFC 5280 4.2, 5.2, 5.3)")),
                (CriticalRule::Never, true) => Err(DerError("must not be critical (RFC 5280 4.2, 5.2, 5.3)")),
                _ => Ok(()),
            },
        )
    }

    /// Like [`ExtensionProfile::validate`], for the value only.
    pub(crate) fn validate_value(&self, field: &str, value: &[u8]) -> Result<()> {
        self.with_field_name(field, (self.validator)(value))
    }

    /// Adds the names of field and extension to the error, if there is one.
    pub(crate) fn with_field_name<T>(&self, field: &str, held: DerResult<T>) -> Result<T> {
        held.map_err(|e| e.into_error(&format!("{field}: {}", self.name)))
    }
}

/// Returns the profile of a certificate extension (RFC 5280 4.2 and other specifications).
pub(crate) fn find_certificate_extension(oid: &[u8]) -> Option<ExtensionProfile> {
    use CriticalRule::{Always, Either, Never};
    let known = |name, critical, validator| Some(ExtensionProfile { name, critical, validator });
    match oid {
        oid::SUBJECT_KEY_ID => known("subjectKeyIdentifier", Never, validate_subject_key_id),
        oid::KEY_USAGE => known("keyUsage", Either, validate_key_usage),
        oid::SUBJECT_ALT_NAME => known("subjectAltName", Either, validate_alt_names),
        oid::BASIC_CONSTRAINTS => known("basicConstraints", Either, validate_basic_constraints),
        oid::EXT_KEY_USAGE => known("extKeyUsage", Either, validate_ext_key_usage),
        oid::AUTHORITY_INFO_ACCESS => known("authorityInfoAccess", Never, points::validate_access_descriptions),
        oid::CRL_DISTRIBUTION_POINTS => known("cRLDistributionPoints", Either, points::validate_distribution_points),
        oid::CERTIFICATE_POLICIES => known("certificatePolicies", Either, policies::validate),
        oid::NAME_CONSTRAINTS => known("nameConstraints", Either, subtrees::validate),
        oid::ISSUER_ALT_NAME => known("issuerAltName", Either, validate_alt_names),
        oid::POLICY_MAPPINGS => known("policyMappings", Either, policies::validate_mappings),
        oid::POLICY_CONSTRAINTS => known("policyConstraints", Always, policies::validate_constraints),
        oid::INHIBIT_ANY_POLICY => known("inhibitAnyPolicy", Always, validate_inhibit_any_policy),
        oid::SUBJECT_INFO_ACCESS => known("subjectInfoAccess", Never, points::validate_access_descriptions),
        oid::SUBJECT_DIRECTORY_ATTRIBUTES => known("subjectDirectoryAttributes", Never, validate_directory_attributes),
        oid::PRIVATE_KEY_USAGE_PERIOD => known("privateKeyUsagePeriod", Either, validate_key_usage_period),
        oid::TLS_FEATURE => known("TLS feature", Either, validate_tls_features),
        oid::SCT_LIST => known("SCT list", Either, timestamps::validate),
        oid::PRECERTIFICATE_POISON => known("precertificate poison", Always, validate_null),
        oid::OCSP_NO_CHECK => known("OCSP no check", Either, validate_null),
        oid::CERTIFICATE_TEMPLATE => known("certificate template", Either, validate_template),
        oid::ADMISSION => known("admission", Either, admission::validate),
        oid::NS_CERT_TYPE => known("nsCertType", Either, validate_bit_string),
        oid::IP_ADDR_BLOCKS => known("ipAddrBlocks", Either, reject_resources),
        oid::AUTONOMOUS_SYS_IDS => known("autonomousSysIds", Either, reject_resources),
        oid::PROXY_CERT_INFO => known("proxyCertInfo", Either, reject_proxy),
        oid::CRL_NUMBER => known("cRLNumber", Either, reject_in_certificate),
        oid::REASON_CODE => known("reasonCode", Either, reject_in_certificate),
        oid::INVALIDITY_DATE => known("invalidityDate", Either, reject_in_certificate),
        oid::DELTA_CRL_INDICATOR => known("deltaCRLIndicator", Either, reject_in_certificate),
        oid::ISSUING_DISTRIBUTION_POINT => known("issuingDistributionPoint", Either, reject_in_certificate),
        oid::CERTIFICATE_ISSUER => known("certificateIssuer", Either, reject_in_certificate),
        _ => find_common_extension(oid),
    }
}

/// Returns the profile of a CRL extension (RFC 5280 5.2).
pub(crate) fn find_crl_extension(oid: &[u8]) -> Option<ExtensionProfile> {
    let known = |name, critical, validator| Some(ExtensionProfile { name, critical, validator });
    match oid {
        oid::CRL_NUMBER => known("cRLNumber", CriticalRule::Never, validate_crl_number),
        oid::DELTA_CRL_INDICATOR => known("deltaCRLIndicator", CriticalRule::Always, validate_crl_number),
        oid::ISSUING_DISTRIBUTION_POINT => {
            known("issuingDistributionPoint", CriticalRule::Always, points::validate_issuing_distribution_point)
        }
        oid::ISSUER_ALT_NAME => known("issuerAltName", CriticalRule::Either, validate_alt_names),
        oid::AUTHORITY_INFO_ACCESS => {
            known("authorityInfoAccess", CriticalRule::Never, points::validate_access_descriptions)
        }
        _ => find_common_extension(oid),
    }
}

fn find_common_extension(oid: &[u8]) -> Option<ExtensionProfile> {
    let known = |name, validator| Some(ExtensionProfile { name, critical: CriticalRule::Never, validator });
    match oid {
        oid::AUTHORITY_KEY_ID => known("authorityKeyIdentifier", validate_authority_key_id),
        oid::FRESHEST_CRL => known("freshestCRL", points::validate_distribution_points),
        _ => None,
    }
}

/// Returns the profile of a CRL entry extension (RFC 5280 5.3).
pub(crate) fn find_entry_extension(oid: &[u8]) -> Option<ExtensionProfile> {
    let known = |name, critical, validator| Some(ExtensionProfile { name, critical, validator });
    match oid {
        oid::REASON_CODE => known("reasonCode", CriticalRule::Never, validate_reason_code),
        oid::INVALIDITY_DATE => known("invalidityDate", CriticalRule::Never, validate_invalidity_date),
        oid::CERTIFICATE_ISSUER => known("certificateIssuer", CriticalRule::Always, validate_alt_names),
        _ => None,
    }
}

fn require(holds: bool, text: &'static str) -> DerResult<()> {
    if holds { Ok(()) } else { Err(DerError(text)) }
}

/// Reads an OID; rejects one that is too large for some certificate readers.
fn read_oid<'a>(fields: &mut DerReader<'a>) -> DerResult<&'a [u8]> {
    let oid = fields.oid()?;
    check_oid_size(oid)?;
    Ok(oid)
}

/// Reads a SEQUENCE OF that must not be empty; `none` is the error if it is.
fn read_nonempty_list<'a>(value: &'a [u8], none: &'static str) -> DerResult<DerReader<'a>> {
    let list = DerReader::read_single(value, SEQUENCE)?;
    require(!list.content.is_empty(), none)?;
    Ok(list.reader())
}

/// Validates authorityKeyIdentifier (RFC 5280 4.2.1.1): a key identifier must not be empty; issuer and serial number
/// are both present or both absent.
fn validate_authority_key_id(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    let id = fields.optional(context(0))?;
    require(id.is_none_or(|id| !id.content.is_empty()), "the key identifier must not be empty (RFC 5280 4.2.1.1)")?;
    let issuer = fields.optional(context_constructed(1))?;
    let serial = fields.optional(context(2))?;
    fields.done()?;
    require(
        issuer.is_some() == serial.is_some(),
        "issuer and serial number must be both present or both absent (RFC 5280 4.2.1.1)",
    )?;
    serial.map_or(Ok(()), |serial| check_integer(serial.content))?;
    issuer.map_or(Ok(()), |issuer| validate_names(issuer.reader()))
}

fn validate_subject_key_id(value: &[u8]) -> DerResult<()> {
    let id = DerReader::read_single(value, OCTET_STRING)?.content;
    require(!id.is_empty(), "must not be empty (RFC 5280 4.2.1.2)")
}

/// Validates keyUsage (RFC 5280 4.2.1.3): at least one of nine bits, without trailing zero bits. encipherOnly and
/// decipherOnly are only defined together with keyAgreement.
fn validate_key_usage(value: &[u8]) -> DerResult<()> {
    let usage = raw_extension::read_key_usage(value)?;
    require(!usage.is_empty(), "must have at least one bit (RFC 5280 4.2.1.3)")?;
    let narrows = usage.contains(KeyUsage::ENCIPHER_ONLY) || usage.contains(KeyUsage::DECIPHER_ONLY);
    let agrees = usage.contains(KeyUsage::KEY_AGREEMENT);
    require(agrees || !narrows, "encipherOnly and decipherOnly need keyAgreement (RFC 5280 4.2.1.3)")?;
    validate_named_bits(DerReader::read_single(value, BIT_STRING)?.content)
}

/// Checks the content of a BIT STRING with up to nine named bits. The last bit must be 1 (X.690 11.2.2).
fn validate_named_bits(content: &[u8]) -> DerResult<()> {
    match content {
        [0] => Ok(()),
        [unused @ 0..=7, .., last] if last.trailing_zeros() == u32::from(*unused) => {
            let bits = (content.len() - 1) * 8 - usize::from(*unused);
            require(bits <= 9, "has undefined bits (RFC 5280 4.2.1.3, 4.2.1.13)")
        }
        _ => Err(DerError("must not end in zero bits (X.690 11.2.2)")),
    }
}

/// Validates GeneralNames (RFC 5280 4.2.1.6, 4.2.1.7, 5.3.3), of which there must be at least one.
fn validate_alt_names(value: &[u8]) -> DerResult<()> {
    alt_names::check_alt_names_size(value)?;
    validate_names(read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.6)")?)
}

/// Validates basicConstraints (RFC 5280 4.2.1.9) of CA and end-entity certificates.
fn validate_basic_constraints(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    require(fields.optional_boolean()? != Some(false), "cA encodes the default FALSE (X.690 11.5)")?;
    if !fields.is_empty() {
        fields.read_u32()?;
    }
    fields.done()
}

/// Validates extKeyUsage (RFC 5280 4.2.1.12), which needs at least one purpose.
fn validate_ext_key_usage(value: &[u8]) -> DerResult<()> {
    let mut purposes = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.12)")?;
    while !purposes.is_empty() {
        read_oid(&mut purposes)?;
    }
    Ok(())
}

/// Validates inhibitAnyPolicy (RFC 5280 4.2.1.14): a non-negative INTEGER of at most 32 bits.
fn validate_inhibit_any_policy(value: &[u8]) -> DerResult<()> {
    DerReader::read_to_end(value, DerReader::read_u32).map(drop)
}

/// Validates a CRL number (RFC 5280 5.2.3): non-negative, at most 20 bytes.
fn validate_crl_number(value: &[u8]) -> DerResult<()> {
    let octets = DerReader::read_to_end(value, DerReader::unsigned)?;
    require(octets.len() <= 20, "must have at most 20 octets (RFC 5280 5.2.3)")
}

/// Validates subjectDirectoryAttributes (RFC 5280 4.2.1.8): attributes with at least one value each, of arbitrary
/// types.
fn validate_directory_attributes(value: &[u8]) -> DerResult<()> {
    let mut attributes = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.8)")?;
    while !attributes.is_empty() {
        let mut attribute = attributes.sequence()?;
        read_oid(&mut attribute)?;
        let values = attribute.expect(SET)?.content;
        attribute.done()?;
        require(!values.is_empty(), "an attribute has no value (RFC 5280 4.2.1.8)")?;
        check_der(values)?;
    }
    Ok(())
}

/// Validates privateKeyUsagePeriod (RFC 3280 4.2.1.4): a start, an end, or both in this order.
fn validate_key_usage_period(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    let mut at = |tag| -> DerResult<Option<i64>> {
        fields.optional(context(tag))?.map(|at| time::parse(GENERALIZED_TIME, at.content)).transpose()
    };
    let start = at(0)?;
    let end = at(1)?;
    fields.done()?;
    require(start.is_some() || end.is_some(), "must not be empty (RFC 3280 4.2.1.4)")?;
    require(start.zip(end).is_none_or(|(start, end)| start <= end), "ends before it starts (RFC 3280 4.2.1.4)")
}

/// Validates the TLS features extension (RFC 7633), numbers of TLS extensions. Certificate readers support only the two
/// numbers that are in use.
fn validate_tls_features(value: &[u8]) -> DerResult<()> {
    let mut features = read_nonempty_list(value, "must not be empty (RFC 7633 4.1)")?;
    while !features.is_empty() {
        let known = matches!(features.read_u32()?, 5 | 17);
        require(known, "contains features other than status_request (5) and status_request_v2 (17) (RFC 7633 4.2)")?;
    }
    Ok(())
}

/// Validates a BIT STRING with arbitrary bits.
fn validate_bit_string(value: &[u8]) -> DerResult<()> {
    check_bit_string(DerReader::read_single(value, BIT_STRING)?.content)
}

/// Rejects the extensions for IP addresses and AS numbers: RFC 3779 2.3 and 3.3 require that the issuer holds these
/// resources, which the server does not check.
fn reject_resources(_: &[u8]) -> DerResult<()> {
    Err(DerError("is not supported: the server does not check that the issuer holds the resources (RFC 3779 2.3, 3.3)"))
}

fn reject_proxy(_: &[u8]) -> DerResult<()> {
    Err(DerError("is not supported: a CA must not issue proxy certificates (RFC 3820 3.1)"))
}

fn reject_in_certificate(_: &[u8]) -> DerResult<()> {
    Err(DerError("must not be in a certificate (RFC 5280 5.2, 5.3)"))
}

fn validate_null(value: &[u8]) -> DerResult<()> {
    require(value == [NULL, 0], "must contain NULL")
}

/// Validates Microsoft's certificate template extension (CertificateTemplateOID): an OID and up to two version numbers.
fn validate_template(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    read_oid(&mut fields)?;
    for _ in 0..2 {
        if !fields.is_empty() {
            fields.read_u32()?;
        }
    }
    fields.done()
}

/// Requires a defined reason code (RFC 5280 5.3.1).
fn validate_reason_code(value: &[u8]) -> DerResult<()> {
    match DerReader::read_single(value, ENUMERATED)?.content {
        [0..=6 | 8..=10] => Ok(()),
        _ => Err(DerError("unknown reason code (RFC 5280 5.3.1)")),
    }
}

/// Requires one GeneralizedTime (RFC 5280 5.3.2).
fn validate_invalidity_date(value: &[u8]) -> DerResult<()> {
    time::parse(GENERALIZED_TIME, DerReader::read_single(value, GENERALIZED_TIME)?.content).map(drop)
}

#[cfg(test)]
mod tests;
