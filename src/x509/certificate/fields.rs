//! The fields of a certificate's signed part (RFC 5280 4.1.2), as slices of it. Certificates that come in
//! are read this way, and those that go out are read back before they are signed.

use crate::x509::reader::{Read, Reader, Tlv};
use crate::x509::time;
use crate::x509::writer::{INTEGER, SEQUENCE, context, context_constructed};

/// A TBSCertificate, taken apart; nothing of it is judged but its shape.
pub struct CertificateFields<'a> {
    /// The explicit version, whole; empty where it has its default.
    pub version: &'a [u8],
    /// The number of the version: 0 is version 1, 2 is version 3.
    pub version_number: u32,
    /// The serial number's octets.
    pub serial: &'a [u8],
    /// The whole AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    /// The whole Name of the issuer.
    pub issuer: &'a [u8],
    /// The two times.
    pub validity: Tlv<'a>,
    /// Start of validity, epoch seconds.
    pub not_before: i64,
    /// End of validity, inclusive, epoch seconds.
    pub not_after: i64,
    /// The whole Name of the subject.
    pub subject: &'a [u8],
    /// The whole SubjectPublicKeyInfo.
    pub spki: &'a [u8],
    /// issuerUniqueID and subjectUniqueID, whole, in that order.
    pub unique_ids: [&'a [u8]; 2],
    /// The elements of the Extensions; `None` where the field is absent.
    pub extensions: Option<Reader<'a>>,
}

impl<'a> CertificateFields<'a> {
    /// Reads the content of a TBSCertificate.
    ///
    /// # Errors
    /// The rule of DER that is broken.
    pub fn read(mut fields: Reader<'a>) -> Read<Self> {
        let version = fields.optional(context_constructed(0))?;
        let version_number = version.map_or(Ok(0), |v| Reader::new(Reader::only(v.content, INTEGER)?.raw).small())?;
        let serial = fields.unsigned()?;
        let algorithm = fields.expect(SEQUENCE)?.raw;
        let issuer = fields.expect(SEQUENCE)?.raw;
        let validity = fields.expect(SEQUENCE)?;
        let (not_before, not_after) = read_validity(validity.reader())?;
        let subject = fields.expect(SEQUENCE)?.raw;
        let spki = fields.expect(SEQUENCE)?.raw;
        let mut unique_id = |tag| Ok(fields.optional(context(tag))?.map_or(&[][..], |id| id.raw));
        let unique_ids = [unique_id(1)?, unique_id(2)?];
        let extensions = match fields.optional(context_constructed(3))? {
            Some(explicit) => Some(Reader::only(explicit.content, SEQUENCE)?.reader()),
            None => None,
        };
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

fn read_validity(mut fields: Reader<'_>) -> Read<(i64, i64)> {
    let validity = (time::read(&mut fields)?, time::read(&mut fields)?);
    fields.done()?;
    Ok(validity)
}
