//! Online certificate status (RFC 6960): requests as they are read, answers as they are written.
//!
//! A [`Request`] is a set of slices of its DER and costs one small list; what breaks a rule is refused
//! with that rule. An answer is written in the same two steps as everything that is signed:
//! [`ResponseData`] to be signed, then [`successful`] around it. [`failure`] is an answer without a
//! signature. Nothing here decides a status.

pub mod request;
pub mod response;

use super::algorithm::Hash;
use super::oid;
use super::pieces::Name;
use super::reader::{DerError, Read, Reader};
use super::serial::Serial;
use aws_lc_rs::digest;
pub use request::Request;
pub use response::{ResponseData, SingleResponse, Status, failure, successful};

/// Requests are shorter than this, in octets.
pub const MAX_REQUEST: usize = 2048;
/// Most certificates of one request.
pub const MAX_CERTIFICATES: usize = 32;
/// Octets that a nonce may have (RFC 9654 2.1).
pub const NONCE: std::ops::RangeInclusive<usize> = 1..=128;

/// What a certificate's issuer is identified with. SHA-1 finds it here; it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdHash {
    /// SHA-1, as RFC 5019 2.1.1 has it.
    Sha1,
    /// One of the SHA-2 family (RFC 6960 4.3).
    Sha2(Hash),
}

impl IdHash {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Sha1, Self::Sha2(Hash::Sha256), Self::Sha2(Hash::Sha384), Self::Sha2(Hash::Sha512)];

    /// Digest length in octets.
    pub fn octets(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha2(hash) => hash.octets() as usize,
        }
    }

    /// The digest of `message`.
    pub fn digest(self, message: &[u8]) -> digest::Digest {
        match self {
            Self::Sha1 => digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, message),
            Self::Sha2(hash) => hash.digest(message),
        }
    }

    /// The identifier, DER content octets.
    pub fn oid(self) -> &'static [u8] {
        match self {
            Self::Sha1 => oid::SHA1,
            Self::Sha2(Hash::Sha256) => oid::SHA256,
            Self::Sha2(Hash::Sha384) => oid::SHA384,
            Self::Sha2(Hash::Sha512) => oid::SHA512,
        }
    }

    /// The two hashes of a CertID: of an issuer's whole Name and of the content of its key's BIT STRING
    /// (RFC 6960 4.1.1), joined.
    pub fn of_issuer(self, name: &[u8], key: &[u8]) -> Vec<u8> {
        [self.digest(name).as_ref(), self.digest(key).as_ref()].concat()
    }
}

/// A CertID (RFC 6960 4.1.1): which certificate is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertId<'a> {
    /// The whole CertID, byte for byte: the answer repeats it.
    pub raw: &'a [u8],
    /// What the issuer is identified with.
    pub hash: IdHash,
    /// The hash of the issuer's name.
    pub name_hash: &'a [u8],
    /// The hash of the issuer's key.
    pub key_hash: &'a [u8],
    /// The certificate's serial number.
    pub serial: Serial,
}

impl<'a> CertId<'a> {
    /// Reads the next value.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn next(fields: &mut Reader<'a>) -> Read<Self> {
        let whole = fields.expect(super::writer::SEQUENCE)?;
        let mut fields = whole.reader();
        let mut algorithm = fields.sequence()?;
        let known = algorithm.oid()?;
        let hash = IdHash::ALL.into_iter().find(|hash| hash.oid() == known);
        let hash = hash.ok_or(DerError("the hash of a CertID must be SHA-1, SHA-256, SHA-384 or SHA-512"))?;
        super::algorithm::optional_null(&mut algorithm)?;
        algorithm.done()?;
        let (name_hash, key_hash) = (fields.octet_string()?, fields.octet_string()?);
        if name_hash.len() != hash.octets() || key_hash.len() != hash.octets() {
            return Err(DerError("a hash of a CertID is not as long as its algorithm's (RFC 6960 4.1.1)"));
        }
        let serial = Serial::from_octets(fields.unsigned()?)
            .map_err(|_| DerError("the serial number is above 20 octets (RFC 5280 4.1.2.2)"))?;
        fields.done()?;
        Ok(Self { raw: whole.raw, hash, name_hash, key_hash, serial })
    }

    /// As [`IdHash::of_issuer`].
    pub fn issuer(&self) -> Vec<u8> {
        [self.name_hash, self.key_hash].concat()
    }
}

/// How requests name an issuer: for every hash of a CertID the hashes of its name and its key.
pub struct IssuerHashes([Vec<u8>; IdHash::ALL.len()]);

impl IssuerHashes {
    /// From the issuer's name, and the content of its key's BIT STRING.
    pub fn new(name: &Name, key: &[u8]) -> Self {
        Self(IdHash::ALL.map(|hash| hash.of_issuer(name.as_der(), key)))
    }

    /// Name and key under one hash, joined.
    pub fn of(&self, hash: IdHash) -> &[u8] {
        let at = IdHash::ALL.iter().position(|known| *known == hash);
        at.map_or(&[], |at| &self.0[at])
    }

    /// Whether `name` is the issuer's whole Name.
    pub fn are_of_name(&self, name: &[u8]) -> bool {
        let hash = IdHash::Sha2(Hash::Sha256);
        self.of(hash)[..hash.octets()] == *hash.digest(name).as_ref()
    }
}

#[cfg(test)]
mod tests;
