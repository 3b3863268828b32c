//! Background threads that generate RSA keys.
//!
//! A generation cannot be interrupted, and one key of 8192 bits takes as long as hundreds of keys of 2048 bits. So jobs
//! queue in two lanes by size (`lane`), each with its own thread. The threads run at nice 19, so that they use only
//! processor time that the workers leave. Queues are bounded and fair by caller. Without requests, the threads fill a
//! stock of keys (`stock`), from which callers are served immediately.

mod lane;
mod stock;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use self::lane::{CallerGuard, CallerWatch};
use self::lane::{KeyGenerationJob, PoolLane};
use self::stock::RsaKeyStock;
pub use self::stock::StockSizes;
use super::local::{KeySpec, PrivateKey};
use crate::error::{Error, Result};
use crate::rationing::cpu::lower_priority;
use crate::rationing::{CallerId, DisplacedJobs, FairQueue, QueueCaller};
use crate::telemetry;
use crate::telemetry::{outage, traffic};

/// Minimum time without requests before a key is generated for the stock.
const MIN_QUIET_TIME: Duration = Duration::from_millis(50);
/// Pause in generating keys for the stock after a failed generation.
const FAILURE_PAUSE: Duration = Duration::from_secs(3);
/// The pause is shorter than the quiet time that ends an outage, so repeated failures are logged as one outage.
const _: () = assert!(FAILURE_PAUSE.as_secs() < outage::MIN_QUIET_TIME.as_secs());

const THREAD_NICENESS: i32 = 19;

/// A handle to the pool; clones share it. The threads end when the last handle is dropped.
#[derive(Clone)]
pub struct KeyPool(Arc<KeyPoolHandle>);

/// Closes the queues when the last handle is dropped. The threads hold only the queues, so they do not keep them open.
struct KeyPoolHandle(Arc<KeyPoolQueue>);

struct KeyPoolQueue {
    state: Mutex<KeyPoolState>,
    changed: Condvar,
    /// Returns the time since the last request began or ended.
    idle_time: fn() -> Duration,
}

struct KeyPoolState {
    /// One queue per lane, in the order of [`PoolLane::ALL`].
    queues: [FairQueue<KeyGenerationJob>; PoolLane::ALL.len()],
    stock: RsaKeyStock,
    /// Earliest start of the next generation for the stock, after a failed one.
    stock_resumes_at: Option<Instant>,
    closed: bool,
}

enum KeyPoolTask {
    RunJob(KeyGenerationJob),
    /// Generate a key for the stock.
    FillStock(KeySpec),
}

impl KeyPool {
    /// Creates the pool and starts its threads.
    pub fn start() -> Self {
        let pool = Self::without_threads(traffic::idle_time);
        pool.start_threads(PrivateKey::generate);
        pool
    }

    /// Creates a pool without threads: jobs stay queued.
    fn without_threads(idle_time: fn() -> Duration) -> Self {
        // The queues only order their jobs, so their limits on running jobs do not matter: each lane has one thread.
        let queues = PoolLane::ALL.map(|_| FairQueue::new(1, 1));
        let state = KeyPoolState { queues, stock: RsaKeyStock::default(), stock_resumes_at: None, closed: false };
        PoolLane::ALL.into_iter().for_each(|lane| update_queue_gauge(&state, lane));
        let queue = KeyPoolQueue { state: Mutex::new(state), changed: Condvar::new(), idle_time };
        let pool = Self(Arc::new(KeyPoolHandle(Arc::new(queue))));
        pool.resize_stock(StockSizes::default());
        pool
    }

    /// Sets how many keys of each size to keep in stock; the pool starts without a stock. Drops surplus keys.
    pub fn resize_stock(&self, sizes: StockSizes) {
        let surplus = self.0.0.lock().stock.resize(sizes);
        self.0.0.changed.notify_all();
        drop(surplus);
    }

    /// Starts the threads, which generate keys with `generate_key`.
    fn start_threads(&self, generate_key: impl Fn(KeySpec) -> Result<PrivateKey> + Clone + Send + 'static) {
        for lane in PoolLane::ALL {
            let queue = Arc::clone(&self.0.0);
            let generate_key = generate_key.clone();
            let name = format!("key-pool-{}", lane.name());
            if let Err(error) = thread::Builder::new().name(name).spawn(move || queue.run_worker(lane, generate_key)) {
                tracing::error!(%error, "a thread that generates RSA keys did not start");
            }
        }
    }

    /// Generates a key. RSA keys come from the stock or from a thread of the pool; other keys are generated in place.
    /// If this future is dropped, or `caller` leaves, before the generation starts, the job is dropped.
    ///
    /// # Errors
    /// `Busy` immediately when the queue of the lane or of the caller is full, or later when a job of another caller
    /// displaces this one; `Internal` when the crypto library fails.
    pub async fn generate(&self, spec: KeySpec, caller: &CallerWatch) -> Result<PrivateKey> {
        let Some(lane) = PoolLane::of(spec.kind()) else { return PrivateKey::generate(spec) };
        if let Some(key) = self.0.0.take_stocked(spec, lane) {
            return Ok(key);
        }
        let (answer, key) = oneshot::channel();
        let job = KeyGenerationJob { spec, caller: caller.clone(), queued_at: Instant::now(), answer };
        self.0.0.push(lane, QueueCaller::current().caller_id(), job);
        key.await.map_err(|_| Error::internal("the thread that generates RSA keys died"))?
    }
}

