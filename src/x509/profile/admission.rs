//! Professional admissions (Common PKI 2.0, part 1, table 29a). RFC 5280 does not define them, but certificate
//! readers reject certificates with malformed ones.

use super::general_name::one;
use super::{identifier, name, rule, text};
use crate::x509::reader::{Read, Reader};
use crate::x509::writer::{
    IA5_STRING, OCTET_STRING, OID, PRINTABLE_STRING, SEQUENCE, UTF8_STRING, context_constructed,
};

/// Maximum length of a text, in bytes.
const MAX_TEXT: usize = 128;

/// AdmissionSyntax: the admission authority and a list of admissions.
pub(super) fn read(value: &[u8]) -> Read<()> {
    let mut fields = Reader::only(value, SEQUENCE)?.reader();
    if let [tag, ..] = fields.rest()
        && *tag != SEQUENCE
    {
        one(&fields.any()?, text::location)?;
    }
    let mut admissions = fields.sequence()?;
    fields.done()?;
    while !admissions.is_empty() {
        admission(admissions.sequence()?)?;
    }
    Ok(())
}

fn admission(mut fields: Reader<'_>) -> Read<()> {
    if let Some(explicit) = fields.optional(context_constructed(0))? {
        let mut inside = explicit.reader();
        one(&inside.any()?, text::location)?;
        inside.done()?;
    }
    naming_authority(&mut fields, 1)?;
    let mut professions = fields.sequence()?;
    fields.done()?;
    while !professions.is_empty() {
        profession(professions.sequence()?)?;
    }
    Ok(())
}

fn naming_authority(fields: &mut Reader<'_>, tag: u8) -> Read<()> {
    let Some(explicit) = fields.optional(context_constructed(tag))? else { return Ok(()) };
    let mut authority = Reader::only(explicit.content, SEQUENCE)?.reader();
    if authority.rest().first() == Some(&OID) {
        identifier(&mut authority)?;
    }
    if let Some(url) = authority.optional(IA5_STRING)? {
        name::text(url.tag, url.content)?;
    }
    if !authority.is_empty() {
        directory_string(&mut authority)?;
    }
    authority.done()
}

/// Reads a DirectoryString of the type that every reader supports.
fn directory_string(fields: &mut Reader<'_>) -> Read<()> {
    let value = fields.any()?;
    let fits = value.tag == UTF8_STRING && (1..=MAX_TEXT).contains(&value.content.len());
    rule(fits, "a text is no UTF8String of 1 to 128 octets (Common PKI 2.0)")?;
    name::text(value.tag, value.content)
}

fn profession(mut fields: Reader<'_>) -> Read<()> {
    naming_authority(&mut fields, 0)?;
    let mut items = fields.sequence()?;
    while !items.is_empty() {
        directory_string(&mut items)?;
    }
    if let Some(identifiers) = fields.optional(SEQUENCE)? {
        let mut identifiers = identifiers.reader();
        while !identifiers.is_empty() {
            identifier(&mut identifiers)?;
        }
    }
    if let Some(number) = fields.optional(PRINTABLE_STRING)? {
        rule((1..=MAX_TEXT).contains(&number.content.len()), "a registration number has 1 to 128 characters")?;
        name::text(number.tag, number.content)?;
    }
    fields.optional(OCTET_STRING)?;
    fields.done()
}
