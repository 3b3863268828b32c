//! Submission of a job to the queue and its response.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::backend::{Answer, Request};
use super::line::{Line, stopped};
use super::waiting::{Job, Rank};
use crate::error::{Error, Result};
use crate::keys::signer::Known;
use crate::turns::Caller;

/// A handle to the queue; clones share it.
#[derive(Clone)]
pub(super) struct Link(Arc<Handle>);

/// Closes the queue when the last handle is dropped. The workers refer to the queue, not to this.
struct Handle(Arc<Line>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Link {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self(Arc::new(Handle(line)))
    }

    pub(super) fn line(&self) -> &Line {
        &self.0.0
    }

    /// Queues a request and waits for the response, at most for the time limit of a job.
    pub(super) async fn ask(&self, request: Request, rank: Rank) -> Result<Answer> {
        let line = &self.0.0;
        let (answer, answered) = oneshot::channel();
        let queued_at = Instant::now();
        let deadline = queued_at + line.limits().call_timeout;
        let outcome = match line.push(Job { request, rank, queued_at, deadline, caller: Caller::current(), answer }) {
            Err(error) => Err(error),
            Ok(()) => match tokio::time::timeout_at(deadline.into(), answered).await {
                Ok(Ok(outcome)) => {
                    line.let_begin();
                    outcome
                }
                Ok(Err(_)) => Err(stopped(line.name())),
                Err(_) => {
                    line.count_stuck();
                    Err(line.too_slow())
                }
            },
        };
        outcome.inspect_err(|error| line.meter().failed(error.kind()))
    }

    pub(super) async fn key(&self, create: bool) -> Result<Known> {
        match self.ask(Request::Find { create }, Rank::Look).await? {
            Answer::Key(key) => Ok(key),
            _ => Err(unexpected()),
        }
    }
}

pub(super) fn unexpected() -> Error {
    Error::internal("a backend answered another question")
}
