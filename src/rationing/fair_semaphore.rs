//! Fair semaphores: permits are granted in the order of a fair queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::caller::{CallerId, QueueCaller};
use super::fair_queue::{FairQueue, MAX_WAITING_PER_CALLER};
use crate::error::{Error, Kind, Result};

/// A fair semaphore: permits are granted in the order of [`FairQueue`]. Clones share it.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Mutex<FairQueue<oneshot::Sender<Permit>>>>);

/// A permit. Dropping it wakes the next waiting caller.
pub struct Permit {
    caller_id: CallerId,
    /// `None` if the permit reached no caller: dropping it then has no effect.
    semaphore: Option<FairSemaphore>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.semaphore.take() {
            semaphore.lock_queue().end_job(self.caller_id);
            semaphore.grant_permits();
        }
    }
}

impl FairSemaphore {
    /// A semaphore with `max_running` permits. One caller gets at most three quarters of them.
    pub fn new(max_running: usize) -> Self {
        Self::with_caller_limit(max_running, (max_running - max_running / 4).max(1))
    }

    /// A semaphore with `max_running` permits, of which one caller gets at most `max_running_per_caller`.
    pub fn with_caller_limit(max_running: usize, max_running_per_caller: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(max_running, max_running_per_caller))))
    }

    /// A semaphore with half as many permits as there are cores.
    pub fn for_half_the_cores() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)))
    }

    /// Waits for a permit for the current caller. The queue is bounded by [`MAX_WAITING_PER_CALLER`].
    ///
    /// # Errors
    /// `Busy` when too many requests of the caller wait.
    pub async fn acquire_bounded(&self, busy_text: &'static str) -> Result<Permit> {
        let caller = QueueCaller::current();
        let max_waiting = if caller.is_bounded() { MAX_WAITING_PER_CALLER } else { usize::MAX };
        let permit = self.wait(caller.caller_id, max_waiting).await;
        permit.ok_or_else(|| Error::new(Kind::Busy, busy_text))
    }

    /// Waits for a permit.
    pub async fn acquire(&self, caller_id: CallerId) -> Permit {
        // Without a limit, the queue never refuses the request.
        self.wait(caller_id, usize::MAX).await.unwrap_or(Permit { caller_id, semaphore: None })
    }

    /// Waits for a permit; `None` if `max_waiting` requests of the caller wait already.
    async fn wait(&self, caller_id: CallerId, max_waiting: usize) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        let is_abandoned = oneshot::Sender::is_closed;
        // A refused sender is dropped here, so that its receiver fails.
        drop(self.lock_queue().push_bounded(caller_id, sender, usize::MAX, max_waiting, is_abandoned));
        self.grant_permits();
        receiver.await.ok()
    }

    /// Grants the free permits. If a caller has disconnected, its permit goes to the next caller.
    fn grant_permits(&self) {
        while let Some((caller_id, sender)) = self.start_next() {
            if let Err(mut untaken) = sender.send(Permit { caller_id, semaphore: Some(self.clone()) }) {
                untaken.semaphore = None;
                self.lock_queue().end_job(caller_id);
            }
        }
    }

    fn start_next(&self) -> Option<(CallerId, oneshot::Sender<Permit>)> {
        self.lock_queue().start_next()
    }

    fn lock_queue(&self) -> MutexGuard<'_, FairQueue<oneshot::Sender<Permit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn fair_semaphore_serves_a_new_caller_before_a_busy_one() {
        let semaphore = FairSemaphore::new(8);
        let enter = |caller_id| semaphore.acquire(caller_id).now_or_never();
        let mut many: Vec<Permit> = (0..6).map(|_| enter(1).unwrap()).collect();
        let mut waits = Box::pin(semaphore.acquire(1));
        assert!(poll!(&mut waits).is_pending(), "one caller has six slots of eight");
        let others = [enter(2).unwrap(), enter(3).unwrap()];
        let mut fourth = Box::pin(semaphore.acquire(4));
        assert!(poll!(&mut fourth).is_pending());
        many.pop();
        assert!(
            poll!(&mut waits).is_pending() && poll!(&mut fourth).is_ready(),
            "the new caller comes before the earlier job of the busy caller"
        );
        drop((others, many));
        assert!(poll!(&mut waits).is_ready());
    }

    #[tokio::test]
    async fn bounded_acquire_refuses_only_the_caller_with_a_full_queue() {
        let semaphore = FairSemaphore::new(1);
        let enter = |caller: QueueCaller| Box::pin(caller.scope(semaphore.acquire_bounded("too many")));
        let [one, other] = [QueueCaller::with_token("one"), QueueCaller::with_token("other")];
        let permit = enter(one).await.unwrap();
        let mut waiting: Vec<_> = (0..MAX_WAITING_PER_CALLER).map(|_| enter(one)).collect();
        for wait in &mut waiting {
            assert!(poll!(wait).is_pending());
        }
        assert_eq!(enter(one).await.err().map(|error| error.kind()), Some(Kind::Busy));
        let mut others = enter(other);
        assert!(poll!(&mut others).is_pending());
        waiting.pop();
        let mut again = enter(one);
        assert!(poll!(&mut again).is_pending(), "a request that has left holds no slot");
        drop(permit);
        assert!(poll!(&mut waiting[0]).is_ready(), "the first caller keeps its turn");
        assert!(poll!(&mut others).is_ready(), "one turn of the first caller is all that the other waits for");
    }

    #[tokio::test]
    async fn fair_semaphore_cancelled_waiter_takes_no_permit() {
        let semaphore = FairSemaphore::new(1);
        let permit = semaphore.acquire(1).await;
        let left: Vec<_> = (0..100).map(|caller_id| semaphore.acquire(caller_id)).collect();
        for mut waiting in left.into_iter().map(Box::pin) {
            assert!(poll!(&mut waiting).is_pending());
        }
        drop(permit);
        assert!(semaphore.acquire(8).now_or_never().is_some());
        assert!(semaphore.lock_queue().waiting() == 0 && !semaphore.lock_queue().has_startable_job());
    }
}
