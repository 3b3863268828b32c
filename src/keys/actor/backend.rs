//! What a backend is to the actor: something that answers one request at a time at each of its places.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::measure::Meter;
use crate::error::Result;
use crate::keys::signer::{Input, Known, Wants};
use crate::keys::store::PendingKeys;
use crate::keys::test_sign::TestSign;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// One question to a backend.
#[derive(Clone)]
pub enum Request {
    /// For the key as it is now; [`Answer::Key`].
    Find {
        /// Make the key when it is not there and the configuration allows it.
        create: bool,
    },
    /// For a signature; [`Answer::Signature`], ECDSA as DER, or [`Answer::Changed`]. Digests have the length of the algorithm's.
    Sign {
        /// How.
        algorithm: SignatureAlgorithm,
        /// What; as [`BlockingBackend::wants`] said.
        input: Arc<Input>,
        /// Whose signature it has to be: a backend that finds another key in its place does not sign.
        key: Arc<Known>,
    },
    /// For a test signature, verified; [`Answer::Tested`] or [`Answer::Wrong`]. A missing key is made where that is allowed.
    TestSign(TestSign),
}

impl Request {
    /// Whether it is for a signature that somebody waits for.
    pub(super) fn is_signature(&self) -> bool {
        matches!(self, Self::Sign { .. })
    }
}

/// What a backend answers.
pub enum Answer {
    /// The key.
    Key(Known),
    /// The signature.
    Signature(Vec<u8>),
    /// There is another key in the place of the one that was to sign.
    Changed,
    /// The test signature verified.
    Tested,
    /// The test signature did not verify.
    Wrong,
}

/// The two ways of waiting for a backend.
#[derive(Clone)]
pub enum Backend {
    /// By a thread.
    Blocking(Arc<dyn BlockingBackend>),
    /// By a future.
    Async(Arc<dyn AsyncBackend>),
}

impl Backend {
    pub(super) fn wants(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Wants> {
        match self {
            Self::Blocking(backend) => backend.wants(kind, algorithm),
            Self::Async(backend) => backend.wants(kind, algorithm),
        }
    }

    pub(super) fn offer(&self, candidates: &[PublicKey]) {
        if let Self::Blocking(backend) = self {
            backend.offer(candidates);
        }
    }
}

/// A backend whose calls block.
pub trait BlockingBackend: Send + Sync {
    /// What a key of `kind` is given to sign with `algorithm`. Asks nobody.
    ///
    /// # Errors
    /// `Invalid`, saying why, when the configuration does not go with it.
    fn wants(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Wants>;

    /// Keeps public keys of certificates for a device that does not give the public part of its key: one of them may be
    /// it. Asks nobody.
    fn offer(&self, _candidates: &[PublicKey]) {}

    /// What works at one place; made on the place's own thread, where it stays. Asks nobody yet.
    fn lane(self: Arc<Self>, meter: Meter) -> Box<dyn Lane>;
}

/// One session of a blocking backend.
pub trait Lane {
    /// Answers one request.
    ///
    /// # Errors
    /// As [`RemoteSigner::sign`](crate::keys::RemoteSigner::sign).
    fn call(&mut self, request: &Request) -> Result<Answer>;

    /// Called several times a second while there is nothing to do: gives back what others wait for.
    fn rest(&mut self) {}
}

/// A backend whose calls are futures.
pub trait AsyncBackend: Send + Sync {
    /// As [`BlockingBackend::wants`].
    ///
    /// # Errors
    /// As there.
    fn wants(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Wants>;

    /// Answers one request; dropped when its time is up.
    fn call(self: Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer>>;

    /// Shares the keys that were generated and have not appeared with other nodes and configurations; `place` is that
    /// of this key. For backends that generate such keys.
    fn share_pending(&self, _pending: Arc<dyn PendingKeys>, _place: String) {}
}
