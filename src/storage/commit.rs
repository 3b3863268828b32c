//! Group commit with a single writer and no timer: all units (see `WriteUnit`) that arrive during a commit share the
//! next commit.
//!
//! The number of units in progress is limited by a semaphore in `CommitHandle`. A unit holds a permit from its
//! submission to its result, so a full queue is reported as `Busy` immediately. An admitted unit is written even if its
//! caller no longer waits. The actor (`actor`) runs on its own thread, because an embedded backend blocks while the
//! disk works.

mod actor;
mod job;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use metrics::{Gauge, counter, gauge};
use tokio::sync::{Semaphore, TryAcquireError, oneshot};

use crate::error::{Error, Kind, Result};
use crate::storage::backend::{StoreBackend, UnitOutcomes, WriteUnit};
use crate::telemetry;
use job::{CommitJob, CommitPermit};
use status::CommitStatus;

/// Handle for submitting units to the commit actor. Clones share the limit of units in progress.
#[derive(Clone)]
pub(crate) struct CommitHandle {
    link: actor::CommitLink,
    permits: Arc<Semaphore>,
    admitted: Gauge,
    status: Arc<CommitStatus>,
}

/// A submitted unit. The caller may await its outcome or drop it.
pub(crate) struct SubmittedUnit(Result<oneshot::Receiver<Result<UnitOutcomes>>>);

impl CommitHandle {
    /// Starts a commit actor for `backend` that admits at most `queue` units at a time.
    ///
    /// # Errors
    /// `Unavailable` when no thread can be started.
    pub(crate) fn start(backend: impl StoreBackend, queue: usize) -> Result<Self> {
        let status = Arc::new(CommitStatus::default());
        let link = actor::start(backend, status.clone())?;
        Ok(Self { link, permits: Arc::new(Semaphore::new(queue)), admitted: gauge!(telemetry::COMMIT_QUEUE), status })
    }

    /// Submits a unit. Dropping the result does not cancel the unit.
    pub(crate) fn submit(&self, unit: WriteUnit) -> SubmittedUnit {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => CommitPermit::new(permit, &self.admitted),
            Err(TryAcquireError::NoPermits) => return SubmittedUnit(Err(queue_full_error())),
            Err(TryAcquireError::Closed) => return SubmittedUnit(Err(stopped_error())),
        };
        let (reply, outcome) = oneshot::channel();
        self.link.submit(CommitJob { unit, arrived: Instant::now(), reply, permit });
        SubmittedUnit(Ok(outcome))
    }

    /// Checks that the queue is not full, before expensive preparations of a unit.
    ///
    /// # Errors
    /// `Busy` when it is full.
    pub(crate) fn require_capacity(&self) -> Result<()> {
        if self.permits.available_permits() == 0 && !self.permits.is_closed() {
            Err(queue_full_error())
        } else {
            Ok(())
        }
    }

    /// Returns the number of commits so far.
    pub(crate) fn commits(&self) -> u64 {
        self.status.commits.load(Ordering::Relaxed)
    }

    /// Returns `true` if the store failed to store a write and [`Self::record_success`] was not called after that. A
    /// unit that succeeds does not reset this, because it may have had nothing to write.
    pub(crate) fn is_failing(&self) -> bool {
        self.status.failing.load(Ordering::Relaxed)
    }

    /// Records that the store has stored a write.
    pub(crate) fn record_success(&self) {
        self.status.failing.store(false, Ordering::Relaxed);
    }

    /// Rejects new units, commits the admitted ones, and closes the backend. Safe to repeat.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.permits.close();
        self.link.stop().await
    }
}

impl SubmittedUnit {
    /// Waits until the unit is durable or has failed.
    pub(crate) async fn outcome(self) -> Result<UnitOutcomes> {
        self.0?.await.unwrap_or_else(|_| Err(stopped_error()))
    }
}

fn queue_full_error() -> Error {
    counter!(telemetry::COMMIT_FAILURES, "reason" => "busy").increment(1);
    Error::new(Kind::Busy, "storage: the commit queue is full")
}

