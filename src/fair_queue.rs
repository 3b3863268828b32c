//! Fair queues: at most `max_running` jobs run concurrently, and at most `max_running_per_caller` of one caller.
//!
//! [`FairQueue`] is the queue itself, [`FairSemaphore`] a semaphore that grants permits in its order, and [`cpu`] runs
//! CPU work on threads of its own. The [current caller](QueueCaller::current) belongs to the running task: the HTTP
//! pipeline sets it for each request, so that the functions below it need no argument for it.

pub mod cpu;

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{Error, Kind, Result};
use crate::telemetry::TraceContext;

/// Jobs of one caller that may wait in a bounded queue.
pub const MAX_WAITING_PER_CALLER: usize = 64;

/// Numeric id of a caller. It is a hash, so two callers may share an id in rare cases.
pub type CallerId = u64;

/// Returns the id of a caller, from any hashable identification of the caller.
pub fn caller_id(caller: &(impl Hash + ?Sized)) -> CallerId {
    let mut hasher = DefaultHasher::new();
    caller.hash(&mut hasher);
    hasher.finish()
}

/// Class of a caller. It decides the order of service, and whether the queue of the caller is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerClass {
    /// The server itself. Requests wait for its work, so its queue has no bound.
    Server,
    /// A caller with a valid token, or a client that connects.
    WithToken,
    /// A caller without a valid token: served only when no caller of another class waits.
    WithoutToken,
}

/// The caller on whose behalf a job is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCaller {
    class: CallerClass,
    caller_id: CallerId,
    /// `true` if its jobs must not be refused: its response or handshake has begun, or its change is stored already.
    must_run: bool,
    /// The trace of the request, which outbound calls continue.
    trace: Option<TraceContext>,
}

tokio::task_local! {
    /// The caller of the request that the task handles.
    static REQUEST_CALLER: Rc<Cell<QueueCaller>>;
    /// The caller of a part of a request, or of a task that a request has spawned.
    static TASK_CALLER: QueueCaller;
}

impl QueueCaller {
    /// The server, for work that belongs to no request.
    pub const SERVER: Self = Self { class: CallerClass::Server, caller_id: 0, must_run: false, trace: None };

    /// A caller with a valid token.
    pub fn with_token(caller: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::WithToken, caller_id: caller_id(caller), must_run: false, trace: None }
    }

    /// A caller without a valid token.
    pub fn without_token(caller: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::WithoutToken, caller_id: caller_id(caller), must_run: false, trace: None }
    }

    /// A client that is connecting and cannot have sent a token yet. The limits on connections bound its queue.
    pub fn connecting(network: &(impl Hash + ?Sized)) -> Self {
        Self::with_token(network).must_run()
    }

    /// A part of the server with a queue of its own, such as the changes of one mount.
    pub fn server(part: &(impl Hash + ?Sized)) -> Self {
        Self { class: CallerClass::Server, caller_id: caller_id(part), must_run: false, trace: None }
    }

    /// The caller of the request that the current task handles; [`QueueCaller::SERVER`] outside of requests.
    pub fn current() -> Self {
        let request_caller = || REQUEST_CALLER.try_with(|caller| caller.get());
        TASK_CALLER.try_with(|caller| *caller).or_else(|_| request_caller()).unwrap_or(Self::SERVER)
    }

    /// Runs a future on behalf of this caller. A task that a request begins needs this: it does not inherit the caller.
    pub async fn scope<W: Future>(self, work: W) -> W::Output {
        TASK_CALLER.scope(self, work).await
    }

    /// The same caller; from now on its jobs are not refused.
    pub fn must_run(self) -> Self {
        Self { must_run: true, ..self }
    }

    /// `true` if the caller's queue is limited. The server's own work and jobs that must run have no limit.
    fn is_bounded(self) -> bool {
        self.class != CallerClass::Server && !self.must_run
    }

    /// Returns the trace of the request.
    pub fn trace(self) -> Option<TraceContext> {
        self.trace
    }

    /// Returns the id of the caller.
    pub fn caller_id(self) -> CallerId {
        self.caller_id
    }
}

/// The caller of one request, which becomes known while the request is handled.
#[derive(Clone)]
pub struct CurrentCaller(Rc<Cell<QueueCaller>>);

impl Default for CurrentCaller {
    fn default() -> Self {
        Self(Rc::new(Cell::new(QueueCaller::SERVER)))
    }
}

impl CurrentCaller {
    /// Sets the caller of the request. The trace stays.
    pub fn set(&self, caller: QueueCaller) {
        self.0.set(QueueCaller { trace: self.0.get().trace, ..caller });
    }

    /// Sets the trace of the request.
    pub fn set_trace(&self, trace: TraceContext) {
        self.0.set(QueueCaller { trace: Some(trace), ..self.0.get() });
    }

