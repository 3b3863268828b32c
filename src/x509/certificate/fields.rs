//! The fields of a TBSCertificate (RFC 5280 4.1.2) as slices. Used for received certificates, and for the bytes of new
//! certificates before they are signed.

use crate::x509::reader::{DerReader, DerResult, Tlv};
use crate::x509::time;
use crate::x509::writer::{SEQUENCE, context, context_constructed};

/// The fields of a TBSCertificate. Only the structure is validated.
pub struct CertificateFields<'a> {
    /// The encoded explicit version; empty for version 1, the default.
    pub version: &'a [u8],
    /// The version number: 0 is version 1, 2 is version 3.
    pub version_number: u32,
    /// The serial number, without leading zeros.
    pub serial: &'a [u8],
    /// The encoded AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    /// The encoded issuer Name.
    pub issuer: &'a [u8],
    /// The encoded Validity.
    pub validity: Tlv<'a>,
    /// Start of validity, epoch seconds.
    pub not_before: i64,
    /// End of validity, inclusive, epoch seconds.
    pub not_after: i64,
    /// The encoded subject Name.
    pub subject: &'a [u8],
    /// The encoded SubjectPublicKeyInfo.
    pub spki: &'a [u8],
    /// The encoded issuerUniqueID and subjectUniqueID, in this order; empty if absent.
    pub unique_ids: [&'a [u8]; 2],
    /// The elements of the Extensions; `None` if the field is absent.
    pub extensions: Option<DerReader<'a>>,
}

impl<'a> CertificateFields<'a> {
    /// Reads the content of a TBSCertificate.
    ///
    /// # Errors
    /// The violated rule.
    pub fn read(mut fields: DerReader<'a>) -> DerResult<Self> {
        let version = fields.optional(context_constructed(0))?;
        let version_number =
            version.map_or(Ok(0), |version| DerReader::read_to_end(version.content, DerReader::read_u32))?;
        let serial = fields.unsigned()?;
        let algorithm = fields.expect(SEQUENCE)?.raw;
        let issuer = fields.expect(SEQUENCE)?.raw;
        let validity = fields.expect(SEQUENCE)?;
        let (not_before, not_after) = read_validity(validity.reader())?;
        let subject = fields.expect(SEQUENCE)?.raw;
        let spki = fields.expect(SEQUENCE)?.raw;
        let mut unique_id = |tag| Ok(fields.optional(context(tag))?.map_or(&[][..], |id| id.raw));
        let unique_ids = [unique_id(1)?, unique_id(2)?];
        let extensions = fields.optional_explicit(3, SEQUENCE)?.map(|list| list.reader());
        fields.done()?;
        Ok(Self {
            version: version.map_or(&[], |v| v.raw),
            version_number,
            serial,
            algorithm,
            issuer,
            validity,
            not_before,
            not_after,
            subject,
            spki,
            unique_ids,
            extensions,
        })
    }
}

fn read_validity(mut fields: DerReader<'_>) -> DerResult<(i64, i64)> {
    let validity = (time::read(&mut fields)?, time::read(&mut fields)?);
    fields.done()?;
    Ok(validity)
}
