//! Verifies every signature before the caller gets it. This detects faulty devices, induced faults, and keys that were
//! replaced in the backend.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::backend::{BackendRequest, BackendResponse};
use super::priority_queues::JobPriority;
use super::queue_handle::{QueueHandle, mismatched_response_error};
use crate::error::{Error, Kind, Result};
use crate::keys::signer::{KeyIdentity, RemoteSigner, SigningInput, SigningInputKind, VerifiedSignature};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::public_key::PublicKey;

pub(super) struct VerifyingSigner {
    queue_handle: QueueHandle,
    key: Arc<KeyIdentity>,
}

impl VerifyingSigner {
    pub(super) fn new(queue_handle: QueueHandle, key: KeyIdentity) -> Self {
        Self { queue_handle, key: Arc::new(key) }
    }
}

impl RemoteSigner for VerifyingSigner {
    fn public(&self) -> &PublicKey {
        &self.key.public
    }

    fn input_kind(&self, algorithm: SignatureAlgorithm) -> Result<SigningInputKind> {
        let kind = self.key.public.kind();
        if !algorithm.fits(kind) {
            let name = algorithm.name();
            let key = kind.name();
            let bits = kind.bits();
            return Err(Error::invalid(format!(
                "signature algorithm: {name} does not fit an {key} key of {bits} bits"
            )));
        }
        self.queue_handle.queue().backend().input_kind(kind, algorithm)
    }

    fn require_capacity(&self) -> Result<()> {
        let queue = self.queue_handle.queue();
        queue.require_capacity().inspect_err(|error| queue.key_metrics().count_failure(error.kind()))
    }

    fn sign(
        &self,
        algorithm: SignatureAlgorithm,
        input: SigningInput,
    ) -> BoxFuture<'static, Result<VerifiedSignature>> {
        self.sign_with_priority(algorithm, input, JobPriority::First)
    }

    fn sign_with_low_priority(
        &self,
        algorithm: SignatureAlgorithm,
        input: SigningInput,
    ) -> BoxFuture<'static, Result<VerifiedSignature>> {
        self.sign_with_priority(algorithm, input, JobPriority::Last)
    }
}

impl VerifyingSigner {
    fn sign_with_priority(
        &self,
        algorithm: SignatureAlgorithm,
        input: SigningInput,
        priority: JobPriority,
    ) -> BoxFuture<'static, Result<VerifiedSignature>> {
        let fits = self.input_kind(algorithm).and_then(|expected| check_input(expected, algorithm, &input));
        let queue_handle = self.queue_handle.clone();
        let key = Arc::clone(&self.key);
        async move {
            fits?;
            let input = Arc::new(input);
            let request = BackendRequest::Sign { algorithm, input: Arc::clone(&input), key: Arc::clone(&key) };
            match queue_handle.request(request, priority).await? {
                BackendResponse::Signature(signature) => {
                    match VerifiedSignature::new(&key.public, algorithm, &input, signature) {
                        Ok(verified) => Ok(verified),
                        Err(_) => Err(wrong_signature_error(&queue_handle, &key.public).await),
                    }
                }
                BackendResponse::KeyChanged => Err(changed_key_error(&queue_handle)),
                _ => Err(mismatched_response_error()),
            }
        }
        .boxed()
    }
}

/// Rejects input of the wrong kind, and a digest of the wrong length, which some PKCS #11 modules would sign.
pub(super) fn check_input(
    expected: SigningInputKind,
    algorithm: SignatureAlgorithm,
    input: &SigningInput,
) -> Result<()> {
    match (expected, input) {
        (SigningInputKind::Message, SigningInput::Message(_)) => Ok(()),
        (SigningInputKind::Digest, SigningInput::Digest(digest))
            if algorithm.hash().is_some_and(|hash| digest.len() == hash.digest_len() as usize) =>
        {
            Ok(())
        }
        (SigningInputKind::Digest, SigningInput::Digest(digest)) => Err(Error::invalid(format!(
            "digest: has {} bytes, which is not the digest length of {}",
            digest.len(),
            algorithm.name()
        ))),
        (SigningInputKind::Digest, _) => Err(Error::invalid("signing input: the key signs digests, not messages")),
        (SigningInputKind::Message, _) => Err(Error::invalid("signing input: the key signs messages, not digests")),
    }
}

/// Returns the error for a wrong signature. First looks up the key: the backend may have another key by now.
async fn wrong_signature_error(queue_handle: &QueueHandle, key: &PublicKey) -> Error {
    queue_handle.queue().key_metrics().count_wrong_signature();
    match queue_handle.find_key(false).await {
        Ok(now) if now.public != *key => changed_key_error(queue_handle),
        _ => {
            tracing::error!(key = queue_handle.queue().name(), "a signature of a managed key does not verify");
            Error::new(Kind::BadGateway, "the backend of the managed key returned a wrong signature")
        }
    }
}

fn changed_key_error(queue_handle: &QueueHandle) -> Error {
    queue_handle.queue().key_metrics().count_changed_key();
    tracing::error!(
        key = queue_handle.queue().name(),
        "the backend now has another key for a managed key; its signatures are rejected"
    );
    Error::new(Kind::BadGateway, "managed key changed in backend")
}
