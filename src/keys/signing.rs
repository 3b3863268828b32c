//! The key that a mount signs with: one of this process ([`SigningKey::Local`]), or a managed one, which is
//! wherever its [`RemoteSigner`] is.
//!
//! A managed key is resolved to its signer for every signature anew ([`Signers`]): what the key may be used
//! for, and by which mount, is decided there, and a grant that was taken away counts at once. What a signer
//! gives is [verified](super::signer::Verified) under its public key, and that has to be the one that the mount
//! knows.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::local::PrivateKey;
use super::signer::{Input, Known, RemoteSigner, Verified, Wants};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::telemetry;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// How long a signer may take for one signature, its queue included. Less than a request may take, so that
/// whoever waits hears why.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds the signers of managed keys.
pub trait Signers: Send + Sync {
    /// The signer of a managed key, for one signature of the mount that has it, with the public key that the
    /// mount knows. Called for every signature, on workers: it neither blocks nor asks a device.
    ///
    /// # Errors
    /// `Invalid` when there is no such key or the mount may not use it, in the same words, or when the key is
    /// not for signing; `Unavailable` when its backend cannot be used now.
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>>;

    /// A managed key that a mount takes into use, with the public half that its backend shows now. One that is
    /// not there is made where its configuration allows that.
    ///
    /// # Errors
    /// `Invalid` when there is no such key or the mount may not use it, in the same words. Of the future: `Invalid`
    /// when the backend has none that can be used; `Busy`, `Unavailable` and `BadGateway` as
    /// [`RemoteSigner::sign`].
    fn take(&self, mount: MountId, key: ManagedKeyRef) -> Result<Taking>;

    /// As [`Signers::take`]; `candidates` are the keys of the mount's certificates, for a device that does not give the
    /// public part of its key.
    ///
    /// # Errors
    /// As there.
    fn take_among(&self, mount: MountId, key: ManagedKeyRef, _candidates: &[PublicKey]) -> Result<Taking> {
        self.take(mount, key)
    }
}

/// A managed key that its backend is asked for.
pub type Taking = BoxFuture<'static, Result<ManagedKey>>;

/// What a request names a managed key by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedKeyRef {
    /// Its name, in lower case.
    Name(String),
    /// Its UUID.
    Uuid(String),
}

/// The signers of a server without managed keys.
pub struct NoSigners;

impl Signers for NoSigners {
    fn signer(&self, _: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        Err(unsupported())
    }

    fn take(&self, _: MountId, _: ManagedKeyRef) -> Result<Taking> {
        Err(unsupported())
    }
}

fn unsupported() -> Error {
    Error::invalid("managed keys are not supported")
}

/// A key of a mount, wherever it is.
#[derive(Clone)]
pub enum SigningKey {
    /// In this process.
    Local(Arc<PrivateKey>),
    /// Behind a signer.
    Managed(Arc<ManagedKey>),
}

impl SigningKey {
    /// The public half.
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Local(key) => key.public(),
            Self::Managed(key) => &key.public,
        }
    }

    /// Kind and size.
    pub fn kind(&self) -> KeyKind {
        self.public().kind()
    }

    /// The private key, where it is in this process.
    pub fn local(&self) -> Option<&Arc<PrivateKey>> {
        match self {
            Self::Local(key) => Some(key),
            Self::Managed(_) => None,
        }
    }

    /// The managed key, if it is one.
    pub fn managed(&self) -> Option<&ManagedKey> {
        match self {
            Self::Local(_) => None,
            Self::Managed(key) => Some(key),
        }
    }
}

/// What a mount knows of a managed key. No key material is in it.
pub struct ManagedKey {
    /// The mount that signs with it.
    pub mount: MountId,
    /// The key's UUID, which names it for ever.
    pub uuid: String,
    /// Its name when the mount took it.
    pub name: String,
    /// Its public half when the mount took it.
    pub public: PublicKey,
    /// What names it at its backend, as [`Known`] says: another key that gets its name later does
    /// not take its place.
    pub locator: String,
}

/// What a signer answers.
pub type Asked = BoxFuture<'static, Result<Vec<u8>>>;

