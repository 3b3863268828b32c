//! Certificate policies (RFC 5280 4.2.1.4, 4.2.1.5, 4.2.1.11).

use std::collections::HashSet;

use super::{name, read_nonempty_list, read_oid, require};
use crate::x509::oid;
use crate::x509::reader::{DerError, DerReader, DerResult, check_integer};
use crate::x509::writer::{BMP_STRING, IA5_STRING, SEQUENCE, UTF8_STRING, VISIBLE_STRING, context};

const MAX_POLICIES: usize = 1000;
/// Maximum length of the text of a user notice, in characters.
const MAX_NOTICE_CHARS: usize = 200;

/// Validates certificatePolicies: not empty, without duplicates, with known qualifiers only.
pub(super) fn validate(value: &[u8]) -> DerResult<()> {
    let mut policies = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.4)")?;
    let mut seen = HashSet::new();
    while !policies.is_empty() {
        require(seen.len() < MAX_POLICIES, "more than 1000 certificate policies")?;
        let mut policy = policies.sequence()?;
        require(seen.insert(read_oid(&mut policy)?), "a certificate policy appears twice (RFC 5280 4.2.1.4)")?;
        if !policy.is_empty() {
            let qualifiers = policy.expect(SEQUENCE)?;
            validate_qualifiers(read_nonempty_list(qualifiers.raw, "policyQualifiers are empty (RFC 5280 4.2.1.4)")?)?;
        }
        policy.done()?;
    }
    Ok(())
}

fn validate_qualifiers(mut qualifiers: DerReader<'_>) -> DerResult<()> {
    while !qualifiers.is_empty() {
        let mut qualifier = qualifiers.sequence()?;
        match qualifier.oid()? {
            oid::QUALIFIER_CPS => {
                let uri = qualifier.expect(IA5_STRING)?;
                name::validate_string(uri.tag, uri.content)?;
            }
            oid::QUALIFIER_NOTICE => validate_notice(qualifier.sequence()?)?,
            _ => return Err(DerError("a policy qualifier is neither cPSuri nor userNotice (RFC 5280 4.2.1.4)")),
        }
        qualifier.done()?;
    }
    Ok(())
}

/// Validates a UserNotice: an optional reference and an optional text.
fn validate_notice(mut fields: DerReader<'_>) -> DerResult<()> {
    if let Some(reference) = fields.optional(SEQUENCE)? {
        let mut parts = reference.reader();
        let organization = parts.any()?;
        let of_type = matches!(organization.tag, UTF8_STRING | IA5_STRING | VISIBLE_STRING | BMP_STRING);
        validate_display_text(of_type, organization.tag, organization.content)?;
        let mut numbers = parts.sequence()?;
        parts.done()?;
        while !numbers.is_empty() {
            numbers.unsigned()?;
        }
    }
    if !fields.is_empty() {
        let text = fields.any()?;
        validate_display_text(matches!(text.tag, UTF8_STRING | IA5_STRING), text.tag, text.content)?;
    }
    fields.done()
}

fn validate_display_text(of_type: bool, tag: u8, content: &[u8]) -> DerResult<()> {
    require(of_type, "the text of a notice has a type that RFC 5280 4.2.1.4 does not permit")?;
    // A VisibleString is ASCII, so it is validated like an IA5String.
    name::validate_string(if tag == VISIBLE_STRING { IA5_STRING } else { tag }, content)?;
    let characters = match tag {
        UTF8_STRING => content.iter().filter(|b| **b & 0xc0 != 0x80).count(),
        BMP_STRING => content.len() / 2,
        _ => content.len(),
    };
    require(
        (1..=MAX_NOTICE_CHARS).contains(&characters),
        "the text of a notice must have 1 to 200 characters (RFC 5280 4.2.1.4)",
    )
}

/// Validates policyMappings: pairs of OIDs without anyPolicy.
pub(super) fn validate_mappings(value: &[u8]) -> DerResult<()> {
    let mut mappings = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.5)")?;
    while !mappings.is_empty() {
        let mut pair = mappings.sequence()?;
        for _ in 0..2 {
            let special = read_oid(&mut pair)? != oid::ANY_POLICY;
            require(special, "anyPolicy must not be mapped (RFC 5280 4.2.1.5)")?;
        }
        pair.done()?;
    }
    Ok(())
}

/// Validates policyConstraints: at least one of its two fields, each a number of certificates.
pub(super) fn validate_constraints(value: &[u8]) -> DerResult<()> {
    let mut fields = read_nonempty_list(value, "must not be empty (RFC 5280 4.2.1.11)")?;
    for tag in [0, 1] {
        if let Some(number) = fields.optional(context(tag))? {
            check_integer(number.content)?;
            let small = number.content[0] < 0x80 && number.content.len() <= 4;
            require(small, "a number of certificates is negative or too large (RFC 5280 4.2.1.11)")?;
        }
    }
    fields.done()
}
