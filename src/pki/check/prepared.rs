//! What may be signed. A [`Prepared`] cannot be made without the [structural checks](super::structure)
//! and the name constraints of the issuing chain, and nothing but a `Prepared` reaches a key: for leaves,
//! authorities, CRLs and OCSP answers alike, whatever endpoint, template or request their parts came
//! from. Requests of our own (PKCS #10) pass through it too; they certify nothing.
//!
//! A key may be [elsewhere](crate::keys::signing). Then its signer is awaited, which gives no signature that does
//! not verify, and nobody but the caller waits: no worker, no actor, no thread.

use std::sync::Arc;

use super::blocking::Outside;
use super::structure::{self, Expected, Shape};
use crate::error::{Error, Kind, Result};
use crate::keys::pool::Watch;
use crate::keys::signing::{ManagedKey, Signers, SigningKey};
use crate::pki::constraints::{self, ChainConstraints};
use crate::turns::cpu;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::crl::EncodedTbs;
use crate::x509::ocsp::IssuerHashes;
use crate::x509::tbs::signed;

/// Largest RSA key whose private operation (283 µs at 2048 bits) may run on a worker.
const MAX_INLINE_RSA_BITS: u32 = 2048;

/// Checked bytes, the key that signs them, and how.
pub(crate) struct Prepared {
    tbs: Vec<u8>,
    key: SigningKey,
    algorithm: SignatureAlgorithm,
    /// Whether others go before it at a signer that has a line.
    goes_last: bool,
}

/// Holds a TBSCertificate against the rules, as [`Prepared::certificate`] does: also to try whether one would pass
/// whose key is not made yet.
///
/// # Errors
/// `Invalid` naming the rule and its source.
pub(crate) fn certificate(
    tbs: &[u8],
    shape: Shape,
    expected: &Expected<'_>,
    chains: &[ChainConstraints],
) -> Result<()> {
    structure::certificate(tbs, shape, expected)?;
    constraints::check(tbs, chains)
}

impl Prepared {
    /// A TBSCertificate; `chains` holds the name constraints above it.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn certificate(
        tbs: Vec<u8>,
        shape: Shape,
        expected: &Expected<'_>,
        chains: &[ChainConstraints],
        key: &SigningKey,
    ) -> Result<Self> {
        certificate(&tbs, shape, expected, chains)?;
        Ok(Self { tbs, key: key.clone(), algorithm: expected.algorithm, goes_last: false })
    }

    /// ResponseData of an OCSP answer; `signer` identifies the issuer whose key this is, under each encoding of its
    /// name.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn ocsp(
        data: Vec<u8>,
        signer: &[Arc<IssuerHashes>],
        algorithm: SignatureAlgorithm,
        key: &SigningKey,
    ) -> Result<Self> {
        structure::ocsp::response(&data, signer)?;
        // Anybody asks for these.
        Ok(Self { tbs: data, key: key.clone(), algorithm, goes_last: true })
    }

    /// A CertificationRequestInfo (RFC 2986 4.1). It certifies nothing, and no reader can take its bytes
    /// for a TBSCertificate or a TBSCertList.
    pub(crate) fn request(info: Vec<u8>, algorithm: SignatureAlgorithm, key: &SigningKey) -> Self {
        Self { tbs: info, key: key.clone(), algorithm, goes_last: false }
    }

    /// Whether the signature takes too long for a worker of this server.
    pub(crate) fn is_slow(&self) -> bool {
        let slow = |kind| matches!(kind, KeyKind::Rsa { bits } if bits > MAX_INLINE_RSA_BITS);
        self.key.local().is_some_and(|key| slow(key.kind()))
    }

    /// Signs: in place when that is quick, else in the CPU queue; with a managed key by its signer of `signers`,
    /// as long as `caller` waits.
    ///
    /// # Errors
    /// `Internal` when a local key refuses; `Busy` when too many slow signatures of the caller wait. Of a managed key: `Invalid` when there is no such key, the mount may
    /// not use it, or not so; `Busy` and `Unavailable` from its signer, and when the caller has left;
    /// `BadGateway` when its signature is wrong.
    pub(crate) async fn sign(self, signers: &dyn Signers, caller: &Watch) -> Result<Signed> {
        let signature = match &self.key {
            SigningKey::Local(_) if self.is_slow() => {
                return tokio::select! {
                    biased;
                    () = caller.ended() => Err(gone()),
                    signed = cpu::run(|| self.sign_here()) => signed?,
                };
            }
            SigningKey::Local(_) => return self.sign_here(),
            SigningKey::Managed(key) => by_signer(key, signers, &self, caller).await?,
        };
        Ok(Signed { tbs: self.tbs, algorithm: self.algorithm, signature })
    }

    /// Signs with a local key on the current thread, which must not be a worker's when the key is slow.
    fn sign_here(self) -> Result<Signed> {
        let key = self.key.local().ok_or_else(|| Error::internal("a managed key is not here"))?;
        let signature = key.sign(self.algorithm, &self.tbs)?;
        Ok(Signed { tbs: self.tbs, algorithm: self.algorithm, signature })
    }
}

