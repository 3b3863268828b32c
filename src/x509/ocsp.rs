//! Online certificate status (RFC 6960): parsing of requests and encoding of responses.
//!
//! An [`OcspRequest`] consists of slices of its DER. A response is encoded in two steps: [`ResponseData`] encodes the
//! bytes to be signed, and [`encode_successful`] wraps the signed bytes. [`encode_failure`] encodes an unsigned
//! response. This module does not determine a status.

pub mod request;
pub mod response;

use super::algorithm::Hash;
/// The hash that identifies the issuer in a CertID: SHA-1 (RFC 5019 2.1.1), only for lookup, or SHA-2 (RFC 6960 4.3).
pub use super::algorithm::HashFunction as CertIdHash;
use super::pieces::Name;
use super::reader::{DerError, DerReader, DerResult};
use super::serial::Serial;
pub use request::OcspRequest;
pub use response::{OcspCertStatus, ResponseData, SingleResponse, encode_failure, encode_successful};

/// Exclusive upper limit of the length of a request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 2048;
/// Maximum number of certificates in a request.
pub const MAX_CERTIFICATES_PER_REQUEST: usize = 32;
/// Valid lengths of a nonce, in bytes (RFC 9654 2.1).
pub const NONCE_LENGTHS: std::ops::RangeInclusive<usize> = 1..=128;

/// A CertID (RFC 6960 4.1.1), which identifies a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertId<'a> {
    /// The encoded CertID, which the response must repeat.
    pub raw: &'a [u8],
    /// The hash algorithm of both hashes.
    pub hash: CertIdHash,
    /// The hash of the issuer's name.
    pub name_hash: &'a [u8],
    /// The hash of the issuer's key.
    pub key_hash: &'a [u8],
    /// The certificate's serial number.
    pub serial: Serial,
}

impl<'a> CertId<'a> {
    /// Reads the next CertID.
    ///
    /// # Errors
    /// The violated rule.
    pub fn next(fields: &mut DerReader<'a>) -> DerResult<Self> {
        let whole = fields.expect(super::writer::SEQUENCE)?;
        let mut fields = whole.reader();
        let hash = CertIdHash::read(fields.sequence()?)?;
        let hash = hash.ok_or(DerError("the hash of a CertID must be SHA-1, SHA-256, SHA-384 or SHA-512"))?;
        let name_hash = fields.octet_string()?;
        let key_hash = fields.octet_string()?;
        if name_hash.len() != hash.digest_len() || key_hash.len() != hash.digest_len() {
            return Err(DerError("a hash in a CertID has the wrong length for its algorithm (RFC 6960 4.1.1)"));
        }
        let serial = Serial::from_octets(fields.unsigned()?)
            .map_err(|_| DerError("the serial number is above 20 octets (RFC 5280 4.1.2.2)"))?;
        fields.done()?;
        Ok(Self { raw: whole.raw, hash, name_hash, key_hash, serial })
    }

    /// Returns the concatenated hashes of the issuer's name and key, as [`IssuerHashes::for_hash`] does.
    pub fn issuer_hashes(&self) -> Vec<u8> {
        [self.name_hash, self.key_hash].concat()
    }
}

/// The hashes of an issuer's Name and of the content of its key's BIT STRING (RFC 6960 4.1.1), with every hash
/// algorithm that a CertID may use.
pub struct IssuerHashes([Vec<u8>; CertIdHash::ALL.len()]);

impl IssuerHashes {
    /// Computes the hashes of an issuer. `key` is the content of the key's BIT STRING.
    pub fn new(name: &Name, key: &[u8]) -> Self {
        Self(CertIdHash::ALL.map(|hash| [hash.digest(name.as_der()).as_ref(), hash.digest(key).as_ref()].concat()))
    }

    /// Returns the concatenated hashes of name and key, computed with `hash`.
    pub fn for_hash(&self, hash: CertIdHash) -> &[u8] {
        let at = CertIdHash::ALL.iter().position(|known| *known == hash);
        at.map_or(&[], |at| &self.0[at])
    }

    /// `true` if `name` is the issuer's encoded Name.
    pub fn matches_name(&self, name: &[u8]) -> bool {
        let hash = CertIdHash::Sha2(Hash::Sha256);
        self.for_hash(hash)[..hash.digest_len()] == *hash.digest(name).as_ref()
    }
}

#[cfg(test)]
mod tests;
