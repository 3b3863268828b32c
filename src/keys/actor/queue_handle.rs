//! Submits a job to the queue and waits for its response.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::backend::{BackendRequest, BackendResponse};
use super::priority_queues::{JobPriority, SigningJob};
use super::sign_queue::{SignQueue, stopped_error};
use crate::error::{Error, Result};
use crate::keys::signer::KeyIdentity;
use crate::rationing::QueueCaller;

/// A handle to the job queue of one key; clones share it.
#[derive(Clone)]
pub(super) struct QueueHandle(Arc<QueueCloser>);

/// Closes the queue when the last handle is dropped. The workers hold only the queue, so they do not keep it open.
struct QueueCloser(Arc<SignQueue>);

impl Drop for QueueCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl QueueHandle {
    pub(super) fn new(queue: Arc<SignQueue>) -> Self {
        Self(Arc::new(QueueCloser(queue)))
    }

    pub(super) fn queue(&self) -> &SignQueue {
        &self.0.0
    }

    /// Queues a request and waits for its response, for at most the time limit of a job.
    pub(super) async fn request(&self, request: BackendRequest, priority: JobPriority) -> Result<BackendResponse> {
        let queue = &self.0.0;
        let (answer, answered) = oneshot::channel();
        let queued_at = Instant::now();
        let deadline = queued_at + queue.limits().call_timeout;
        let outcome = match queue.push(SigningJob {
            request,
            priority,
            queued_at,
            deadline,
            caller: QueueCaller::current(),
            answer,
        }) {
            Err(error) => Err(error),
            Ok(()) => match tokio::time::timeout_at(deadline.into(), answered).await {
                Ok(Ok(outcome)) => {
                    queue.yield_to_worker();
                    outcome
                }
                Ok(Err(_)) => Err(stopped_error(queue.name())),
                Err(_) => {
                    queue.refresh_gauges();
                    Err(queue.timeout_error())
                }
            },
        };
        outcome.inspect_err(|error| queue.key_metrics().count_failure(error.kind()))
    }

    pub(super) async fn find_key(&self, create: bool) -> Result<KeyIdentity> {
        match self.request(BackendRequest::Find { create }, JobPriority::Lookup).await? {
            BackendResponse::Key(key) => Ok(key),
            _ => Err(mismatched_response_error()),
        }
    }
}

pub(super) fn mismatched_response_error() -> Error {
    Error::internal("managed key: the response of its backend does not match the request")
}