/// The signature of a managed key. A message to an actor outlives whoever sent it: what nobody waits for any
/// more is not signed, nor stored by whoever goes on from here.
async fn by_signer(
    key: &Arc<ManagedKey>,
    signers: &dyn Signers,
    prepared: &Prepared,
    caller: &Watch,
) -> Result<Vec<u8>> {
    let Prepared { tbs, algorithm, goes_last, .. } = prepared;
    let asked = key.ask(signers, *algorithm, std::iter::once(&tbs[..]), *goes_last)?;
    tokio::select! {
        biased;
        () = caller.ended() => Err(gone()),
        signature = asked => signature,
    }
}

fn gone() -> Error {
    Error::new(Kind::Unavailable, "nobody waits for this signature any more")
}

/// A TBSCertList that was checked, the key that signs it, and how.
pub(crate) struct PreparedCrl<'a> {
    tbs: &'a EncodedTbs,
    key: &'a SigningKey,
    algorithm: SignatureAlgorithm,
}

impl<'a> PreparedCrl<'a> {
    /// Checks the list.
    ///
    /// # Errors
    /// `Invalid` naming the rule and its source.
    pub(crate) fn new(tbs: &'a EncodedTbs, expected: &Expected<'_>, key: &'a SigningKey) -> Result<Self> {
        structure::crl(tbs, expected)?;
        Ok(Self { tbs, key, algorithm: expected.algorithm })
    }

    /// The signature. Takes as long as the list is: never on a worker. A signer is awaited [outside](Outside) of
    /// the thread.
    ///
    /// # Errors
    /// As [`Prepared::sign`].
    pub(crate) async fn sign(self, signers: &dyn Signers, outside: &Outside) -> Result<Vec<u8>> {
        match self.key {
            SigningKey::Local(key) => key.sign_pieces(self.algorithm, self.tbs.pieces()),
            SigningKey::Managed(key) => outside.wait(key.ask(signers, self.algorithm, self.tbs.pieces(), false)?).await,
        }
    }
}

/// What was signed, with its signature.
pub(crate) struct Signed {
    pub(crate) tbs: Vec<u8>,
    algorithm: SignatureAlgorithm,
    pub(crate) signature: Vec<u8>,
}

impl Signed {
    /// The whole certificate, CRL, request or BasicOCSPResponse.
    pub(crate) fn der(&self) -> Vec<u8> {
        signed(&self.tbs, self.algorithm, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::MountId;
    use crate::keys::signing::NoSigners;
    use crate::x509::algorithm::Hash;
    use crate::x509::public_key::{PublicKey, rsa_spki};

    /// What is slow waits for a thread and holds a place; nobody's place is held for a signer.
    #[tokio::test]
    async fn a_managed_key_is_never_slow_for_this_server() {
        let mut modulus = vec![0xc5; 512];
        modulus[511] = 1;
        let public = PublicKey::parse(&rsa_spki(&modulus, &[1, 0, 1])).unwrap();
        assert!(public.kind().bits() > MAX_INLINE_RSA_BITS);
        let (uuid, name) = ("u".to_owned(), "token".to_owned());
        let key =
            SigningKey::Managed(Arc::new(ManagedKey { mount: MountId(1), uuid, name, public, locator: String::new() }));
        let prepared = Prepared::request(Vec::new(), SignatureAlgorithm::RsaPkcs1(Hash::Sha256), &key);
        assert!(!prepared.is_slow());
        let refused = prepared.sign(&NoSigners, &Watch::ALWAYS).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
    }
}
