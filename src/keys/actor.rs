//! The signer actor: one per managed key. It runs at most `max_parallel` concurrent calls to the key's backend and has
//! a bounded job queue that serves callers round-robin.
//!
//! It is not an actix actor, because a mailbox would cost three thread switches per signature. The caller pushes its
//! job into the queue; a session thread ([`KeyBackend::Blocking`]) or a task of the caller's runtime
//! ([`KeyBackend::Async`]) takes it and replies directly. Queue and workers are one state behind one lock
//! (`sign_queue`), which is held for a few queue operations only. A job has one time limit from submission to response,
//! including its wait in the queue.

mod backend;
mod key_metrics;
mod priority_queues;
mod queue_handle;
mod sign_queue;
mod tasks;
mod threads;
mod verifying_signer;

use std::sync::Arc;
use std::time::Duration;

pub use self::backend::{AsyncBackend, BackendRequest, BackendResponse, BackendSession, BlockingBackend, KeyBackend};
pub use self::key_metrics::KeyMetrics;
use self::priority_queues::JobPriority;
use self::queue_handle::QueueHandle;
use self::sign_queue::SignQueue;
pub use self::sign_queue::SignerLimits;
use super::signer::{KeyIdentity, RemoteSigner, SigningInput, SigningInputKind};
use super::test_sign::TestSign;
use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

/// Size of the random message of a test signature, in bytes.
const TEST_MESSAGE_BYTES: usize = 64;

/// Handle of a key's actor; clones share it. Dropping the last handle closes the queue and ends the workers.
#[derive(Clone)]
pub struct SignerActor(QueueHandle);

impl SignerActor {
    /// Creates an actor for the managed key `name`, which is also the label of its metrics. Workers start with the
    /// first job. A `max_parallel` of 0 counts as 1.
    pub fn start(name: &str, backend: KeyBackend, max_parallel: usize, limits: SignerLimits) -> Self {
        let start = match backend {
            KeyBackend::Blocking(_) => threads::start_worker,
            KeyBackend::Async(_) => tasks::start_worker,
        };
        Self(QueueHandle::new(SignQueue::new(name, backend, start, max_parallel, limits)))
    }

    /// The name of the key.
    pub fn name(&self) -> &str {
        self.0.queue().name()
    }

    /// Applies a changed configuration. Later jobs use the new backend; calls in progress end on the old one.
    /// `max_parallel` limits the calls on both backends together.
    ///
    /// # Errors
    /// `Internal` when a blocking backend would replace an asynchronous one or vice versa: that needs a new actor.
    pub fn configure(&self, backend: KeyBackend, max_parallel: usize) -> Result<()> {
        self.0.queue().configure(backend, max_parallel)
    }

    /// Stores public keys of certificates as candidates for the public key of this key. They are used if the device
    /// does not return the public key. A candidate is used only if a signature of the key verifies under it.
    pub fn offer_candidates(&self, candidates: &[PublicKey]) {
        self.0.queue().backend().offer_candidates(candidates);
    }

    /// Looks up the key in the backend. With `create`, a missing key is generated if its configuration allows that.
    ///
    /// # Errors
    /// `Invalid` when there is no usable key; otherwise as [`RemoteSigner::sign`].
    pub async fn find_key(&self, create: bool) -> Result<KeyIdentity> {
        self.0.find_key(create).await
    }

    /// Signs random bytes as specified by `test` and verifies the signature. Generates a missing
    /// key if that is allowed.
    ///
    /// # Errors
    /// `Invalid` with a prefix for the cause (`configuration`, `verification`); `Busy` and `Unavailable` with
    /// the prefix `backend`.
    pub async fn test_sign(&self, test: TestSign) -> Result<()> {
        match self.0.request(BackendRequest::TestSign(test), JobPriority::Lookup).await {
            Ok(BackendResponse::TestPassed) => Ok(()),
            Ok(BackendResponse::TestFailed) => {
                self.0.queue().key_metrics().count_wrong_signature();
                Err(Error::invalid("verification: the test signature does not verify"))
            }
            Ok(_) => Err(queue_handle::mismatched_response_error()),
            Err(error) => Err(classify_test_error(error)),
        }
    }

    /// Signs random bytes with `key` and verifies the signature. This tests a key that a mount still uses, although the
    /// configuration may name another key by now.
    ///
    /// # Errors
    /// As [`SignerActor::test_sign`].
    pub async fn test_key_in_use(&self, key: KeyIdentity) -> Result<()> {
        let signer = self.signer(key);
        let kind = signer.public().kind();
        let algorithm = SignatureAlgorithm::all_for(kind).find(|algorithm| signer.input_kind(*algorithm).is_ok());
        let of_mount = |error: Error| {
            classify_test_error(error.within("the key that mounts still use (its configuration now names another key)"))
        };
        let algorithm = algorithm.ok_or_else(|| of_mount(Error::invalid("supports no signature algorithm")))?;
        let message = crate::random::bytes::<TEST_MESSAGE_BYTES>();
        let input = match (signer.input_kind(algorithm).map_err(of_mount)?, algorithm.hash()) {
            (SigningInputKind::Digest, Some(hash)) => SigningInput::Digest(hash.digest(&message).as_ref().to_vec()),
            _ => SigningInput::Message(message.to_vec()),
        };
        signer.sign(algorithm, input).await.map(drop).map_err(of_mount)
    }

    /// Returns a signer for `key`, an identity that [`SignerActor::find_key`] has returned.
    pub fn signer(&self, key: KeyIdentity) -> Arc<dyn RemoteSigner> {
        Arc::new(verifying_signer::VerifyingSigner::new(self.0.clone(), key))
    }

    /// Rejects new jobs, completes queued ones and ends the workers. Jobs that are not done after `limit` fail with
    /// `Unavailable`. Idempotent.
    pub async fn stop(&self, limit: Duration) {
        self.0.queue().close();
        self.0.queue().wait_for_workers(limit).await;
    }
}

/// Classifies the error of a test signature. Configuration errors become `Invalid`, because the caller can fix them.
fn classify_test_error(error: Error) -> Error {
    match error.kind() {
        Kind::Invalid | Kind::BadGateway => Error::invalid(format!("configuration: {}", error.text())),
        Kind::Busy | Kind::Unavailable => error.within("backend"),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
