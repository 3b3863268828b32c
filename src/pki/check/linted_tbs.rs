//! The only inputs that keys sign. A [`LintedTbs`] can be created only from bytes that pass the [structural
//! checks](super::structure) and the name constraints of the chain. This applies to leaves, CAs, CRLs and OCSP
//! responses from every endpoint. PKCS #10 requests pass through it without checks, because they certify nothing.
//!
//! A [managed key](crate::keys::signing) may be remote. Only the request that needs the signature waits for it; no
//! worker, actor or thread is blocked. The signature is verified before use.

use std::sync::Arc;

use super::blocking::SignatureWaiter;
use super::structure::{self, CertificateKind, ExpectedIssuer};
use crate::error::{Error, Kind, Result};
use crate::keys::pool::CallerWatch;
use crate::keys::signing::{ManagedKey, Signers, SigningKey};
use crate::pki::constraints::{self, ChainConstraints};
use crate::rationing::cpu;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::crl::EncodedCrlTbs;
use crate::x509::ocsp::IssuerHashes;
use crate::x509::tbs::encode_signed;

/// Largest RSA key that a worker may sign with; a 2048-bit signature takes 283 µs.
const MAX_INLINE_RSA_BITS: u32 = 2048;

/// Checked bytes to be signed, with the key and the signature algorithm.
pub(crate) struct LintedTbs {
    tbs: Vec<u8>,
    key: SigningKey,
    algorithm: SignatureAlgorithm,
    /// `true` for low priority in the signer's queue.
    low_priority: bool,
}

/// Checks a TBSCertificate without preparing a signature, to validate a request before its key is generated.
///
/// # Errors
/// `Invalid` naming the rule and its source.
pub(crate) fn lint_certificate(
    tbs: &[u8],
    certificate_kind: CertificateKind,
    expected: &ExpectedIssuer<'_>,
    chains: &[ChainConstraints],
) -> Result<()> {
    structure::lint_certificate_structure(tbs, certificate_kind, expected)?;
    constraints::check_name_constraints(tbs, chains)
}

impl LintedTbs {
    /// Checks a TBSCertificate; `chains` are the name constraints of the CA chains above the certificate.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn for_certificate(
        tbs: Vec<u8>,
        certificate_kind: CertificateKind,
        expected: &ExpectedIssuer<'_>,
        chains: &[ChainConstraints],
        key: &SigningKey,
    ) -> Result<Self> {
        lint_certificate(&tbs, certificate_kind, expected, chains)?;
        Ok(Self { tbs, key: key.clone(), algorithm: expected.algorithm, low_priority: false })
    }

    /// Checks the ResponseData of an OCSP response; `signer` contains the hashes of the issuer that signs the response,
    /// with one entry per encoding of the issuer's name.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn for_ocsp_response(
        data: Vec<u8>,
        signer: &[Arc<IssuerHashes>],
        algorithm: SignatureAlgorithm,
        key: &SigningKey,
    ) -> Result<Self> {
        structure::ocsp::lint_ocsp_response(&data, signer)?;
        // OCSP is unauthenticated, so other signatures have priority.
        Ok(Self { tbs: data, key: key.clone(), algorithm, low_priority: true })
    }

    /// Prepares a CertificationRequestInfo (RFC 2986 4.1) for signing, without checks. It certifies nothing, and its
    /// bytes cannot be parsed as a TBSCertificate or TBSCertList.
    pub(crate) fn for_request(info: Vec<u8>, algorithm: SignatureAlgorithm, key: &SigningKey) -> Self {
        Self { tbs: info, key: key.clone(), algorithm, low_priority: false }
    }

    /// `true` if the signature takes too long for an HTTP worker.
    pub(crate) fn is_slow(&self) -> bool {
        let slow = |kind| matches!(kind, KeyKind::Rsa { bits } if bits > MAX_INLINE_RSA_BITS);
        self.key.local().is_some_and(|key| slow(key.kind()))
    }

    /// Signs on the current thread if that is fast, else in the CPU queue. A managed key signs through its signer; the
    /// wait ends if the caller disconnects.
    ///
    /// # Errors
    /// - Local key: `Internal` when signing fails; `Busy` when too many slow signatures of the caller wait.
    /// - Managed key: `Invalid` when the key does not exist or the mount may not use it for this signature; `Busy` and
    ///   `Unavailable` from the signer; `BadGateway` for a wrong signature.
    /// - Managed or slow local key: `Unavailable` when the caller disconnects before the signature is created.
    pub(crate) async fn sign(self, signers: &dyn Signers, caller: &CallerWatch) -> Result<SignedTbs> {
        let signature = match &self.key {
            SigningKey::Local(_) if self.is_slow() => {
                return tokio::select! {
                    biased;
                    () = caller.caller_left() => Err(client_disconnected_error()),
                    signed = cpu::run(|| self.sign_locally()) => signed?,
                };
            }
            SigningKey::Local(_) => return self.sign_locally(),
            SigningKey::Managed(key) => sign_with_managed_key(key, signers, &self, caller).await?,
        };
        Ok(SignedTbs { tbs: self.tbs, algorithm: self.algorithm, signature })
    }

    /// Signs with a local key on the current thread, which must not be a worker if the key is slow.
    fn sign_locally(self) -> Result<SignedTbs> {
        let key =
            self.key.local().ok_or_else(|| Error::internal("a managed key was given to the local signing function"))?;
        let signature = key.sign(self.algorithm, &self.tbs)?;
        Ok(SignedTbs { tbs: self.tbs, algorithm: self.algorithm, signature })
    }
}

