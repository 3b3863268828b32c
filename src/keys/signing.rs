//! Keys with which a mount signs: local keys ([`SigningKey::Local`]), and managed keys through a [`RemoteSigner`].
//!
//! [`Signers`] resolves a managed key to its signer for every signature and checks its usage and grants each time, so a
//! revoked grant takes effect immediately. Every signature is [verified](super::signer::VerifiedSignature) under the
//! public key that the mount stored.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::local::PrivateKey;
use super::signer::{KeyIdentity, RemoteSigner, SigningInput, SigningInputKind, VerifiedSignature};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::telemetry;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// Maximum duration of one signature, queueing included. Shorter than the request timeout, so that the caller gets this
/// error and not that timeout.
const SIGN_TIMEOUT: Duration = Duration::from_secs(30);

/// Finds the signers of managed keys.
pub trait Signers: Send + Sync {
    /// Returns the signer for one signature with `key`, on behalf of the mount that uses it. Called on workers for
    /// every signature, so it neither blocks nor calls a device.
    ///
    /// # Errors
    /// `Invalid` when the key does not exist or the mount may not use it (same text for both), or when the key is not
    /// for signing; `Unavailable` when its backend cannot be used now.
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>>;

    /// Looks up a managed key that a mount starts to use, with its current public key. Generates a missing key if its
    /// configuration allows that.
    ///
    /// # Errors
    /// `Invalid` when the key does not exist or the mount may not use it (same text for both). From the future:
    /// `Invalid` when the backend has no usable key; `Busy`, `Unavailable` and `BadGateway` as [`RemoteSigner::sign`].
    fn start_use(&self, mount: MountId, key: ManagedKeyRef) -> Result<ManagedKeyLookup>;

    /// As [`Signers::start_use`]. `candidates` are the public keys of the mount's certificates, for a device that does
    /// not return the public key of its key.
    ///
    /// # Errors
    /// As [`Signers::start_use`].
    fn start_use_with_candidates(
        &self,
        mount: MountId,
        key: ManagedKeyRef,
        _candidates: &[PublicKey],
    ) -> Result<ManagedKeyLookup> {
        self.start_use(mount, key)
    }
}

/// A lookup of a managed key in its backend.
pub type ManagedKeyLookup = BoxFuture<'static, Result<ManagedKey>>;

/// The name or UUID by which a request refers to a managed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedKeyRef {
    /// The name of the key, in lower case.
    Name(String),
    /// The UUID of the key.
    Uuid(String),
}

/// Implements [`Signers`] for a server without managed keys: every lookup fails.
pub struct NoSigners;

impl Signers for NoSigners {
    fn signer(&self, _: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        Err(unsupported_error())
    }

    fn start_use(&self, _: MountId, _: ManagedKeyRef) -> Result<ManagedKeyLookup> {
        Err(unsupported_error())
    }
}

fn unsupported_error() -> Error {
    Error::invalid("managed keys are not supported")
}

/// A local or managed key of a mount.
#[derive(Clone)]
pub enum SigningKey {
    /// A private key in the memory of this process.
    Local(Arc<PrivateKey>),
    /// A managed key, which signs through a [`RemoteSigner`].
    Managed(Arc<ManagedKey>),
}

impl SigningKey {
    /// The public key.
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Local(key) => key.public(),
            Self::Managed(key) => &key.public,
        }
    }

    /// The kind of the key, with its size.
    pub fn kind(&self) -> KeyKind {
        self.public().kind()
    }

    /// The private key, if it is in this process.
    pub fn local(&self) -> Option<&Arc<PrivateKey>> {
        match self {
            Self::Local(key) => Some(key),
            Self::Managed(_) => None,
        }
    }

    /// The managed key, unless the key is local.
    pub fn managed(&self) -> Option<&ManagedKey> {
        match self {
            Self::Local(_) => None,
            Self::Managed(key) => Some(key),
        }
    }
}

/// A mount's record of a managed key. Contains no key material.
pub struct ManagedKey {
    /// The mount that signs with the key.
    pub mount: MountId,
    /// The key's UUID, which never changes.
    pub uuid: String,
    /// The name of the key when the mount started to use it.
    pub name: String,
    /// The public key when the mount started to use the key.
    pub public: PublicKey,
    /// The permanent identifier of the key at its backend (see [`KeyIdentity`]). It prevents the later use of another
    /// key with the same name.
    pub locator: String,
}

/// The future of a requested signature.
pub type SignatureFuture = BoxFuture<'static, Result<Vec<u8>>>;

