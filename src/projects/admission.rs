//! Admission of requests to the store: limits of concurrent requests, and the task that runs their work.
//!
//! A caller that already has a request at the store gets at most a quarter of the permits that are left
//! ([`crate::rationing::Budget`]), so a busy caller is rejected before other callers are.
//!
//! Work runs on the HTTP worker that received the request. The embedded store runs it on other threads because its
//! connections block. A read ends with its request: when the client disconnects, the read leaves the queue or its
//! session ends. A write runs in a task of its own to completion, so that a disconnected client does not roll it back.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use super::store::{CallerId, ProjectStore, SessionAccess};
use crate::error::{Error, Kind, Result};
use crate::rationing::{Budget, Exhausted, QueueCaller, Reservation};
use crate::telemetry;

/// Maximum number of concurrent requests at the store, including waiting ones.
const MAX_CONCURRENT_REQUESTS: usize = 512;

/// Access to the store for a limited number of requests. Clones share the limit.
#[derive(Clone)]
pub struct StoreAdmission {
    store: Arc<dyn ProjectStore>,
    permits: Budget<CallerId>,
}

/// The permit of one request, one of [`MAX_CONCURRENT_REQUESTS`]. It is returned on drop.
struct StorePermit {
    _reservation: Reservation<CallerId>,
    queue: metrics::Gauge,
}

impl Drop for StorePermit {
    fn drop(&mut self) {
        self.queue.decrement(1);
    }
}

impl StoreAdmission {
    /// Creates the admission of a store.
    pub fn new(store: Arc<dyn ProjectStore>) -> Self {
        Self { store, permits: Budget::new(MAX_CONCURRENT_REQUESTS) }
    }

    /// Runs `job` and returns its result. A write runs as a local task of this thread, so the runtime must support
    /// local tasks, as HTTP workers do.
    ///
    /// # Errors
    /// `Quota` when the caller has too many requests at the store, `Busy` when there are too many in total,
    /// both without waiting; `Internal` when the job of a write panics.
    pub async fn run<T: 'static>(
        &self,
        access: SessionAccess,
        job: impl FnOnce(&dyn ProjectStore) -> LocalBoxFuture<'static, T>,
    ) -> Result<T> {
        let permit = self.acquire(access.caller_id())?;
        let job = job(&*self.store);
        let caller = QueueCaller::current();
        let work = async move {
            let _permit = permit;
            caller.scope(job).await
        };
        if matches!(access, SessionAccess::Read(_)) {
            return Ok(work.await);
        }
        tokio::task::spawn_local(work).await.map_err(|ended| {
            if !ended.is_panic() {
                return Error::internal("projects: the task of a write was cancelled");
            }
            metrics::counter!(telemetry::HANDLER_PANICS).increment(1);
            Error::internal("projects: the task of a write panicked")
        })
    }

    fn acquire(&self, caller_id: CallerId) -> Result<StorePermit> {
        let mut reservation = Reservation::default();
        reservation.grow_to(&self.permits, || caller_id, 1).map_err(|exhausted| match exhausted {
            Exhausted::Total => Error::new(Kind::Busy, "too many requests at the project store, try again"),
            Exhausted::PerCaller => {
                Error::new(Kind::Quota, "too many requests of one caller at the project store, try again")
            }
        })?;
        let queue = metrics::gauge!(telemetry::PROJECTS_QUEUE);
        queue.increment(1);
        Ok(StorePermit { _reservation: reservation, queue })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::sync::Notify;
    use tokio::task::LocalSet;

    use super::*;
    use crate::sql::{SqlError, SqlWork};

    /// A store that the tests never call.
    struct UnusedStore;

    impl ProjectStore for UnusedStore {
        fn run(&self, _: &'static str, _: SessionAccess, _: SqlWork) -> LocalBoxFuture<'static, Result<(), SqlError>> {
            unreachable!("no job of these tests asks the store")
        }
    }

    fn on_this_thread<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, work)
    }

    #[test]
    fn admitted_work_runs_on_the_calling_thread() {
        let admission = StoreAdmission::new(Arc::new(UnusedStore));
        let worker = || {
            let admission = admission.clone();
            move || {
                let ran_on =
                    admission.run(SessionAccess::Write(1), |_| async { std::thread::current().id() }.boxed_local());
                (on_this_thread(ran_on).unwrap(), std::thread::current().id())
            }
        };
        let workers = [std::thread::spawn(worker()), std::thread::spawn(worker())].map(|worker| worker.join().unwrap());
        assert!(workers.iter().all(|(ran_on, asked_on)| ran_on == asked_on), "{workers:?}");
    }

    #[test]
    fn admitted_write_finishes_after_its_caller_has_left() {
        on_this_thread(async {
            let admission = StoreAdmission::new(Arc::new(UnusedStore));
            let may_finish = Rc::new(Notify::new());
            let ended = Rc::new(Cell::new(false));
            let job = {
                let may_finish = Rc::clone(&may_finish);
                let ended = Rc::clone(&ended);
                async move {
                    may_finish.notified().await;
                    ended.set(true);
                }
            };
            let run = admission.run(SessionAccess::Write(1), |_| job.boxed_local());
            assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
            assert_eq!((ended.get(), admission.permits.left()), (false, MAX_CONCURRENT_REQUESTS as isize - 1));
            may_finish.notify_one();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!((ended.get(), admission.permits.left()), (true, MAX_CONCURRENT_REQUESTS as isize));
        });
    }

    #[test]
    fn admitted_read_ends_with_its_request() {
        on_this_thread(async {
            let admission = StoreAdmission::new(Arc::new(UnusedStore));
            let run = admission.run(SessionAccess::Read(1), |_| std::future::pending::<()>().boxed_local());
            assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
            assert_eq!(admission.permits.left(), MAX_CONCURRENT_REQUESTS as isize);
        });
    }

    #[test]
    fn full_admission_refuses_and_a_panic_fails_one_request() {
        on_this_thread(async {
            let admission = StoreAdmission::new(Arc::new(UnusedStore));
            let panicked = admission.run(SessionAccess::Write(1), |_| async { panic!("a defect") }.boxed_local()).await;
            assert_eq!(panicked.map(|()| "done").unwrap_err().kind(), Kind::Internal);
            let many: Vec<StorePermit> = std::iter::from_fn(|| admission.acquire(1).ok()).collect();
            let run = |caller_id| admission.run(SessionAccess::Write(caller_id), |_| async { "done" }.boxed_local());
            assert_eq!((many.len(), run(1).await.unwrap_err().kind()), (102, Kind::Quota));
            assert_eq!(run(2).await.unwrap(), "done", "another caller gets a permit");
            let full: Vec<StorePermit> = (2..).map_while(|caller_id| admission.acquire(caller_id).ok()).collect();
            assert_eq!(run(1).await.unwrap_err().kind(), Kind::Busy);
            drop((many, full));
            assert_eq!(
                admission.run(SessionAccess::Write(1), |_| async { "done" }.boxed_local()).await.unwrap(),
                "done"
            );
        });
    }
}