fn stopped_error() -> Error {
    Error::new(Kind::Unavailable, "storage: the store is closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::backend::FactWrite;
    use futures_util::future::{BoxFuture, join_all};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    /// A backend that waits at a gate before each batch and records batch sizes. A write of fact 13 makes it panic, and
    /// a write of fact 14 fails.
    struct GatedBackend {
        gate: Receiver<()>,
        sizes: Arc<Mutex<Vec<usize>>>,
        background_steps: usize,
    }

    impl StoreBackend for GatedBackend {
        fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<UnitOutcomes>>> {
            Box::pin(async move {
                let _ = self.gate.recv();
                self.sizes.lock().unwrap().push(units.len());
                let is = |unit: &WriteUnit, name| matches!(unit, WriteUnit::Facts(facts) if facts[0].name == name);
                assert!(!units.iter().any(|unit| is(unit, "13")), "thirteen");
                let full = || Err(Error::new(Kind::Unavailable, "storage: the write failed"));
                units.iter().map(|unit| if is(unit, "14") { full() } else { Ok(UnitOutcomes::Done) }).collect()
            })
        }

        fn has_background_work(&self) -> bool {
            self.background_steps > 0
        }

        fn run_background_step(&mut self) -> BoxFuture<'_, ()> {
            self.background_steps -= 1;
            Box::pin(async {})
        }

        fn close(self) -> BoxFuture<'static, Result<()>> {
            Box::pin(async { Ok(()) })
        }
    }

    type BatchSizes = Arc<Mutex<Vec<usize>>>;

    fn start_gated_backend(queue: usize) -> (CommitHandle, std::sync::mpsc::Sender<()>, BatchSizes) {
        let (open, gate) = channel();
        let sizes = BatchSizes::default();
        let handle =
            CommitHandle::start(GatedBackend { gate, sizes: sizes.clone(), background_steps: 3 }, queue).unwrap();
        (handle, open, sizes)
    }

    fn fact_unit(n: i64) -> WriteUnit {
        WriteUnit::Facts(vec![FactWrite::new((n.to_string(), Vec::new()))])
    }

    #[tokio::test]
    async fn units_queued_during_a_commit_form_the_next_up_to_512() {
        let (handle, open, sizes) = start_gated_backend(2000);
        let first = handle.submit(fact_unit(1));
        while handle.commits() == 0 {
            tokio::task::yield_now().await;
        }
        let rest: Vec<_> = (0..1000).map(|i| handle.submit(fact_unit(i + 100))).collect();
        drop(open);
        assert!(first.outcome().await.is_ok());
        assert!(join_all(rest.into_iter().map(SubmittedUnit::outcome)).await.iter().all(Result::is_ok));
        assert_eq!(*sizes.lock().unwrap(), [1, 512, 488]);
    }

    #[tokio::test]
    async fn full_commit_queue_is_busy_until_its_units_finish() {
        let (handle, open, _) = start_gated_backend(2);
        let admitted = [handle.submit(fact_unit(1)), handle.submit(fact_unit(2))];
        assert_eq!(handle.submit(fact_unit(3)).outcome().await.unwrap_err().kind(), Kind::Busy);
        assert_eq!(handle.require_capacity().unwrap_err().kind(), Kind::Busy);
        drop(open);
        for one in admitted {
            assert!(one.outcome().await.is_ok());
        }
        assert!(handle.require_capacity().is_ok());
        assert!(handle.submit(fact_unit(4)).outcome().await.is_ok());
    }

    #[tokio::test]
    async fn panic_is_an_internal_error_and_the_actor_survives() {
        let (handle, open, _) = start_gated_backend(8);
        drop(open);
        assert_eq!(handle.submit(fact_unit(13)).outcome().await.unwrap_err().kind(), Kind::Internal);
        assert!(handle.submit(fact_unit(1)).outcome().await.is_ok());
    }

    #[tokio::test]
    async fn failed_write_is_remembered_until_a_recorded_success() {
        let (handle, open, _) = start_gated_backend(8);
        drop(open);
        assert_eq!(handle.submit(fact_unit(13)).outcome().await.unwrap_err().kind(), Kind::Internal);
        assert!(!handle.is_failing(), "a defect says nothing of the store");
        assert_eq!(handle.submit(fact_unit(14)).outcome().await.unwrap_err().kind(), Kind::Unavailable);
        assert!(handle.is_failing());
        assert!(handle.submit(fact_unit(1)).outcome().await.is_ok());
        assert!(handle.is_failing(), "it may have had nothing to write");
        handle.record_success();
        assert!(!handle.is_failing());
    }

    #[tokio::test]
    async fn stop_writes_admitted_units_even_of_cancelled_callers() {
        let (handle, open, sizes) = start_gated_backend(8);
        drop(handle.submit(fact_unit(1)));
        drop(open);
        handle.stop().await.unwrap();
        assert_eq!(sizes.lock().unwrap().iter().sum::<usize>(), 1);
        assert_eq!(handle.submit(fact_unit(2)).outcome().await.unwrap_err().kind(), Kind::Unavailable);
        handle.stop().await.unwrap();
    }
}
