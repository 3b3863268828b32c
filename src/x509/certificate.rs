//! Parsed certificates (RFC 5280 4.1): imported issuers, certificates to revoke, and chains. They keep their original
//! bytes.

mod fields;

use std::ops::RangeInclusive;

use super::algorithm::SignatureAlgorithm;
use super::general_name::ParsedSans;
use super::oid;
use super::pem;
use super::pieces::{Extensions, Name};
use super::public_key::PublicKey;
use super::raw_extension::{self, BasicConstraints, RawExtension};
use super::reader::{DerError, DerReader, DerResult, check_bit_string};
use super::serial::Serial;
use super::signed::SignedDer;
use super::tbs::write_extensions;
use super::usage::KeyUsage;
use super::writer::{SEQUENCE, build};
use crate::error::{Error, Result};
pub use fields::CertificateFields;

/// A parsed certificate. Parsing does not verify the signature; see [`Certificate::is_signed_by`].
#[derive(Clone, Debug)]
pub struct Certificate {
    signed: SignedDer,
    serial: Serial,
    issuer: Name,
    not_before: i64,
    not_after: i64,
    subject: Name,
    key: PublicKey,
    extensions: Vec<RawExtension>,
    basic_constraints: BasicConstraints,
    key_usage: Option<KeyUsage>,
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
}

impl Certificate {
    /// Reads one certificate in DER.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, for malformed DER, an unsupported public key, a duplicate extension, an invalid
    /// serial number, and two different signature algorithms. An unaccepted signature algorithm is no error here.
    pub fn parse(der: &[u8]) -> Result<Self> {
        Self::read(der, RawExtension::read_all)
    }

    /// Like [`Certificate::parse`], for a certificate from a request: limits its size.
    ///
    /// # Errors
    /// `Invalid` also above [`pem::MAX_DER_BYTES`] bytes or [`MAX_EXTENSIONS`](raw_extension::MAX_EXTENSIONS)
    /// extensions, which are counted before they are read.
    pub fn parse_untrusted(der: &[u8]) -> Result<Self> {
        if der.len() > pem::MAX_DER_BYTES {
            return Err(Error::invalid("certificate: longer than 64 KiB of PEM"));
        }
        Self::read(der, RawExtension::read_bounded)
    }

    fn read(der: &[u8], extensions_of: fn(DerReader<'_>) -> DerResult<Vec<RawExtension>>) -> Result<Self> {
        let of = |e: DerError| e.into_error("certificate");
        let signed = SignedDer::read(der.to_vec()).map_err(of)?;
        let fields = CertificateFields::read(signed.fields()).map_err(of)?;
        check_structure(&fields, signed.algorithm_der()).map_err(of)?;
        let key = PublicKey::parse(fields.spki).map_err(|e| Error::invalid(format!("certificate: {}", e.text())))?;
        let extensions = fields.extensions.map_or(Ok(Vec::new()), extensions_of).map_err(of)?;
        Ok(Self {
            serial: Serial::from_octets(fields.serial)?,
            issuer: Name::from_der(fields.issuer).map_err(of)?,
            not_before: fields.not_before,
            not_after: fields.not_after,
            subject: Name::from_der(fields.subject).map_err(of)?,
            key,
            basic_constraints: raw_extension::basic_constraints(&extensions).map_err(of)?.unwrap_or_default(),
            key_usage: raw_extension::key_usage(&extensions).map_err(of)?,
            subject_key_id: raw_extension::subject_key_id(&extensions).map_err(of)?,
            authority_key_id: raw_extension::authority_key_id(&extensions).map_err(of)?,
            extensions,
            signed,
        })
    }

    fn fields(&self) -> CertificateFields<'_> {
        CertificateFields::read(self.signed.fields()).expect("the fields of a parsed certificate are valid")
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        self.signed.der()
    }

    /// The original bytes of the TBSCertificate.
    pub fn tbs(&self) -> &[u8] {
        self.signed.tbs()
    }

    /// The serial number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The subject, with its original bytes.
    pub fn subject(&self) -> &Name {
        &self.subject
    }

    /// The issuer, with its original bytes.
    pub fn issuer(&self) -> &Name {
        &self.issuer
    }

    /// The subject's public key.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Start of validity, epoch seconds.
    pub fn not_before(&self) -> i64 {
        self.not_before
    }

    /// End of validity, inclusive, epoch seconds.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The validity, inclusive, in epoch seconds.
    pub fn validity_range(&self) -> RangeInclusive<i64> {
        self.not_before()..=self.not_after()
    }

