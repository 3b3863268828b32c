//! Workers of an async backend: tasks on the runtime of the job that started them. A task takes jobs
//! until the queue is empty.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::backend::KeyBackend;
use super::sign_queue::{SignQueue, WorkerSlot};
use crate::error::Error;

/// Starts a worker task. Without a runtime, `slot` is freed, and the next job tries to start a worker again.
pub(super) fn start_worker(slot: WorkerSlot) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(run_worker(slot))),
        Err(error) => tracing::error!(key = slot.key_name(), %error, "a signing task of a managed key did not start"),
    }
}

async fn run_worker(mut slot: WorkerSlot) {
    let queue = slot.mark_started();
    while let Some(call) = queue.next_task_call() {
        let KeyBackend::Async(backend) = call.backend else { return };
        let is_signature = call.job.request.is_signature();
        let mut running =
            RunningTaskCall { queue: &queue, number: call.number, started: Instant::now(), updates_estimate: false };
        let work = call.job.caller.must_run().scope(backend.call(call.job.request));
        let future = AssertUnwindSafe(work).catch_unwind();
        let outcome = tokio::time::timeout_at(call.job.deadline.into(), future).await;
        running.updates_estimate = is_signature && outcome.is_ok();
        drop(running);
        let _ = call.job.answer.send(match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::internal(format!("managed key {:?}: the backend panicked", queue.name()))),
            Err(_) => Err(queue.timeout_error()),
        });
    }
}

/// A running call. Dropping this value records the end of the call, also when the runtime drops the whole task.
struct RunningTaskCall<'q> {
    queue: &'q SignQueue,
    number: u64,
    started: Instant,
    updates_estimate: bool,
}

impl Drop for RunningTaskCall<'_> {
    fn drop(&mut self) {
        self.queue.end_call(self.number, self.started.elapsed(), self.updates_estimate);
    }
}
