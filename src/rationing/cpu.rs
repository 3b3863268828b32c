//! The CPU queue of the process: the only place for CPU work that is too long for an HTTP worker (more than 0.5 ms).
//!
//! It has one thread per core, at a lower priority than the HTTP workers and the commit thread. Callers are served
//! round-robin, and no caller gets all threads. Callers without a token are served only while no other caller waits. A
//! job that finds the queue of its caller full is refused immediately. The job of a disconnected caller is dropped.
//!
//! A job occupies a thread until it ends, so it must not wait for the network, the store or a signer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use super::caller::{CallerClass, QueueCaller};
use super::fair_queue::{FairQueue, MAX_WAITING_PER_CALLER};
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Jobs of one class that may wait, for all callers together.
const MAX_WAITING_PER_CLASS: usize = 1024;
/// Nice value of the threads. While an HTTP worker competes with such a thread for a core, the thread gets about a
/// tenth of it.
const NICE: i32 = 10;

static CPU_QUEUE: LazyLock<CpuQueue> = LazyLock::new(|| {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let queue = CpuQueue::with_threads(threads);
    queue.start(threads);
    queue
});

/// Runs a job for the [current caller](QueueCaller::current).
///
/// # Errors
/// `Busy` when too many jobs of the caller wait; `Internal` when the job panics.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    run_as(QueueCaller::current(), work).await
}

/// Runs long work as [`run`] does, and short work immediately on the current thread.
///
/// # Errors
/// As [`run`].
pub async fn run_if<T: Send + 'static>(is_long: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if is_long { run(work).await } else { Ok(work()) }
}

/// As [`run`], for another caller.
///
/// # Errors
/// As [`run`].
pub async fn run_as<T: Send + 'static>(caller: QueueCaller, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    CPU_QUEUE.run(caller, work).await
}

/// Lowers the priority of the calling thread: on Linux the nice value belongs to the thread.
#[cfg(target_os = "linux")]
pub fn lower_priority(nice: i32) {
    // If the process already runs at a lower priority, as a backup does, setting the nice value would raise the
    // priority.
    if rustix::process::getpriority_process(None).is_ok_and(|current| current >= nice) {
        return;
    }
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::warn!(%error, "cannot lower the priority of a CPU queue thread; it runs at normal priority");
    }
}

/// Does nothing: outside Linux, threads have the priority of the process.
#[cfg(not(target_os = "linux"))]
pub fn lower_priority(_: i32) {}

/// A waiting job, independent of its result type.
trait CpuJob: Send {
    fn run(self: Box<Self>);
    fn refuse(self: Box<Self>, error: Error);
    /// `true` if the caller no longer waits for the result.
    fn is_abandoned(&self) -> bool;
}