    /// Polls a part of the request on behalf of its caller.
    pub fn scope<T>(&self, poll: impl FnOnce() -> T) -> T {
        REQUEST_CALLER.sync_scope(Rc::clone(&self.0), poll)
    }

    /// Polls the response body on behalf of the caller. Its jobs must run: the response has begun.
    pub fn scope_of_body<T>(&self, poll: impl FnOnce() -> T) -> T {
        TASK_CALLER.sync_scope(self.0.get().must_run(), poll)
    }
}

/// A fair queue of jobs.
pub struct FairQueue<T> {
    /// Callers with waiting jobs, in round-robin order, and their jobs.
    waiting_by_caller: VecDeque<(CallerId, VecDeque<T>)>,
    waiting: usize,
    /// Callers of the running jobs, one entry per job.
    running: Vec<CallerId>,
    /// Maximum number of running jobs, in total and per caller.
    max_running: usize,
    max_running_per_caller: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue that runs at most `max_running` jobs concurrently, and `max_running_per_caller` per caller.
    pub fn new(max_running: usize, max_running_per_caller: usize) -> Self {
        Self {
            waiting_by_caller: VecDeque::new(),
            waiting: 0,
            running: Vec::new(),
            max_running,
            max_running_per_caller,
        }
    }

    /// Changes the limits on running jobs.
    pub fn set_limits(&mut self, max_running: usize, max_running_per_caller: usize) {
        (self.max_running, self.max_running_per_caller) = (max_running, max_running_per_caller);
    }

    /// Number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Appends a job to the queue of its caller.
    pub fn push(&mut self, caller_id: CallerId, job: T) {
        self.waiting += 1;
        match self.waiting_by_caller.iter_mut().find(|(other, _)| *other == caller_id) {
            Some((_, waiting)) => waiting.push_back(job),
            None => self.waiting_by_caller.push_back((caller_id, VecDeque::from([job]))),
        }
    }

    /// Number of waiting jobs of a caller.
    pub fn waiting_of(&self, caller_id: CallerId) -> usize {
        self.waiting_by_caller.iter().find(|(other, _)| *other == caller_id).map_or(0, |(_, waiting)| waiting.len())
    }

    /// Removes and returns the waiting jobs for which `keep` is false.
    pub fn remove_unless(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let mut dropped = Vec::new();
        for (_, waiting) in &mut self.waiting_by_caller {
            let jobs = std::mem::take(waiting);
            let (kept, gone): (VecDeque<T>, VecDeque<T>) = jobs.into_iter().partition(&keep);
            *waiting = kept;
            dropped.extend(gone);
        }
        self.waiting_by_caller.retain(|(_, waiting)| !waiting.is_empty());
        self.waiting -= dropped.len();
        dropped
    }

    /// Appends a job to the queue of its caller. At most `max_per_caller` jobs of a caller wait, and `max` of all
    /// callers. In a full queue, jobs of disconnected callers (`is_abandoned`) are removed first. If the queue is still
    /// full, the newest job of the caller with the most waiting jobs is refused, provided that caller has at least two
    /// jobs more than this one. Otherwise, the job itself is refused.
    pub fn push_bounded(
        &mut self,
        caller_id: CallerId,
        job: T,
        max: usize,
        max_per_caller: usize,
        is_abandoned: impl Fn(&T) -> bool,
    ) -> DisplacedJobs<T> {
        let is_full = |queue: &Self| queue.waiting_of(caller_id) >= max_per_caller || queue.waiting() >= max;
        let mut displaced = DisplacedJobs { abandoned: Vec::new(), refused: None };
        if is_full(self) {
            displaced.abandoned = self.remove_unless(|job| !is_abandoned(job));
        }
        if is_full(self) && self.waiting_of(caller_id) < max_per_caller {
            displaced.refused = self.remove_excess_job(caller_id);
        }
        if is_full(self) {
            displaced.refused = Some(job);
        } else {
            self.push(caller_id, job);
        }
        displaced
    }

    /// `true` if [`FairQueue::push_bounded`] would accept a job, apart from the limit per caller.
    pub fn has_room(&self, caller_id: CallerId, max: usize, is_abandoned: impl Fn(&T) -> bool) -> bool {
        self.waiting < max
            || self.has_excess_job(caller_id)
            || self.waiting_by_caller.iter().any(|(_, waiting)| waiting.iter().any(&is_abandoned))
    }

    /// Number of waiting jobs that would start before a job that this caller appends now.
    pub fn waiting_before(&self, caller_id: CallerId) -> usize {
        let rounds = self.waiting_of(caller_id) + 1;
        self.waiting_by_caller.iter().map(|(_, waiting)| waiting.len().min(rounds)).sum()
    }