impl ManagedKey {
    /// The key as its backend had it when the mount took it.
    pub fn known(&self) -> Known {
        Known { public: self.public.clone(), locator: self.locator.clone() }
    }

    /// Asks the key's signer to sign the message in `pieces`, hashed as they come where a digest is all that it
    /// wants. What `goes_last` is what anybody may ask for, and others go before it. Nothing happens before the future is polled, and dropping it takes the job back.
    ///
    /// # Errors
    /// Those of [`Signers::signer`] and [`RemoteSigner::wants`]; `BadGateway` when the signer has another key by
    /// now. Of the future: those of [`RemoteSigner::sign`], `Unavailable` when it takes too long.
    pub(crate) fn ask<'m>(
        self: &Arc<Self>,
        signers: &dyn Signers,
        algorithm: SignatureAlgorithm,
        pieces: impl Iterator<Item = &'m [u8]>,
        goes_last: bool,
    ) -> Result<Asked> {
        let signer = signers.signer(self)?;
        if *signer.public() != self.public {
            return Err(self.replaced());
        }
        let input = match (signer.wants(algorithm)?, algorithm.hash()) {
            (Wants::Digest, Some(hash)) => Input::Digest(hash.digest_pieces(pieces).as_ref().to_vec()),
            (Wants::Digest, None) => return Err(Error::internal("a signer wants the digest of an Ed25519 message")),
            (Wants::Message, _) => Input::Message(pieces.collect::<Vec<_>>().concat()),
        };
        let key = Arc::clone(self);
        let asked = async move { key.answer(&*signer, (algorithm, input, goes_last), PATIENCE).await };
        Ok(asked.map(|answer| answer.map(Verified::into_signature)).boxed())
    }

    /// Bounds what a signer does, whatever that is: others wait with its caller.
    async fn answer(
        &self,
        signer: &dyn RemoteSigner,
        (algorithm, input, goes_last): (SignatureAlgorithm, Input, bool),
        patience: Duration,
    ) -> Result<Verified> {
        let signed = async {
            if goes_last { signer.sign_last(algorithm, input).await } else { signer.sign(algorithm, input).await }
        };
        let answer = AssertUnwindSafe(signed).catch_unwind();
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::internal("a signer panicked")),
            Err(_) => Err(Error::new(Kind::Unavailable, format!("managed key {:?} did not sign in time", self.name))),
        }
    }

    fn replaced(&self) -> Error {
        let why = "its backend has another key in its place";
        let mount = telemetry::mount_path(self.mount.0);
        tracing::error!(key = self.name, uuid = self.uuid, mount, "managed key not used: {why}");
        Error::new(Kind::BadGateway, format!("managed key {:?} is not to be trusted: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::local::KeySpec;
    use crate::x509::algorithm::{Curve, Hash};

    /// Signs with a local key, as `answer` would have it.
    struct Double {
        key: Arc<PrivateKey>,
        wants: Wants,
        answer: fn(&PrivateKey, SignatureAlgorithm, &Input) -> Asked,
    }

    impl RemoteSigner for Double {
        fn public(&self) -> &PublicKey {
            self.key.public()
        }

        fn wants(&self, _: SignatureAlgorithm) -> Result<Wants> {
            Ok(self.wants)
        }

        fn require_room(&self) -> Result<()> {
            Ok(())
        }

        fn sign(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>> {
            let (answer, key) = ((self.answer)(&self.key, algorithm, &input), Arc::clone(&self.key));
            async move { Verified::new(key.public(), algorithm, &input, answer.await?) }.boxed()
        }
    }

    struct Only(Arc<Double>);

    impl Signers for Only {
        fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
            assert_eq!(key.uuid, "u");
            Ok(self.0.clone())
        }

        fn take(&self, mount: MountId, _: ManagedKeyRef) -> Result<Taking> {
            let (name, public) = ("token".to_owned(), self.0.key.public().clone());
            Ok(std::future::ready(Ok(ManagedKey { mount, uuid: "u".to_owned(), name, public, locator: String::new() }))
                .boxed())
        }
    }

    const P256: SignatureAlgorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);

    fn local(key_type: &str) -> Arc<PrivateKey> {
        Arc::new(PrivateKey::generate(KeySpec::new(key_type, 0).unwrap()).unwrap())
    }

    fn managed(public: &PublicKey) -> Arc<ManagedKey> {
        let (uuid, name) = ("u".to_owned(), "token".to_owned());
        Arc::new(ManagedKey { mount: MountId(1), uuid, name, public: public.clone(), locator: String::new() })
    }

    fn honest(key: &PrivateKey, algorithm: SignatureAlgorithm, input: &Input) -> Asked {
        let Input::Message(message) = input else { unreachable!("a message was wanted") };
        let signature = key.sign(algorithm, message);
        async { signature }.boxed()
    }

    /// Asks for the signature of a message in two pieces.
    async fn signed(double: Double, key: &Arc<ManagedKey>, algorithm: SignatureAlgorithm) -> Result<Vec<u8>> {
        let pieces = [&b"one "[..], b"message"];
        key.ask(&Only(Arc::new(double)), algorithm, pieces.into_iter(), false)?.await
    }

    #[tokio::test]
    async fn what_signs_messages_is_given_them_whole_and_is_held_against_them() {
        for (key_type, algorithm) in [("ec", P256), ("ed25519", SignatureAlgorithm::Ed25519)] {
            let key = local(key_type);
            let double = Double { key: Arc::clone(&key), wants: Wants::Message, answer: honest };
            let signature = signed(double, &managed(key.public()), algorithm).await.unwrap();
            key.public().verify(algorithm, b"one message", &signature).unwrap();
        }
    }

    #[tokio::test]
    async fn what_signs_digests_is_given_the_digest() {
        let answer = |_: &PrivateKey, _, input: &Input| {
            assert!(*input == Input::Digest(Hash::Sha256.digest(b"one message").as_ref().to_vec()));
            async { Err(Error::new(Kind::Busy, "enough")) }.boxed()
        };
        let key = local("ec");
        let (double, managed) = (Double { key: key.clone(), wants: Wants::Digest, answer }, managed(key.public()));
        assert_eq!(signed(double, &managed, P256).await.unwrap_err().kind(), Kind::Busy);
    }

    #[tokio::test]
    async fn another_key_and_a_signature_of_other_bytes_go_no_further() {
        let (key, other) = (local("ec"), local("ec"));
        let double = |answer| Double { key: Arc::clone(&key), wants: Wants::Message, answer };
        let replaced = signed(double(honest), &managed(other.public()), P256).await.unwrap_err();
        assert_eq!(replaced.kind(), Kind::BadGateway);
        assert!(replaced.text().contains("another key"), "{replaced}");
        let wrong = |key: &PrivateKey, algorithm, _: &Input| {
            let signature = key.sign(algorithm, b"another message");
            async { signature }.boxed()
        };
        let refused = signed(double(wrong), &managed(key.public()), P256).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::BadGateway);
        assert!(refused.text().contains("does not verify"), "{refused}");
    }

    #[tokio::test]
    async fn a_signer_that_hangs_or_panics_is_an_error_in_time() {
        let key = local("ec");
        let double = |answer| Double { key: Arc::clone(&key), wants: Wants::Message, answer };
        let (managed, input) = (managed(key.public()), || Input::Message(Vec::new()));
        let hangs = double(|_, _, _| std::future::pending().boxed());
        let late = managed.answer(&hangs, (P256, input(), false), Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(late.kind(), Kind::Unavailable);
        for panics in [double(|_, _, _| panic!("a defect")), double(|_, _, _| async { panic!("a defect") }.boxed())] {
            let error = managed.answer(&panics, (P256, input(), false), PATIENCE).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Internal);
        }
    }

    #[test]
    fn without_managed_keys_there_is_no_signer() {
        let key = SigningKey::Managed(managed(local("ec").public()));
        assert!(key.local().is_none() && key.kind() == KeyKind::Ec(Curve::P256));
        let SigningKey::Managed(key) = key else { unreachable!() };
        let refused = key.ask(&NoSigners, P256, std::iter::empty(), false).map(drop).unwrap_err();
        assert_eq!((refused.kind(), refused.text()), (Kind::Invalid, "managed keys are not supported"));
    }
}