impl ManagedKey {
    /// Returns the identity that the backend reported when the mount started to use the key.
    pub fn identity(&self) -> KeyIdentity {
        KeyIdentity { public: self.public.clone(), locator: self.locator.clone() }
    }

    /// Requests a signature of the message in `pieces`. The pieces are hashed one by one if the signer wants only a
    /// digest. `low_priority` is for requests that need no authentication: signatures for all other requests are made
    /// first. Does nothing until the future is polled; dropping the future cancels the job.
    ///
    /// # Errors
    /// Those of [`Signers::signer`] and [`RemoteSigner::input_kind`]; `BadGateway` when the signer now has another key.
    /// From the future: those of [`RemoteSigner::sign`]; `Unavailable` on timeout.
    pub(crate) fn request_signature<'m>(
        self: &Arc<Self>,
        signers: &dyn Signers,
        algorithm: SignatureAlgorithm,
        pieces: impl Iterator<Item = &'m [u8]>,
        low_priority: bool,
    ) -> Result<SignatureFuture> {
        let signer = signers.signer(self)?;
        if *signer.public() != self.public {
            return Err(self.replaced_key_error());
        }
        let input = match (signer.input_kind(algorithm)?, algorithm.hash()) {
            (SigningInputKind::Digest, Some(hash)) => {
                SigningInput::Digest(hash.digest_pieces(pieces).as_ref().to_vec())
            }
            (SigningInputKind::Digest, None) => {
                return Err(Error::internal(
                    "signing input: the signer requests a digest, but Ed25519 signs whole messages",
                ));
            }
            (SigningInputKind::Message, _) => SigningInput::Message(pieces.collect::<Vec<_>>().concat()),
        };
        let key = Arc::clone(self);
        let signature = async move {
            let signed = async {
                if low_priority {
                    signer.sign_with_low_priority(algorithm, input).await
                } else {
                    signer.sign(algorithm, input).await
                }
            };
            key.limit_signing(signed, SIGN_TIMEOUT).await
        };
        Ok(signature.map(|signed| signed.map(VerifiedSignature::into_signature)).boxed())
    }

    /// Waits for a signature, for at most `time_limit`, and converts a panic of the signer to an error.
    async fn limit_signing(
        &self,
        signed: impl Future<Output = Result<VerifiedSignature>>,
        time_limit: Duration,
    ) -> Result<VerifiedSignature> {
        match tokio::time::timeout(time_limit, AssertUnwindSafe(signed).catch_unwind()).await {
            Ok(Ok(signed)) => signed,
            Ok(Err(_)) => Err(Error::internal(format!("managed key {:?}: its signer panicked", self.name))),
            Err(_) => Err(Error::new(
                Kind::Unavailable,
                format!("managed key {:?}: did not sign in time; retry later", self.name),
            )),
        }
    }

    fn replaced_key_error(&self) -> Error {
        let why = "the backend has a different key than the one that the mount stored";
        let mount = telemetry::mount_path(self.mount.0);
        tracing::error!(key = self.name, uuid = self.uuid, mount, "managed key not used: {why}");
        Error::new(Kind::BadGateway, format!("managed key {:?}: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::local::KeySpec;
    use crate::x509::algorithm::{Curve, Hash};

    /// A signer whose response comes from `answer`, usually signed with a local key.
    struct SignerDouble {
        key: Arc<PrivateKey>,
        input_kind: SigningInputKind,
        answer: fn(&PrivateKey, SignatureAlgorithm, &SigningInput) -> SignatureFuture,
    }

    impl RemoteSigner for SignerDouble {
        fn public(&self) -> &PublicKey {
            self.key.public()
        }

        fn input_kind(&self, _: SignatureAlgorithm) -> Result<SigningInputKind> {
            Ok(self.input_kind)
        }

        fn require_capacity(&self) -> Result<()> {
            Ok(())
        }

        fn sign(
            &self,
            algorithm: SignatureAlgorithm,
            input: SigningInput,
        ) -> BoxFuture<'static, Result<VerifiedSignature>> {
            let answer = (self.answer)(&self.key, algorithm, &input);
            let key = Arc::clone(&self.key);
            async move { VerifiedSignature::new(key.public(), algorithm, &input, answer.await?) }.boxed()
        }
    }

    struct SingleSigner(Arc<SignerDouble>);

    impl Signers for SingleSigner {
        fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
            assert_eq!(key.uuid, "u");
            Ok(self.0.clone())
        }

        fn start_use(&self, mount: MountId, _: ManagedKeyRef) -> Result<ManagedKeyLookup> {
            let name = "token".to_owned();
            let public = self.0.key.public().clone();
            Ok(std::future::ready(Ok(ManagedKey { mount, uuid: "u".to_owned(), name, public, locator: String::new() }))
                .boxed())
        }
    }

    const P256: SignatureAlgorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);

    fn local(key_type: &str) -> Arc<PrivateKey> {
        Arc::new(PrivateKey::generate(KeySpec::new(key_type, 0).unwrap()).unwrap())
    }

    fn managed(public: &PublicKey) -> Arc<ManagedKey> {
        let uuid = "u".to_owned();
        let name = "token".to_owned();
        Arc::new(ManagedKey { mount: MountId(1), uuid, name, public: public.clone(), locator: String::new() })
    }

    fn sign_message(key: &PrivateKey, algorithm: SignatureAlgorithm, input: &SigningInput) -> SignatureFuture {
        let SigningInput::Message(message) = input else { unreachable!("a message was wanted") };
        let signature = key.sign(algorithm, message);
        async { signature }.boxed()
    }

    async fn signed(double: SignerDouble, key: &Arc<ManagedKey>, algorithm: SignatureAlgorithm) -> Result<Vec<u8>> {
        let pieces = [&b"one "[..], b"message"];
        key.request_signature(&SingleSigner(Arc::new(double)), algorithm, pieces.into_iter(), false)?.await
    }

    #[tokio::test]
    async fn message_signer_gets_the_whole_message_and_is_verified() {
        for (key_type, algorithm) in [("ec", P256), ("ed25519", SignatureAlgorithm::Ed25519)] {
            let key = local(key_type);
            let double =
                SignerDouble { key: Arc::clone(&key), input_kind: SigningInputKind::Message, answer: sign_message };
            let signature = signed(double, &managed(key.public()), algorithm).await.unwrap();
            key.public().verify(algorithm, b"one message", &signature).unwrap();
        }
    }

    #[tokio::test]
    async fn digest_signer_gets_the_digest() {
        let answer = |_: &PrivateKey, _, input: &SigningInput| {
            assert!(*input == SigningInput::Digest(Hash::Sha256.digest(b"one message").as_ref().to_vec()));
            async { Err(Error::new(Kind::Busy, "enough")) }.boxed()
        };
        let key = local("ec");
        let double = SignerDouble { key: key.clone(), input_kind: SigningInputKind::Digest, answer };
        let managed = managed(key.public());
        assert_eq!(signed(double, &managed, P256).await.unwrap_err().kind(), Kind::Busy);
    }

    #[tokio::test]
    async fn replaced_key_and_wrong_signature_are_refused() {
        let key = local("ec");
        let other = local("ec");
        let double = |answer| SignerDouble { key: Arc::clone(&key), input_kind: SigningInputKind::Message, answer };
        let replaced = signed(double(sign_message), &managed(other.public()), P256).await.unwrap_err();
        assert_eq!(replaced.kind(), Kind::BadGateway);
        assert!(replaced.text().contains("a different key"), "{replaced}");
        let wrong = |key: &PrivateKey, algorithm, _: &SigningInput| {
            let signature = key.sign(algorithm, b"another message");
            async { signature }.boxed()
        };
        let refused = signed(double(wrong), &managed(key.public()), P256).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::BadGateway);
        assert!(refused.text().contains("does not verify"), "{refused}");
    }

    #[tokio::test]
    async fn hanging_or_panicking_signer_fails_within_the_timeout() {
        let key = local("ec");
        let double = |answer| SignerDouble { key: Arc::clone(&key), input_kind: SigningInputKind::Message, answer };
        let managed = managed(key.public());
        let input = || SigningInput::Message(Vec::new());
        let hangs = double(|_, _, _| std::future::pending().boxed());
        let late = managed.limit_signing(hangs.sign(P256, input()), Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(late.kind(), Kind::Unavailable);
        for panics in [double(|_, _, _| panic!("a defect")), double(|_, _, _| async { panic!("a defect") }.boxed())] {
            let signed = async { panics.sign(P256, input()).await };
            let error = managed.limit_signing(signed, SIGN_TIMEOUT).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Internal);
        }
    }

    #[test]
    fn without_managed_keys_there_is_no_signer() {
        let key = SigningKey::Managed(managed(local("ec").public()));
        assert!(key.local().is_none() && key.kind() == KeyKind::Ec(Curve::P256));
        let SigningKey::Managed(key) = key else { unreachable!() };
        let refused = key.request_signature(&NoSigners, P256, std::iter::empty(), false).map(drop).unwrap_err();
        assert_eq!((refused.kind(), refused.text()), (Kind::Invalid, "managed keys are not supported"));
    }
}
