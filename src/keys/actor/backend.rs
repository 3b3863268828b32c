//! The interface between the actor and a backend, which processes one request at a time per session.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::key_metrics::KeyMetrics;
use crate::error::Result;
use crate::keys::signer::{KeyIdentity, SigningInput, SigningInputKind};
use crate::keys::store::PendingKeys;
use crate::keys::test_sign::TestSign;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// A request to a backend.
#[derive(Clone)]
pub enum BackendRequest {
    /// Looks up the key that the configuration names. Response: [`BackendResponse::Key`].
    Find {
        /// Generates a missing key if the configuration allows that.
        create: bool,
    },
    /// Signs `input`. Response: [`BackendResponse::Signature`] (ECDSA as DER) or [`BackendResponse::KeyChanged`]. A
    /// digest has the length of the algorithm's hash.
    Sign {
        /// The signature algorithm.
        algorithm: SignatureAlgorithm,
        /// The data to sign, of the kind that [`BlockingBackend::input_kind`] returned.
        input: Arc<SigningInput>,
        /// The expected key: a backend that finds another key instead does not sign.
        key: Arc<KeyIdentity>,
    },
    /// Makes and verifies a test signature. Response: [`BackendResponse::TestPassed`] or
    /// [`BackendResponse::TestFailed`]. Generates a missing key if that is allowed.
    TestSign(TestSign),
}

impl BackendRequest {
    /// `true` for a request that signs for a caller, as opposed to a lookup or test.
    pub(super) fn is_signature(&self) -> bool {
        matches!(self, Self::Sign { .. })
    }
}

/// The response of a backend.
pub enum BackendResponse {
    /// The key that a lookup found.
    Key(KeyIdentity),
    /// The signature.
    Signature(Vec<u8>),
    /// The backend has another key than the expected one.
    KeyChanged,
    /// The test signature verified.
    TestPassed,
    /// The test signature did not verify.
    TestFailed,
}

/// A blocking or asynchronous backend.
#[derive(Clone)]
pub enum KeyBackend {
    /// Each session has its own thread.
    Blocking(Arc<dyn BlockingBackend>),
    /// Each call is a future, which a task of the async runtime runs.
    Async(Arc<dyn AsyncBackend>),
}

impl KeyBackend {
    pub(super) fn input_kind(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<SigningInputKind> {
        match self {
            Self::Blocking(backend) => backend.input_kind(kind, algorithm),
            Self::Async(backend) => backend.input_kind(kind, algorithm),
        }
    }

    pub(super) fn offer_candidates(&self, candidates: &[PublicKey]) {
        if let Self::Blocking(backend) = self {
            backend.offer_candidates(candidates);
        }
    }
}

/// A backend with blocking calls.
pub trait BlockingBackend: Send + Sync {
    /// Returns the kind of input that a key of `kind` needs for `algorithm`. Does not call the device.
    ///
    /// # Errors
    /// `Invalid`, with the reason, when the configuration does not support it.
    fn input_kind(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<SigningInputKind>;

    /// Stores public keys of certificates as candidates for the public key of this key. They are used if the device
    /// does not return the public key. Does not call the device.
    fn offer_candidates(&self, _candidates: &[PublicKey]) {}

    /// Creates a session. A worker thread calls this, and only that thread uses the session. Does not call the device
    /// yet.
    fn new_session(self: Arc<Self>, key_metrics: KeyMetrics) -> Box<dyn BackendSession>;
}

/// One session of a blocking backend.
pub trait BackendSession {
    /// Processes one request.
    ///
    /// # Errors
    /// As [`RemoteSigner::sign`](crate::keys::RemoteSigner::sign).
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse>;

    /// Releases resources that other sessions wait for. The worker calls it several times a second while it has no job.
    fn on_idle(&mut self) {}
}

/// A backend with asynchronous calls.
pub trait AsyncBackend: Send + Sync {
    /// As [`BlockingBackend::input_kind`].
    ///
    /// # Errors
    /// As [`BlockingBackend::input_kind`].
    fn input_kind(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<SigningInputKind>;

    /// Processes one request. The future is dropped on timeout.
    fn call(self: Arc<Self>, request: BackendRequest) -> BoxFuture<'static, Result<BackendResponse>>;

    /// Sets the record of pending keys (generated keys that the service does not list yet). All nodes and
    /// configurations share this record, in which `location` identifies the key. Backends without pending keys ignore
    /// the call.
    fn share_pending(&self, _pending: Arc<dyn PendingKeys>, _location: String) {}
}
