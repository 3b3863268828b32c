//! Submission of a job to the queue and its response.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::backend::{BackendRequest, BackendResponse};
use super::priority_queues::{JobPriority, SigningJob};
use super::sign_queue::{SignQueue, stopped_error};
use crate::error::{Error, Result};
use crate::fair_queue::QueueCaller;
use crate::keys::signer::KeyIdentity;

/// A handle to the queue; clones share it.
#[derive(Clone)]
pub(super) struct QueueHandle(Arc<QueueCloser>);

/// Closes the queue when the last handle is dropped. The workers refer to the queue, not to this.
struct QueueCloser(Arc<SignQueue>);

impl Drop for QueueCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl QueueHandle {
    pub(super) fn new(line: Arc<SignQueue>) -> Self {
        Self(Arc::new(QueueCloser(line)))
    }

    pub(super) fn line(&self) -> &SignQueue {
        &self.0.0
    }

    /// Queues a request and waits for the response, at most for the time limit of a job.
    pub(super) async fn ask(&self, request: BackendRequest, rank: JobPriority) -> Result<BackendResponse> {
        let line = &self.0.0;
        let (answer, answered) = oneshot::channel();
        let queued_at = Instant::now();
        let deadline = queued_at + line.limits().call_timeout;
        let outcome = match line.push(SigningJob {
            request,
            rank,
            queued_at,
            deadline,
            caller: QueueCaller::current(),
            answer,
        }) {
            Err(error) => Err(error),
            Ok(()) => match tokio::time::timeout_at(deadline.into(), answered).await {
                Ok(Ok(outcome)) => {
                    line.yield_to_worker();
                    outcome
                }
                Ok(Err(_)) => Err(stopped_error(line.name())),
                Err(_) => {
                    line.update_metrics();
                    Err(line.timeout_error())
                }
            },
        };
        outcome.inspect_err(|error| line.meter().count_failure(error.kind()))
    }

    pub(super) async fn key(&self, create: bool) -> Result<KeyIdentity> {
        match self.ask(BackendRequest::Find { create }, JobPriority::Lookup).await? {
            BackendResponse::Key(key) => Ok(key),
            _ => Err(unexpected_response()),
        }
    }
}

pub(super) fn unexpected_response() -> Error {
    Error::internal("the response of a backend does not match the request")
}