    /// `true` if another caller has at least two more waiting jobs than `caller_id`.
    fn has_excess_job(&self, caller_id: CallerId) -> bool {
        let own = self.waiting_of(caller_id);
        self.waiting_by_caller.iter().any(|(_, waiting)| waiting.len() > own + 1)
    }

    /// Removes the newest job of the caller with the most waiting jobs, if that caller has at least two more than
    /// `caller_id`.
    fn remove_excess_job(&mut self, caller_id: CallerId) -> Option<T> {
        if !self.has_excess_job(caller_id) {
            return None;
        }
        let (_, waiting) = self.waiting_by_caller.iter_mut().max_by_key(|(_, waiting)| waiting.len())?;
        self.waiting -= 1;
        waiting.pop_back()
    }

    /// Takes the next job without counting it as running, for users that need only the order and not the limits.
    pub fn pop_next(&mut self) -> Option<T> {
        let (caller_id, job) = self.start_next()?;
        self.end_job(caller_id);
        Some(job)
    }

    /// `true` if a job may start.
    pub fn has_startable_job(&self) -> bool {
        self.next_caller_index().is_some()
    }

    /// Returns the index of the caller whose job starts next: the first of those with the fewest running jobs.
    fn next_caller_index(&self) -> Option<usize> {
        if self.running.len() >= self.max_running {
            return None;
        }
        let running =
            |(caller_id, _): &(CallerId, _)| self.running.iter().filter(|running| *running == caller_id).count();
        let (at, fewest) =
            self.waiting_by_caller.iter().map(running).enumerate().min_by_key(|(_, running)| *running)?;
        (fewest < self.max_running_per_caller).then_some(at)
    }

    /// Starts the next job. Its caller moves to the end of the round-robin order.
    pub fn start_next(&mut self) -> Option<(CallerId, T)> {
        let (caller_id, mut waiting) = self.waiting_by_caller.remove(self.next_caller_index()?)?;
        let job = waiting.pop_front()?;
        if !waiting.is_empty() {
            self.waiting_by_caller.push_back((caller_id, waiting));
        }
        self.waiting -= 1;
        self.running.push(caller_id);
        Some((caller_id, job))
    }

    /// Ends a running job of a caller, so that another job can start.
    pub fn end_job(&mut self, caller_id: CallerId) {
        if let Some(at) = self.running.iter().position(|running| *running == caller_id) {
            self.running.swap_remove(at);
        }
    }

    /// Removes and returns all waiting jobs, by caller.
    pub fn clear(&mut self) -> Vec<VecDeque<T>> {
        self.waiting = 0;
        self.waiting_by_caller.drain(..).map(|(_, waiting)| waiting).collect()
    }
}

/// Jobs that [`FairQueue::push_bounded`] removed from a full queue or did not accept.
pub struct DisplacedJobs<T> {
    /// Jobs of disconnected callers. Drop them outside of locks: a job may own large data.
    pub abandoned: Vec<T>,
    /// A job to be refused: the newest one of the longest queue, or the new job itself.
    pub refused: Option<T>,
}

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
        // Never refused without a limit.
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

    /// Grants the free permits. The permit of a disconnected caller goes to the next one.
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

    #[test]
    fn fair_queue_alternates_callers_and_caps_jobs_per_caller() {
        let mut queue = FairQueue::new(4, 3);
        (0..10).for_each(|n| queue.push(1, n));
        let first: Vec<_> = std::iter::from_fn(|| queue.start_next()).collect();
        assert_eq!(first, [(1, 0), (1, 1), (1, 2)], "one slot is left to others");
        assert!(!queue.has_startable_job());
        (100..103).for_each(|n| queue.push(2, n));
        assert_eq!(queue.start_next(), Some((2, 100)));
        assert_eq!((queue.start_next(), queue.waiting()), (None, 9), "all slots are taken");
        queue.end_job(1);
        assert_eq!(queue.start_next(), Some((2, 101)), "the caller with fewer running jobs comes first");
        queue.end_job(1);
        // Each caller has one running job, so the caller that was served last comes second.
        queue.end_job(2);
        assert_eq!((queue.start_next(), queue.start_next()), (Some((1, 3)), Some((2, 102))));
        assert_eq!(queue.clear().iter().map(VecDeque::len).sum::<usize>(), 6);
        assert_eq!(queue.waiting(), 0);
    }

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

    #[test]
    fn fair_queue_drops_the_excess_job_of_the_longest_queue() {
        let mut queue = FairQueue::new(1, 1);
        (0..3).for_each(|n| queue.push(1, n));
        queue.push(2, 9);
        assert_eq!(
            (queue.remove_excess_job(1), queue.remove_excess_job(2), queue.remove_excess_job(2)),
            (None, Some(2), None)
        );
        assert_eq!((queue.remove_unless(|n| *n > 0), queue.waiting(), queue.waiting_of(1)), (vec![0], 2, 1));
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