struct CpuWork<F, T> {
    work: F,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce() -> T + Send> CpuJob for CpuWork<F, T> {
    fn run(self: Box<Self>) {
        let done = catch_unwind(AssertUnwindSafe(self.work)).map_err(|_| {
            metrics::counter!(telemetry::HANDLER_PANICS).increment(1);
            Error::internal("a job of the CPU queue panicked")
        });
        // The caller may have disconnected during the job.
        let _ = self.reply.send(done);
    }

    fn refuse(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

#[derive(Clone)]
struct CpuQueue(Arc<CpuQueueShared>);

struct CpuQueueShared {
    state: Mutex<CpuQueueState>,
    changed: Condvar,
}

struct CpuQueueState {
    with_token: FairQueue<Box<dyn CpuJob>>,
    without_token: FairQueue<Box<dyn CpuJob>>,
}

impl CpuQueue {
    fn with_threads(threads: usize) -> Self {
        let max_per_caller = threads.saturating_sub(1).max(1);
        let state = CpuQueueState {
            with_token: FairQueue::new(threads, max_per_caller),
            without_token: FairQueue::new(max_per_caller, max_per_caller),
        };
        Self(Arc::new(CpuQueueShared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    fn start(&self, threads: usize) {
        for n in 0..threads {
            let queue = self.clone();
            let work = move || {
                lower_priority(NICE);
                loop {
                    let (caller, job) = queue.wait();
                    job.run();
                    queue.lock().queue_of(caller.class).end_job(caller.caller_id);
                }
            };
            if let Err(error) = thread::Builder::new().name(format!("cpu-{n}")).spawn(work) {
                tracing::error!(%error, "a thread of the CPU queue did not start");
            }
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        caller: QueueCaller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, done) = oneshot::channel();
        self.push(caller, Box::new(CpuWork { work, reply }));
        done.await.map_err(Error::internal)?
    }

    fn push(&self, caller: QueueCaller, job: Box<dyn CpuJob>) {
        let mut state = self.lock();
        let queue = state.queue_of(caller.class);
        let displaced = if caller.is_bounded() {
            let max = MAX_WAITING_PER_CLASS;
            Some(queue.push_bounded(caller.caller_id, job, max, MAX_WAITING_PER_CALLER, |job| job.is_abandoned()))
        } else {
            queue.push(caller.caller_id, job);
            None
        };
        drop(state);
        self.0.changed.notify_one();
        if let Some(job) = displaced.and_then(|displaced| displaced.refused) {
            job.refuse(busy_error());
        }
    }

    /// Waits for the next job whose caller still waits for the result.
    fn wait(&self) -> (QueueCaller, Box<dyn CpuJob>) {
        let mut state = self.lock();
        loop {
            match state.next() {
                Some((caller, job)) if job.is_abandoned() => {
                    state.queue_of(caller.class).end_job(caller.caller_id);
                    drop(state);
                    drop(job);
                    state = self.lock();
                }
                Some(next) => return next,
                None => state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, CpuQueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CpuQueueState {
    fn queue_of(&mut self, class: CallerClass) -> &mut FairQueue<Box<dyn CpuJob>> {
        match class {
            CallerClass::Server | CallerClass::WithToken => &mut self.with_token,
            CallerClass::WithoutToken => &mut self.without_token,
        }
    }

    fn next(&mut self) -> Option<(QueueCaller, Box<dyn CpuJob>)> {
        [CallerClass::WithToken, CallerClass::WithoutToken].into_iter().find_map(|class| {
            let (caller_id, job) = self.queue_of(class).start_next()?;
            Some((QueueCaller { class, caller_id, must_run: false, trace: None }, job))
        })
    }
}

fn busy_error() -> Error {
    Error::new(Kind::Busy, "too many queued CPU jobs of this caller; retry")
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Duration;

    use futures_util::{FutureExt as _, poll};

    use super::*;

    type JobFuture = Pin<Box<dyn Future<Output = Result<u32>>>>;

    /// Queues a job. Returns its future, or the error if the queue refuses it.
    fn push_job(queue: &CpuQueue, caller: QueueCaller, number: u32) -> Result<JobFuture> {
        let queue = queue.clone();
        let mut job: JobFuture = Box::pin(async move { queue.run(caller, move || number).await });
        match (&mut job).now_or_never() {
            Some(refused) => refused.map(|_| unreachable!("no thread works")),
            None => Ok(job),
        }
    }

    /// Runs the next job; `false` if there is none.
    fn run_next_job(queue: &CpuQueue) -> bool {
        let next = queue.lock().next();
        let Some((caller, job)) = next else { return false };
        job.run();
        queue.lock().queue_of(caller.class).end_job(caller.caller_id);
        true
    }

    /// Runs all jobs and returns their numbers in the order in which they ended.
    async fn run_all_jobs(queue: &CpuQueue, jobs: Vec<JobFuture>) -> Vec<u32> {
        let mut jobs: Vec<_> = jobs.into_iter().map(Some).collect();
        let mut done = Vec::new();
        while run_next_job(queue) {
            for slot in &mut jobs {
                if let Some(job) = slot
                    && let Poll::Ready(number) = poll!(job)
                {
                    done.push(number.unwrap());
                    *slot = None;
                }
            }
        }
        done
    }

    fn caller_with_token(name: &str) -> QueueCaller {
        QueueCaller::with_token(name)
    }

    #[tokio::test]
    async fn cpu_queue_alternates_callers_and_serves_tokenless_last() {
        let queue = CpuQueue::with_threads(4);
        let without = QueueCaller::without_token("address");
        let callers = [
            (without, 30),
            (caller_with_token("a"), 10),
            (caller_with_token("a"), 11),
            (caller_with_token("a"), 12),
            (caller_with_token("b"), 20),
            (without, 31),
        ];
        let jobs = callers.map(|(caller, number)| push_job(&queue, caller, number).unwrap());
        assert_eq!(run_all_jobs(&queue, jobs.into()).await, [10, 20, 11, 12, 30, 31]);
    }

    #[test]
    fn cpu_queue_leaves_a_thread_free_for_other_callers() {
        let queue = CpuQueue::with_threads(4);
        let without = |n: u32| QueueCaller::without_token(&n);
        let _jobs: Vec<_> = (0..4).map(|n| push_job(&queue, without(n), n).unwrap()).collect();
        let begun = std::iter::from_fn(|| queue.lock().next()).count();
        assert_eq!(begun, 3, "one thread is left to callers with a token");
        let queue = CpuQueue::with_threads(4);
        let _jobs: Vec<_> = (0..4).map(|n| push_job(&queue, caller_with_token("a"), n).unwrap()).collect();
        let begun = std::iter::from_fn(|| queue.lock().next()).count();
        assert_eq!(begun, 3, "one thread is left to the others");
        let _other = push_job(&queue, caller_with_token("b"), 9).unwrap();
        assert!(queue.lock().next().is_some());
    }

    #[tokio::test]
    async fn cpu_queue_refuses_only_the_caller_whose_queue_is_full() {
        let queue = CpuQueue::with_threads(1);
        let push = |name: &str| push_job(&queue, caller_with_token(name), 0);
        let mut jobs: Vec<_> = (0..MAX_WAITING_PER_CALLER).map(|_| push("a").unwrap()).collect();
        let refused = push("a").err().unwrap();
        assert_eq!(refused.kind(), Kind::Busy);
        let _other = push("b").unwrap();
        jobs.pop();
        jobs.push(push("a").unwrap());
        assert!(push("a").is_err());
        let begun = QueueCaller { must_run: true, ..caller_with_token("a") };
        assert!(push_job(&queue, begun, 0).is_ok(), "a response that has begun cannot be refused");
        drop(jobs);
        assert_eq!(queue.lock().with_token.waiting(), MAX_WAITING_PER_CALLER + 2);
        let own = QueueCaller::server("changes");
        let many: Vec<_> = (0..2 * MAX_WAITING_PER_CLASS).map(|n| push_job(&queue, own, n as u32)).collect();
        assert!(many.iter().all(Result::is_ok), "the server's own work is bounded by the requests that wait for it");
    }

    #[tokio::test]
    async fn full_class_drops_newest_job_of_the_longest_queue() {
        let queue = CpuQueue::with_threads(1);
        let mut jobs = Vec::new();
        for n in 0..MAX_WAITING_PER_CLASS / MAX_WAITING_PER_CALLER {
            let caller = caller_with_token(&n.to_string());
            jobs.extend((0..MAX_WAITING_PER_CALLER).map(|_| push_job(&queue, caller, 0).unwrap()));
        }
        let _late = push_job(&queue, caller_with_token("late"), 1).unwrap();
        assert_eq!(queue.lock().with_token.waiting(), MAX_WAITING_PER_CLASS);
        let mut refused = 0;
        for job in &mut jobs {
            refused += usize::from(matches!(poll!(job), Poll::Ready(Err(error)) if error.kind() == Kind::Busy));
        }
        assert_eq!(refused, 1);
    }

    #[tokio::test]
    async fn abandoned_job_is_not_run_and_panic_is_an_error() {
        let queue = CpuQueue::with_threads(1);
        let (sender, receiver) = mpsc::channel();
        let mut left = Box::pin(queue.run(caller_with_token("a"), move || sender.send(()).unwrap()));
        assert!(poll!(&mut left).is_pending());
        drop(left);
        queue.start(1);
        let panicked = queue.run(caller_with_token("b"), || panic!("a defect")).await;
        assert_eq!(panicked.err().map(|error: Error| error.kind()), Some(Kind::Internal));
        assert_eq!(queue.run(caller_with_token("b"), || 7).await.unwrap(), 7);
        assert!(receiver.recv_timeout(Duration::from_secs(10)).is_err(), "the job was dropped, not run");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn cpu_queue_threads_run_at_lower_priority() {
        let nice = run(|| rustix::process::getpriority_process(None).unwrap()).await.unwrap();
        assert_eq!(nice, NICE);
        assert!(rustix::process::getpriority_process(None).unwrap() < NICE);
    }
}
