//! Signed structures: certificates (RFC 5280 4.1.1), CRLs (5.1.1) and requests (RFC 2986 4.2).

use std::ops::Range;

use super::algorithm::{Sha1Algorithm, SignatureAlgorithm};
use super::public_key::PublicKey;
use super::reader::{DerReader, DerResult};
use super::writer::SEQUENCE;
use crate::error::Result;

/// A signed structure with the positions of its parts. Reading it does not verify the signature.
#[derive(Clone, Debug)]
pub(super) struct SignedDer {
    der: Vec<u8>,
    tbs: Range<usize>,
    /// Range of the content of the to-be-signed SEQUENCE.
    fields: Range<usize>,
    algorithm: Range<usize>,
    /// Byte offset of the signature, which extends to the end of the structure.
    signature: usize,
}

impl SignedDer {
    /// Reads `SEQUENCE { tbs SEQUENCE, AlgorithmIdentifier, BIT STRING signature }`.
    pub(super) fn read(der: Vec<u8>) -> DerResult<Self> {
        let outer = DerReader::read_single(&der, SEQUENCE)?;
        let mut parts = outer.reader();
        let tbs = parts.expect(SEQUENCE)?;
        let algorithm = parts.expect(SEQUENCE)?;
        let signature = der.len() - parts.bit_string()?.len();
        parts.done()?;
        let start = der.len() - outer.content.len();
        let end = start + tbs.raw.len();
        let fields = end - tbs.content.len()..end;
        let algorithm = end..end + algorithm.raw.len();
        Ok(Self { tbs: start..end, fields, algorithm, signature, der })
    }

    /// The whole structure.
    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// The to-be-signed bytes.
    pub(super) fn tbs(&self) -> &[u8] {
        &self.der[self.tbs.clone()]
    }

    /// A reader of the to-be-signed fields.
    pub(super) fn fields(&self) -> DerReader<'_> {
        DerReader::new(&self.der[self.fields.clone()])
    }

    /// The AlgorithmIdentifier of the signature, which may be unknown.
    pub(super) fn algorithm_der(&self) -> &[u8] {
        &self.der[self.algorithm.clone()]
    }

    /// The signature algorithm, if it is accepted.
    ///
    /// # Errors
    /// Those of [`SignatureAlgorithm::from_der`].
    pub(super) fn algorithm(&self) -> Result<SignatureAlgorithm> {
        SignatureAlgorithm::from_der(self.algorithm_der())
    }

    /// The signature algorithm if it is one with SHA-1.
    pub(super) fn sha1_algorithm(&self) -> Option<Sha1Algorithm> {
        Sha1Algorithm::from_der(self.algorithm_der())
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// `Invalid` when the algorithm is not accepted or the signature is not valid under `key`.
    pub(super) fn verify(&self, key: &PublicKey) -> Result<()> {
        key.verify(self.algorithm()?, self.tbs(), &self.der[self.signature..])
    }

    /// `true` if the signature is valid under `key`, with an accepted algorithm or SHA-1.
    pub(super) fn is_signed_by_any_hash(&self, key: &PublicKey) -> bool {
        match self.sha1_algorithm() {
            Some(algorithm) => key.verifies_sha1(algorithm, self.tbs(), &self.der[self.signature..]),
            None => self.verify(key).is_ok(),
        }
    }
}
