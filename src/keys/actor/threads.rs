//! Workers of a blocking backend: threads, each with its own session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use super::backend::{BackendSession, KeyBackend};
use super::sign_queue::{BackendCall, WorkerSlot, WorkerStep};
use crate::error::Error;

/// Starts a worker thread. If that fails, `slot` is freed, and the next job tries to start a worker again.
pub(super) fn start_worker(slot: WorkerSlot) {
    let key = slot.key_name().to_owned();
    let thread_name = format!("sign-{}", key.replace('\0', ""));
    if let Err(error) = thread::Builder::new().name(thread_name).spawn(move || run_worker(slot)) {
        tracing::error!(key, %error, "a signing thread of a managed key did not start");
    }
}

fn run_worker(mut slot: WorkerSlot) {
    let queue = slot.mark_started();
    // Declared after `slot`, so it is dropped first: the session is closed before the slot is free.
    let mut session: Option<(u64, Box<dyn BackendSession>)> = None;
    let mut since = Instant::now();
    loop {
        match queue.next_worker_step(since) {
            WorkerStep::Call(BackendCall { number, job, backend, version }) => {
                let KeyBackend::Blocking(backend) = backend else { return };
                session.take_if(|(opened, _)| *opened != version);
                let (_, current) =
                    session.get_or_insert_with(|| (version, backend.new_session(queue.key_metrics().clone())));
                let started = Instant::now();
                let outcome = catch_unwind(AssertUnwindSafe(|| current.call(&job.request)));
                let took = started.elapsed();
                queue.end_call(number, took, job.request.is_signature() && took < queue.limits().call_timeout);
                if outcome.is_err() {
                    session = None;
                }
                let _ = job.answer.send(outcome.unwrap_or_else(|_| Err(panic_error(queue.name()))));
                since = Instant::now();
            }
            WorkerStep::Idle { version } => {
                session.take_if(|(opened, _)| *opened != version);
                session.iter_mut().for_each(|(_, current)| current.on_idle());
            }
            WorkerStep::Exit => return,
        }
    }
}

fn panic_error(key: &str) -> Error {
    Error::internal(format!("managed key {key:?}: the backend panicked"))
}
