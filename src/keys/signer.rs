//! The seam between checked bytes and a key that is not in this process.
//!
//! Whoever signs asks [`RemoteSigner::wants`] what to hand over, a digest or the message, and waits for
//! one future. What comes out is [`Verified`], and nothing but verification makes one: every signature is
//! verified once, by the signer, which also knows what to do about one that is wrong.

use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

/// What a signer is given for an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The digest of the message, by the hash of the algorithm.
    Digest,
    /// The message itself.
    Message,
}

/// What is signed: owned, because a device works on another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A digest by the hash of the algorithm.
    Digest(Vec<u8>),
    /// A whole message.
    Message(Vec<u8>),
}

/// A key as its backend has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its public half.
    pub public: PublicKey,
    /// What names it for ever at its backend, wherever its name leads later: an ARN, a version. Empty where the
    /// configuration names one key alone.
    pub locator: String,
}

impl From<PublicKey> for Known {
    /// Of a backend whose configuration names one key alone.
    fn from(public: PublicKey) -> Self {
        Self { public, locator: String::new() }
    }
}

/// A signature that verifies, in the form of X.509.
#[derive(Debug)]
pub struct Verified(Vec<u8>);

impl Verified {
    /// Holds a signature about `input` against the public key.
    ///
    /// # Errors
    /// `BadGateway` when it is not the key's.
    pub fn new(key: &PublicKey, algorithm: SignatureAlgorithm, input: &Input, signature: Vec<u8>) -> Result<Self> {
        let verified = match input {
            Input::Digest(digest) => key.verify_digest(algorithm, digest, &signature),
            Input::Message(message) => key.verify(algorithm, message, &signature),
        };
        verified.map_err(|_| Error::new(Kind::BadGateway, "the signature of a managed key does not verify"))?;
        Ok(Self(signature))
    }

    /// The signature.
    pub fn into_signature(self) -> Vec<u8> {
        self.0
    }
}

/// A key that is not in this process: one call per signature.
pub trait RemoteSigner: Send + Sync {
    /// The public key, as it was when the signer was made.
    fn public(&self) -> &PublicKey;

    /// What [`RemoteSigner::sign`] is given.
    ///
    /// # Errors
    /// `Invalid`, saying why, when the key does not sign with the algorithm.
    fn wants(&self, algorithm: SignatureAlgorithm) -> Result<Wants>;

    /// That one signature more would find a place at this moment: whoever would be refused at the end of some work is
    /// refused before it. Like [`RemoteSigner::wants`] it asks no device.
    ///
    /// # Errors
    /// `Busy` when it would not.
    fn require_room(&self) -> Result<()>;

    /// Signs; gives the signature in the form of X.509, ECDSA as DER, once it verifies under
    /// [`RemoteSigner::public`]. Dropping the future takes back what has not begun. Needs a tokio runtime with a
    /// timer.
    ///
    /// # Errors
    /// `Busy` when too many wait for the key, `Unavailable` when its backend is out of reach, fails or is
    /// too slow, `BadGateway` when it refuses our credential or is not to be trusted (a wrong signature,
    /// another key in the key's place), `Invalid` when it does not sign like this.
    fn sign(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>>;

    /// As [`RemoteSigner::sign`], for what anybody may ask for: others go before it, where the signer has a line.
    ///
    /// # Errors
    /// As [`RemoteSigner::sign`].
    fn sign_last(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>> {
        self.sign(algorithm, input)
    }
}