    /// The subject key identifier, of any length.
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.subject_key_id.as_deref()
    }

    /// The key identifier in authorityKeyIdentifier.
    pub fn authority_key_id(&self) -> Option<Vec<u8>> {
        self.authority_key_id.clone()
    }

    /// `true` if basicConstraints has cA TRUE. Certificates of versions 1 and 2 have no basicConstraints.
    pub fn is_ca(&self) -> bool {
        self.basic_constraints.ca
    }

    /// Number of further CA certificates that may follow below this one in a chain; `None` for no limit.
    pub fn path_length(&self) -> Option<u32> {
        self.basic_constraints.path_length
    }

    /// The key usage; `None` if the extension is absent, which allows all usages.
    pub fn key_usage(&self) -> Option<KeyUsage> {
        self.key_usage
    }

    /// All extensions, in order.
    pub fn extensions(&self) -> &[RawExtension] {
        &self.extensions
    }

    /// The extension with this OID (DER content bytes).
    pub fn extension(&self, oid: &[u8]) -> Option<&RawExtension> {
        raw_extension::find_extension(&self.extensions, oid)
    }

    /// Returns the subject alternative names; empty if the extension is absent.
    ///
    /// # Errors
    /// `Invalid` when the names are malformed.
    pub fn sans(&self) -> Result<ParsedSans> {
        match self.extension(oid::SUBJECT_ALT_NAME) {
            Some(extension) => ParsedSans::read(&extension.value).map_err(|e| e.into_error("certificate")),
            None => Ok(ParsedSans::default()),
        }
    }

    /// The signature algorithm; `None` if it is not accepted (SHA-1, MD5, unknown).
    pub fn signature_algorithm(&self) -> Option<SignatureAlgorithm> {
        self.signed.algorithm().ok()
    }

    /// Rejects a certificate whose signature algorithm is not accepted.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, for SHA-1, MD5, unknown algorithms and parameters.
    pub fn check_algorithm(&self) -> Result<()> {
        self.signed.algorithm().map(drop)
    }

    /// `true` if the signature is valid under `key`, with an accepted algorithm.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.signed.verify(key).is_ok()
    }

    /// Like [`Certificate::is_signed_by`], but also accepts SHA-1. For existing signatures that no trust depends on,
    /// such as the signature of a root.
    pub fn is_signed_by_allowing_sha1(&self, key: &PublicKey) -> bool {
        self.signed.is_signed_by_any_hash(key)
    }

    /// `true` if subject and issuer match, and the authority key identifier, if any, equals the subject key identifier.
    pub fn names_itself_as_issuer(&self) -> bool {
        let names_another = self.authority_key_id.is_some() && self.authority_key_id != self.subject_key_id;
        self.issuer.matches(&self.subject) && !names_another
    }

    /// `true` if the certificate is its own issuer by name and signature. A signature with an unknown algorithm counts
    /// as valid, because no trust depends on the signature of a root.
    pub fn certifies_itself(&self) -> bool {
        let is_known_algorithm = || self.signed.algorithm().is_ok() || self.signed.sha1_algorithm().is_some();
        let unverifiable = || !is_known_algorithm() && self.names_itself_as_issuer();
        self.issuer.matches(&self.subject) && (self.is_signed_by_allowing_sha1(&self.key) || unverifiable())
    }

    /// `true` if the authority key identifier equals the subject key identifier. Without an authority key identifier,
    /// `true` if the certificate [certifies itself](Certificate::certifies_itself).
    pub fn is_self_signed(&self) -> bool {
        match (&self.authority_key_id, &self.subject_key_id) {
            (Some(authority), Some(subject)) => authority == subject,
            (Some(_), None) => false,
            (None, _) => self.certifies_itself(),
        }
    }

    /// `true` if the certificate has an issuerUniqueID or a subjectUniqueID.
    pub fn has_unique_ids(&self) -> bool {
        self.fields().unique_ids.iter().any(|id| !id.is_empty())
    }

    /// Checks that the unique identifiers are DER BIT STRINGs (X.690 8.6.2, 11.2.1).
    pub(crate) fn check_unique_ids(&self) -> DerResult<()> {
        let unique_ids = self.fields().unique_ids;
        let mut present = unique_ids.iter().filter(|id| !id.is_empty());
        present.try_for_each(|id| check_bit_string(DerReader::new(id).any()?.content))
    }

    /// The subject's common name, or an empty string.
    pub fn common_name(&self) -> String {
        self.subject.common_name()
    }

    /// Returns the bytes to sign for the same certificate under another issuer. Version, serial number, validity,
    /// subject, key and unique identifiers keep their bytes; issuer, algorithm and extensions are replaced.
    pub fn reissue_tbs(&self, algorithm: SignatureAlgorithm, issuer: &Name, extensions: &Extensions) -> Vec<u8> {
        let fields = self.fields();
        build(SEQUENCE, self.tbs().len() + issuer.as_der().len() + 160, |w| {
            w.raw(fields.version);
            w.unsigned(self.serial.octets());
            w.raw(algorithm.der());
            w.raw(issuer.as_der());
            w.raw(fields.validity.raw);
            w.raw(self.subject.as_der());
            w.raw(self.key.spki());
            fields.unique_ids.iter().for_each(|id| w.raw(id));
            write_extensions(w, 3, &[extensions]);
        })
    }
}

/// Checks the rules of RFC 5280 that concern several fields. `algorithm` is the AlgorithmIdentifier next to the
/// TBSCertificate.
fn check_structure(fields: &CertificateFields<'_>, algorithm: &[u8]) -> DerResult<()> {
    if fields.version_number > 2 {
        return Err(DerError("the version must be 1, 2 or 3"));
    }
    if fields.algorithm != algorithm {
        return Err(DerError("the inner and outer signature algorithms must be equal (RFC 5280 4.1.1.2)"));
    }
    if fields.extensions.is_some() && fields.version_number != 2 {
        return Err(DerError("extensions require version 3 (RFC 5280 4.1.2.1)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
