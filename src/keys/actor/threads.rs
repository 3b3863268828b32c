//! Workers of a blocking backend: threads, each with its own session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use super::backend::{BackendResponse, BackendSession, KeyBackend};
use super::sign_queue::{BackendCall, WorkerSlot, WorkerStep};
use crate::error::{Error, Result};

/// Starts a worker thread. If that fails its slot is freed, and the next job tries again.
pub(super) fn start(slot: WorkerSlot) {
    let name = format!("sign-{}", slot.name().replace('\0', ""));
    if let Err(error) = thread::Builder::new().name(name).spawn(move || work(slot)) {
        tracing::error!(%error, "a signing thread did not start");
    }
}

fn work(mut slot: WorkerSlot) {
    let line = slot.begin();
    // Declared after `slot` and so dropped before it: the session is closed before the slot is free.
    let mut lane: Option<(u64, Box<dyn BackendSession>)> = None;
    let mut since = Instant::now();
    loop {
        match line.next(lane.as_ref().map(|(version, _)| *version), since) {
            WorkerStep::Call(BackendCall { number, job, backend, version }) => {
                let KeyBackend::Blocking(backend) = backend else { return };
                let (_, own) = lane.get_or_insert_with(|| (version, backend.lane(line.meter().clone())));
                let started = Instant::now();
                let outcome = catch_unwind(AssertUnwindSafe(|| own.call(&job.request)));
                let took = started.elapsed();
                line.done(number, took, job.request.is_signature() && took < line.limits().call_timeout);
                if outcome.is_err() {
                    lane = None;
                }
                let _ = job.answer.send(outcome.unwrap_or_else(|_| panic_error()));
                since = Instant::now();
            }
            WorkerStep::Renew => lane = None,
            WorkerStep::Rest => lane.iter_mut().for_each(|(_, lane)| lane.rest()),
            WorkerStep::Leave => return,
        }
    }
}

fn panic_error() -> Result<BackendResponse> {
    Err(Error::internal("a signing backend panicked"))
}