/// Signs with a managed key. Stops waiting when the caller disconnects, so that no certificate is stored for an
/// abandoned request. The signer also drops the request.
async fn sign_with_managed_key(
    key: &Arc<ManagedKey>,
    signers: &dyn Signers,
    prepared: &LintedTbs,
    caller: &CallerWatch,
) -> Result<Vec<u8>> {
    let LintedTbs { tbs, algorithm, low_priority, .. } = prepared;
    let requested = key.request_signature(signers, *algorithm, std::iter::once(&tbs[..]), *low_priority)?;
    tokio::select! {
        biased;
        () = caller.caller_left() => Err(client_disconnected_error()),
        signature = requested => signature,
    }
}

fn client_disconnected_error() -> Error {
    Error::new(Kind::Unavailable, "the client disconnected before the signature was created")
}

/// A checked TBSCertList with the key and the signature algorithm.
pub(crate) struct LintedCrlTbs<'a> {
    tbs: &'a EncodedCrlTbs,
    key: &'a SigningKey,
    algorithm: SignatureAlgorithm,
}

impl<'a> LintedCrlTbs<'a> {
    /// Checks a TBSCertList.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn new(tbs: &'a EncodedCrlTbs, expected: &ExpectedIssuer<'_>, key: &'a SigningKey) -> Result<Self> {
        structure::lint_crl_structure(tbs, expected)?;
        Ok(Self { tbs, key, algorithm: expected.algorithm })
    }

    /// Signs the CRL. The time is proportional to the length of the CRL, so never call this on an HTTP worker. The
    /// thread is released ([`SignatureWaiter`]) while a signer works.
    ///
    /// # Errors
    /// As [`LintedTbs::sign`].
    pub(crate) async fn sign(self, signers: &dyn Signers, waiter: &SignatureWaiter) -> Result<Vec<u8>> {
        match self.key {
            SigningKey::Local(key) => key.sign_pieces(self.algorithm, self.tbs.pieces()),
            SigningKey::Managed(key) => {
                waiter.wait(key.request_signature(signers, self.algorithm, self.tbs.pieces(), false)?).await
            }
        }
    }
}

/// Signed bytes and their signature.
pub(crate) struct SignedTbs {
    pub(crate) tbs: Vec<u8>,
    algorithm: SignatureAlgorithm,
    pub(crate) signature: Vec<u8>,
}

impl SignedTbs {
    /// Encodes the complete certificate, CRL, request or BasicOCSPResponse.
    pub(crate) fn der(&self) -> Vec<u8> {
        encode_signed(&self.tbs, self.algorithm, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::MountId;
    use crate::keys::signing::NoSigners;
    use crate::x509::algorithm::Hash;
    use crate::x509::public_key::{PublicKey, rsa_spki};

    /// Slow signatures occupy a thread of the CPU queue; signatures of a managed key must not.
    #[tokio::test]
    async fn managed_key_is_not_counted_as_slow() {
        let mut modulus = vec![0xc5; 512];
        modulus[511] = 1;
        let public = PublicKey::parse(&rsa_spki(&modulus, &[1, 0, 1])).unwrap();
        assert!(public.kind().bits() > MAX_INLINE_RSA_BITS);
        let uuid = "u".to_owned();
        let name = "token".to_owned();
        let key =
            SigningKey::Managed(Arc::new(ManagedKey { mount: MountId(1), uuid, name, public, locator: String::new() }));
        let prepared = LintedTbs::for_request(Vec::new(), SignatureAlgorithm::RsaPkcs1(Hash::Sha256), &key);
        assert!(!prepared.is_slow());
        let refused = prepared.sign(&NoSigners, &CallerWatch::ALWAYS).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
    }
}