impl Drop for KeyPoolHandle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let stock = state.stock.resize(StockSizes::default());
        drop(state);
        self.0.changed.notify_all();
        drop(stock);
    }
}

impl KeyPoolQueue {
    fn lock(&self) -> MutexGuard<'_, KeyPoolState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, lane: PoolLane, caller_id: CallerId, job: KeyGenerationJob) {
        let mut state = self.lock();
        let DisplacedJobs { abandoned, refused } = state.queues[lane as usize].push_bounded(
            caller_id,
            job,
            lane.max_queued(),
            lane.max_queued_per_caller(),
            KeyGenerationJob::is_abandoned,
        );
        update_queue_gauge(&state, lane);
        drop(state);
        abandoned.into_iter().for_each(KeyGenerationJob::cancel);
        refused.into_iter().for_each(KeyGenerationJob::reject_busy);
        // Wakes all threads: a single notification could reach the thread of the other lane.
        self.changed.notify_all();
    }

    fn take_stocked(&self, spec: KeySpec, lane: PoolLane) -> Option<PrivateKey> {
        let mut state = self.lock();
        let was_full = state.stock.next_missing(lane).is_none();
        let key = state.stock.take_key(spec);
        drop(state);
        // A thread sleeps while the stock is full. Wake it to replace the key.
        if was_full && key.is_some() {
            self.changed.notify_all();
        }
        key
    }

    /// Returns the next task of a thread: a job of its lane, otherwise a key for the stock. `None` when the pool is
    /// closed.
    fn next_task(&self, lane: PoolLane) -> Option<KeyPoolTask> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.next_job(lane) {
                return Some(KeyPoolTask::RunJob(job));
            }
            let Some(spec) = state.stock.next_missing(lane) else {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            let until_resume = state.stock_resumes_at.map(|at| at.saturating_duration_since(Instant::now()));
            let pause = MIN_QUIET_TIME.saturating_sub((self.idle_time)()).max(until_resume.unwrap_or_default());
            if pause.is_zero() {
                return Some(KeyPoolTask::FillStock(spec));
            }
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn run_worker(&self, lane: PoolLane, generate_key: impl Fn(KeySpec) -> Result<PrivateKey>) {
        lower_priority(THREAD_NICENESS);
        let generate_key = |spec| {
            let generated = catch_unwind(AssertUnwindSafe(|| generate_key(spec)));
            generated.unwrap_or_else(|_| Err(Error::internal("key generation panicked")))
        };
        while let Some(task) = self.next_task(lane) {
            match task {
                KeyPoolTask::RunJob(job) => run_job(lane, job, &generate_key),
                KeyPoolTask::FillStock(spec) => self.store_stock_key(spec, generate_key(spec)),
            }
        }
    }

    /// Stores a key that was generated for the stock.
    fn store_stock_key(&self, spec: KeySpec, key: Result<PrivateKey>) {
        let mut state = self.lock();
        match key {
            Ok(key) => {
                let surplus = state.stock.add(spec, key);
                drop(state);
                drop(surplus);
            }
            Err(error) => {
                state.stock_resumes_at = Some(Instant::now() + FAILURE_PAUSE);
                drop(state);
                outage::warn_recurring_failure("RSA key stock: no key was generated", &error);
            }
        }
    }
}

impl KeyPoolState {
    /// Returns the next job of a lane that needs a generation. Jobs for which the stock has a key by now get that key.
    fn next_job(&mut self, lane: PoolLane) -> Option<KeyGenerationJob> {
        let job = loop {
            let Some(job) = self.queues[lane as usize].pop_next() else { break None };
            if job.is_abandoned() {
                job.cancel();
            } else if let Some(key) = self.stock.take_uncounted(job.spec) {
                record_wait(lane, job.queued_at.elapsed());
                // If the caller has left, the key is dropped.
                let _ = job.answer.send(Ok(key));
            } else {
                break Some(job);
            }
        };
        update_queue_gauge(self, lane);
        job
    }
}

/// Generates the key of a job.
fn run_job(lane: PoolLane, job: KeyGenerationJob, generate_key: &impl Fn(KeySpec) -> Result<PrivateKey>) {
    record_wait(lane, job.queued_at.elapsed());
    let started = Instant::now();
    let key = generate_key(job.spec);
    metrics::histogram!(telemetry::KEY_GENERATION_WORK_SECONDS, "lane" => lane.name()).record(started.elapsed());
    let _ = job.answer.send(key);
}

/// Records how long a caller waited until the generation of its key started, or its key came from the stock.
fn record_wait(lane: PoolLane, waited: Duration) {
    metrics::histogram!(telemetry::KEY_GENERATION_WAIT_SECONDS, "lane" => lane.name()).record(waited);
}

fn update_queue_gauge(state: &KeyPoolState, lane: PoolLane) {
    let jobs = state.queues[lane as usize].waiting();
    metrics::gauge!(telemetry::KEY_GENERATION_QUEUE, "lane" => lane.name()).set(jobs as f64);
}

#[cfg(test)]
mod tests;
