//! Interface to a private key that is not in the memory of this process.
//!
//! The caller asks [`RemoteSigner::input_kind`] for the kind of input (digest or message) and then awaits one future.
//! The result is [`VerifiedSignature`], which only a successful verification creates. Every signature is verified once,
//! by the signer, which also counts and logs wrong signatures.

use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

/// The kind of input that a signer needs for an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningInputKind {
    /// The digest of the message, computed with the hash function of the algorithm.
    Digest,
    /// The message itself.
    Message,
}

/// The data to sign; owned, because a device works on another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningInput {
    /// A digest of the message, computed with the hash function of the algorithm.
    Digest(Vec<u8>),
    /// A whole message.
    Message(Vec<u8>),
}

/// A key as its backend reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyIdentity {
    /// The public key.
    pub public: PublicKey,
    /// A permanent identifier at the backend (an ARN, a version), independent of names that may move to another key.
    /// Empty if the configuration identifies exactly one key.
    pub locator: String,
}

impl From<PublicKey> for KeyIdentity {
    /// Creates the identity for a backend whose configuration identifies exactly one key, so that it needs no locator.
    fn from(public: PublicKey) -> Self {
        Self { public, locator: String::new() }
    }
}

/// A verified signature in the encoding of X.509.
#[derive(Debug)]
pub struct VerifiedSignature(Vec<u8>);

impl VerifiedSignature {
    /// Verifies a signature of `input` with the public key.
    ///
    /// # Errors
    /// `BadGateway` when the signature does not verify.
    pub fn new(
        key: &PublicKey,
        algorithm: SignatureAlgorithm,
        input: &SigningInput,
        signature: Vec<u8>,
    ) -> Result<Self> {
        let verified = match input {
            SigningInput::Digest(digest) => key.verify_digest(algorithm, digest, &signature),
            SigningInput::Message(message) => key.verify(algorithm, message, &signature),
        };
        verified.map_err(|_| Error::new(Kind::BadGateway, "the signature of a managed key does not verify"))?;
        Ok(Self(signature))
    }

    /// The signature.
    pub fn into_signature(self) -> Vec<u8> {
        self.0
    }
}

/// A private key in a device or service, which signs on request.
pub trait RemoteSigner: Send + Sync {
    /// The public key, as of the creation of this signer.
    fn public(&self) -> &PublicKey;

    /// Returns the kind of input that [`RemoteSigner::sign`] needs.
    ///
    /// # Errors
    /// `Invalid`, with the reason, when the key does not sign with the algorithm.
    fn input_kind(&self, algorithm: SignatureAlgorithm) -> Result<SigningInputKind>;

    /// Checks that the queue has capacity for one more signature, so that a request can fail before it does any work.
    /// Like [`RemoteSigner::input_kind`] it does not call the device.
    ///
    /// # Errors
    /// `Busy` when the queue is full.
    fn require_capacity(&self) -> Result<()>;

    /// Signs `input`, verifies the signature under [`RemoteSigner::public`] and returns it in the encoding of X.509
    /// (ECDSA as DER). Dropping the future cancels a job that has not started. Needs a tokio runtime with a timer.
    ///
    /// # Errors
    /// `Busy` when the queue of the key is full; `Unavailable` when the backend is unreachable, fails or is too slow;
    /// `BadGateway` when the backend rejects this server's credential or is not trustworthy (wrong signature, replaced
    /// key); `Invalid` when the backend does not support the operation.
    fn sign(&self, algorithm: SignatureAlgorithm, input: SigningInput)
    -> BoxFuture<'static, Result<VerifiedSignature>>;

    /// As [`RemoteSigner::sign`], with low priority: for requests that need no authentication.
    ///
    /// # Errors
    /// As [`RemoteSigner::sign`].
    fn sign_with_low_priority(
        &self,
        algorithm: SignatureAlgorithm,
        input: SigningInput,
    ) -> BoxFuture<'static, Result<VerifiedSignature>> {
        self.sign(algorithm, input)
    }
}
