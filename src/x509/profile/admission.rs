//! The extension for professional admissions (Common PKI 2.0, part 1, table 29a). RFC 5280 does not define it, but
//! certificate readers reject certificates with a malformed one.

use super::general_name::validate_name;
use super::{name, read_oid, require, text};
use crate::x509::reader::{DerReader, DerResult};
use crate::x509::writer::{
    IA5_STRING, OCTET_STRING, OID, PRINTABLE_STRING, SEQUENCE, UTF8_STRING, context_constructed,
};

/// Maximum length of a text in an admission, in bytes.
const MAX_ADMISSION_TEXT_BYTES: usize = 128;

/// Validates AdmissionSyntax: the admission authority and a list of admissions.
pub(super) fn validate(value: &[u8]) -> DerResult<()> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    if fields.next_tag().is_some_and(|tag| tag != SEQUENCE) {
        validate_name(&fields.any()?, text::validate_location_uri)?;
    }
    let mut admissions = fields.sequence()?;
    fields.done()?;
    while !admissions.is_empty() {
        read_admission(admissions.sequence()?)?;
    }
    Ok(())
}

fn read_admission(mut fields: DerReader<'_>) -> DerResult<()> {
    if let Some(explicit) = fields.optional(context_constructed(0))? {
        validate_name(&DerReader::read_to_end(explicit.content, DerReader::any)?, text::validate_location_uri)?;
    }
    read_naming_authority(&mut fields, 1)?;
    let mut professions = fields.sequence()?;
    fields.done()?;
    while !professions.is_empty() {
        read_profession(professions.sequence()?)?;
    }
    Ok(())
}

fn read_naming_authority(fields: &mut DerReader<'_>, tag: u8) -> DerResult<()> {
    let Some(authority) = fields.optional_explicit(tag, SEQUENCE)? else { return Ok(()) };
    let mut authority = authority.reader();
    if authority.next_tag() == Some(OID) {
        read_oid(&mut authority)?;
    }
    if let Some(url) = authority.optional(IA5_STRING)? {
        name::validate_string(url.tag, url.content)?;
    }
    if !authority.is_empty() {
        read_directory_string(&mut authority)?;
    }
    authority.done()
}

/// Reads a DirectoryString. Only a UTF8String is accepted, the type that every certificate reader supports.
fn read_directory_string(fields: &mut DerReader<'_>) -> DerResult<()> {
    let value = fields.any()?;
    let fits = value.tag == UTF8_STRING && (1..=MAX_ADMISSION_TEXT_BYTES).contains(&value.content.len());
    require(fits, "a text is not a UTF8String of 1 to 128 octets (Common PKI 2.0)")?;
    name::validate_string(value.tag, value.content)
}

fn read_profession(mut fields: DerReader<'_>) -> DerResult<()> {
    read_naming_authority(&mut fields, 0)?;
    let mut items = fields.sequence()?;
    while !items.is_empty() {
        read_directory_string(&mut items)?;
    }
    if let Some(identifiers) = fields.optional(SEQUENCE)? {
        let mut identifiers = identifiers.reader();
        while !identifiers.is_empty() {
            read_oid(&mut identifiers)?;
        }
    }
    if let Some(number) = fields.optional(PRINTABLE_STRING)? {
        require(
            (1..=MAX_ADMISSION_TEXT_BYTES).contains(&number.content.len()),
            "a registration number must have 1 to 128 characters",
        )?;
        name::validate_string(number.tag, number.content)?;
    }
    fields.optional(OCTET_STRING)?;
    fields.done()
}
