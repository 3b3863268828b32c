//! What may be signed. A [`Prepared`] cannot be made without the [structural checks](super::structure)
//! and the name constraints of the issuing chain, and nothing but a `Prepared` reaches a key: for leaves,
//! authorities, CRLs and OCSP answers alike, whatever endpoint, template or request their parts came
//! from. Requests of our own (PKCS #10) pass through it too; they certify nothing.

use std::sync::Arc;

use super::constraints::Constraints;
use super::ocsp::IssuerHashes;
use super::structure::{self, Expected, Shape};
use crate::error::{Error, Result};
use crate::keys::local::PrivateKey;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::crl::EncodedTbs;
use crate::x509::tbs::signed;

/// Largest RSA key whose private operation (283 µs at 2048 bits) may run on a worker.
const MAX_INLINE_RSA_BITS: u32 = 2048;

/// Checked bytes, the key that signs them, and how.
pub(super) struct Prepared {
    tbs: Vec<u8>,
    key: Arc<PrivateKey>,
    algorithm: SignatureAlgorithm,
}

impl Prepared {
    /// A TBSCertificate; `chain` holds the name constraints of everyone above it.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(super) fn certificate(
        tbs: Vec<u8>,
        shape: Shape,
        expected: &Expected<'_>,
        chain: &[Arc<Constraints>],
        key: &Arc<PrivateKey>,
    ) -> Result<Self> {
        structure::certificate(&tbs, shape, expected)?;
        if !chain.is_empty() {
            super::constraints::check(&tbs, chain)?;
        }
        Ok(Self { tbs, key: Arc::clone(key), algorithm: expected.algorithm })
    }

    /// ResponseData of an OCSP answer; `signer` identifies the issuer whose key this is.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(super) fn ocsp(
        data: Vec<u8>,
        signer: &IssuerHashes,
        algorithm: SignatureAlgorithm,
        key: &Arc<PrivateKey>,
    ) -> Result<Self> {
        structure::ocsp::response(&data, signer)?;
        Ok(Self { tbs: data, key: Arc::clone(key), algorithm })
    }

    /// A CertificationRequestInfo (RFC 2986 4.1). It certifies nothing, and no reader can take its bytes
    /// for a TBSCertificate or a TBSCertList.
    pub(super) fn request(info: Vec<u8>, algorithm: SignatureAlgorithm, key: &Arc<PrivateKey>) -> Self {
        Self { tbs: info, key: Arc::clone(key), algorithm }
    }

    /// Whether the signature takes too long for a worker.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.key.kind(), KeyKind::Rsa { bits } if bits > MAX_INLINE_RSA_BITS)
    }

    /// Signs: in place when that is quick, else off the worker.
    ///
    /// # Errors
    /// `Internal` when the key refuses.
    pub(super) async fn sign(self) -> Result<Signed> {
        if !self.is_slow() {
            return self.sign_here();
        }
        tokio::task::spawn_blocking(|| self.sign_here()).await.map_err(Error::internal)?
    }

    /// Signs on the current thread, which must not be a worker's when the key is slow.
    ///
    /// # Errors
    /// `Internal` when the key refuses.
    pub(super) fn sign_here(self) -> Result<Signed> {
        let signature = self.key.sign(self.algorithm, &self.tbs)?;
        Ok(Signed { tbs: self.tbs, algorithm: self.algorithm, signature })
    }
}

/// A TBSCertList that was checked, the key that signs it, and how.
pub(super) struct PreparedCrl<'a> {
    tbs: &'a EncodedTbs,
    key: &'a PrivateKey,
    algorithm: SignatureAlgorithm,
}

impl<'a> PreparedCrl<'a> {
    /// Checks the list.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(super) fn new(tbs: &'a EncodedTbs, expected: &Expected<'_>, key: &'a PrivateKey) -> Result<Self> {
        structure::crl(tbs, expected)?;
        Ok(Self { tbs, key, algorithm: expected.algorithm })
    }

    /// The signature. Takes as long as the list is: never on a worker.
    ///
    /// # Errors
    /// `Internal` when the key refuses.
    pub(super) fn sign_here(self) -> Result<Vec<u8>> {
        self.key.sign_pieces(self.algorithm, self.tbs.pieces())
    }
}

/// What was signed, with its signature.
pub(super) struct Signed {
    pub(super) tbs: Vec<u8>,
    algorithm: SignatureAlgorithm,
    pub(super) signature: Vec<u8>,
}

impl Signed {
    /// The whole certificate, CRL, request or BasicOCSPResponse.
    pub(super) fn der(&self) -> Vec<u8> {
        signed(&self.tbs, self.algorithm, &self.signature)
    }
}
