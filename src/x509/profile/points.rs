//! Distribution points (RFC 5280 4.2.1.13, 4.2.1.15, 5.2.5) and access descriptions (4.2.2).

use super::general_name::one;
use super::{elements, identifier, named_bits, names, rule, text};
use crate::x509::reader::{DerError, Read, Reader, Tlv};
use crate::x509::writer::{SEQUENCE, context, context_constructed};

/// cRLDistributionPoints and freshestCRL.
pub(super) fn distribution_points(value: &[u8]) -> Read<()> {
    let mut points = elements(value, "must not be empty (RFC 5280 4.2.1.13)")?;
    while !points.is_empty() {
        let mut point = points.sequence()?;
        let name = point.optional(context_constructed(0))?;
        let reasons = point.optional(context(1))?;
        let issuer = point.optional(context_constructed(2))?;
        point.done()?;
        let placed = name.is_some() || issuer.is_some();
        rule(placed, "a point has neither distributionPoint nor cRLIssuer (RFC 5280 4.2.1.13)")?;
        name.map_or(Ok(()), |name| point_name(&name))?;
        reasons.map_or(Ok(()), |reasons| reason_flags(&reasons))?;
        if let Some(issuer) = issuer {
            rule(!issuer.content.is_empty(), "cRLIssuer is empty (RFC 5280 4.2.1.13)")?;
            names(issuer.reader())?;
        }
    }
    Ok(())
}

/// DistributionPointName, which must have full names. RFC 5280 4.2.1.13 advises against names relative to the issuer,
/// and some readers do not support them.
fn point_name(name: &Tlv<'_>) -> Read<()> {
    let mut choice = name.reader();
    let Some(full) = choice.optional(context_constructed(0))? else {
        return Err(DerError("a point is not named by its full name (RFC 5280 4.2.1.13)"));
    };
    choice.done()?;
    rule(!full.content.is_empty(), "a point's name is empty (RFC 5280 4.2.1.13)")?;
    let mut names = full.reader();
    while !names.is_empty() {
        one(&names.any()?, text::location)?;
    }
    Ok(())
}

fn reason_flags(flags: &Tlv<'_>) -> Read<()> {
    rule(flags.content.len() > 1, "the reasons of a point are empty (RFC 5280 4.2.1.13)")?;
    named_bits(flags.content)
}

/// issuingDistributionPoint: not empty, and with one scope.
pub(super) fn issuing_distribution_point(value: &[u8]) -> Read<()> {
    let mut fields = elements(value, "must not be empty (RFC 5280 5.2.5)")?;
    if let Some(name) = fields.optional(context_constructed(0))? {
        point_name(&name)?;
    }
    let users = flag(&mut fields, 1)?;
    let authorities = flag(&mut fields, 2)?;
    if let Some(reasons) = fields.optional(context(3))? {
        reason_flags(&reasons)?;
    }
    flag(&mut fields, 4)?;
    let attributes = flag(&mut fields, 5)?;
    fields.done()?;
    rule(!(users && authorities), "only user and only CA certificates exclude each other (RFC 5280 5.2.5)")?;
    rule(!attributes, "onlyContainsAttributeCerts must be FALSE (RFC 5280 5.2.5)")
}

/// Reads a BOOLEAN DEFAULT FALSE with an implicit tag.
fn flag(fields: &mut Reader<'_>, tag: u8) -> Read<bool> {
    match fields.optional(context(tag))?.map(|flag| flag.content) {
        None => Ok(false),
        Some([0xff]) => Ok(true),
        Some(_) => Err(DerError("a flag is no TRUE in DER (X.690 11.1, 11.5)")),
    }
}

/// authorityInfoAccess and subjectInfoAccess.
pub(super) fn descriptions(value: &[u8]) -> Read<()> {
    let mut descriptions = elements(value, "must not be empty (RFC 5280 4.2.2.1)")?;
    while !descriptions.is_empty() {
        let mut description = descriptions.expect(SEQUENCE)?.reader();
        identifier(&mut description)?;
        one(&description.any()?, text::location)?;
        description.done()?;
    }
    Ok(())
}
