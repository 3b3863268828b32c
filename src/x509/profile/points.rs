//! Distribution points (RFC 5280 4.2.1.13, 4.2.1.15, 5.2.5) and access descriptions (4.2.2).

use super::general_name::validate_name;
use super::{read_nonempty_list, read_oid, require, text, validate_named_bits, validate_names};
use crate::x509::reader::{DerError, DerReader, DerResult, Tlv};
use crate::x509::writer::{SEQUENCE, context, context_constructed};

/// Validates cRLDistributionPoints and freshestCRL.
pub(super) fn validate_distribution_points(value: &[u8]) -> DerResult<()> {
    let mut points = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.13)")?;
    while !points.is_empty() {
        let mut point = points.sequence()?;
        let name = point.optional(context_constructed(0))?;
        let reasons = point.optional(context(1))?;
        let issuer = point.optional(context_constructed(2))?;
        point.done()?;
        let placed = name.is_some() || issuer.is_some();
        require(placed, "a distribution point has neither distributionPoint nor cRLIssuer (RFC 5280 4.2.1.13)")?;
        name.map_or(Ok(()), |name| validate_point_name(&name))?;
        reasons.map_or(Ok(()), |reasons| validate_reason_flags(&reasons))?;
        if let Some(issuer) = issuer {
            require(!issuer.content.is_empty(), "cRLIssuer is empty (RFC 5280 4.2.1.13)")?;
            validate_names(issuer.reader())?;
        }
    }
    Ok(())
}

/// Validates a DistributionPointName, which must have full names. RFC 5280 4.2.1.13 advises against names relative to
/// the issuer, and some certificate readers do not support them.
fn validate_point_name(name: &Tlv<'_>) -> DerResult<()> {
    let mut choice = name.reader();
    let Some(full) = choice.optional(context_constructed(0))? else {
        return Err(DerError("a distribution point has no fullName (RFC 5280 4.2.1.13)"));
    };
    choice.done()?;
    require(!full.content.is_empty(), "the fullName of a distribution point is empty (RFC 5280 4.2.1.13)")?;
    let mut names = full.reader();
    while !names.is_empty() {
        validate_name(&names.any()?, text::validate_location_uri)?;
    }
    Ok(())
}

fn validate_reason_flags(flags: &Tlv<'_>) -> DerResult<()> {
    require(flags.content.len() > 1, "the reasons of a distribution point are empty (RFC 5280 4.2.1.13)")?;
    validate_named_bits(flags.content)
}

/// Validates issuingDistributionPoint: it is not empty, and its flags do not contradict each other.
pub(super) fn validate_issuing_distribution_point(value: &[u8]) -> DerResult<()> {
    let mut fields = read_nonempty_list(value, "must not be empty (RFC 5280 5.2.5)")?;
    if let Some(name) = fields.optional(context_constructed(0))? {
        validate_point_name(&name)?;
    }
    let users = read_flag(&mut fields, 1)?;
    let authorities = read_flag(&mut fields, 2)?;
    if let Some(reasons) = fields.optional(context(3))? {
        validate_reason_flags(&reasons)?;
    }
    read_flag(&mut fields, 4)?;
    let attributes = read_flag(&mut fields, 5)?;
    fields.done()?;
    require(
        !(users && authorities),
        "onlyContainsUserCerts and onlyContainsCACerts must not both be TRUE (RFC 5280 5.2.5)",
    )?;
    require(!attributes, "onlyContainsAttributeCerts must be FALSE (RFC 5280 5.2.5)")
}

/// Reads a BOOLEAN DEFAULT FALSE with an implicit tag.
fn read_flag(fields: &mut DerReader<'_>, tag: u8) -> DerResult<bool> {
    match fields.optional(context(tag))?.map(|flag| flag.content) {
        None => Ok(false),
        Some([0xff]) => Ok(true),
        Some(_) => Err(DerError("a flag must be TRUE (0xFF) or absent (X.690 11.1, 11.5)")),
    }
}

/// Validates authorityInfoAccess and subjectInfoAccess.
pub(super) fn validate_access_descriptions(value: &[u8]) -> DerResult<()> {
    let mut descriptions = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.2.1)")?;
    while !descriptions.is_empty() {
        let mut description = descriptions.expect(SEQUENCE)?.reader();
        read_oid(&mut description)?;
        validate_name(&description.any()?, text::validate_location_uri)?;
        description.done()?;
    }
    Ok(())
}
