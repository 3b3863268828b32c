//! Background threads that generate RSA keys.
//!
//! They run at nice 19, so that they use only processor time that the workers leave. Priority does not keep the cores
//! free for other processes, so all threads but the first pause after a key that had to wait for a processor. A
//! generation cannot be interrupted, and one key of 8192 bits takes as long as hundreds of 2048. So jobs queue in lanes
//! by size (`lane`), and each thread serves certain lanes only. Queues are bounded and served round-robin by mount and
//! caller. Without requests, the threads fill a stock of keys (`stock`), from which callers are served immediately.

mod lane;
mod stock;
mod stock_throttle;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use self::lane::{CallerGuard, CallerWatch};
use self::lane::{KeyGenerationJob, LaneQueue, PoolLane};
use self::stock::Stock;
pub use self::stock::StockSizes;
use self::stock_throttle::{StockThrottle, TimeSpent, pause_after};
use super::local::{KeySpec, PrivateKey};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::fair_queue::QueueCaller;
use crate::fair_queue::cpu::lower_priority;
use crate::telemetry;
use crate::telemetry::{outage, traffic};

/// Lanes that each thread serves, alternating between them.
const THREAD_LANES: [&[PoolLane]; 3] =
    [&[PoolLane::Small], &[PoolLane::Small, PoolLane::Medium], &[PoolLane::Medium, PoolLane::Large]];
/// Lanes for which each thread fills the stock. The first thread makes only small keys, so that small jobs wait for no
/// others. The last one fills nothing, so that it is free for medium jobs.
const THREAD_STOCK_LANES: [&[PoolLane]; THREAD_LANES.len()] =
    [&[PoolLane::Small], &[PoolLane::Small, PoolLane::Medium], &[]];

/// Repeated failures count as one outage, which is logged once.
const _: () = assert!(stock_throttle::FAILURE_PAUSE.as_secs() < outage::MIN_QUIET_TIME.as_secs());

/// Minimum time without requests before a key is generated for the stock.
const MIN_QUIET_TIME: Duration = Duration::from_millis(50);

const NICE: i32 = 19;

/// A handle to the pool; clones share it. The threads end when the last handle is dropped.
#[derive(Clone)]
pub struct KeyPool(Arc<KeyPoolHandle>);

/// Closes the queue when the last handle is dropped. The threads refer to the queue, not to this.
struct KeyPoolHandle(Arc<KeyPoolQueue>);

struct KeyPoolQueue {
    state: Mutex<KeyPoolState>,
    changed: Condvar,
    /// Returns the time since the last request began or ended.
    quiet_for: fn() -> Duration,
}

struct KeyPoolState {
    /// One queue per lane, in the order of [`PoolLane::ALL`].
    lines: [LaneQueue; PoolLane::ALL.len()],
    /// Jobs for which threads are generating keys.
    active_threads: usize,
    stock: Stock,
    pace: StockThrottle,
    closed: bool,
}

enum KeyPoolTask {
    Answer(PoolLane, KeyGenerationJob),
    /// Generate a key for the stock, with the concurrency that is allowed at its start.
    Fill(KeySpec, usize),
}

impl KeyPool {
    /// Starts the threads.
    pub fn start() -> Self {
        let pool = Self::idle();
        pool.start_threads(PrivateKey::generate);
        pool
    }

    /// Creates a pool without threads: jobs stay queued.
    fn idle() -> Self {
        Self::idle_with(traffic::idle_time, thread::available_parallelism().map_or(1, usize::from))
    }

    fn idle_with(quiet_for: fn() -> Duration, processors: usize) -> Self {
        let lines = Default::default();
        let stock = Stock::default();
        let pace = StockThrottle::on(processors);
        let state = KeyPoolState { lines, active_threads: 0, stock, pace, closed: false };
        PoolLane::ALL.into_iter().for_each(|lane| update_queue_gauge(&state, lane));
        let pool = Self(Arc::new(KeyPoolHandle(Arc::new(KeyPoolQueue {
            state: Mutex::new(state),
            changed: Condvar::new(),
            quiet_for,
        }))));
        pool.stock(StockSizes::default());
        pool
    }

    /// Sets the number of keys in stock, which is 0 at first. Drops surplus keys.
    pub fn stock(&self, sizes: StockSizes) {
        let surplus = self.0.0.lock().stock.keep(sizes);
        self.0.0.changed.notify_all();
        drop(surplus);
    }

    /// Starts the threads, which generate keys with `make`.
    fn start_threads(&self, make: impl Fn(KeySpec) -> Result<PrivateKey> + Clone + Send + 'static) {
        for (n, (lanes, fills)) in THREAD_LANES.into_iter().zip(THREAD_STOCK_LANES).enumerate() {
            let queue = Arc::clone(&self.0.0);
            let make = make.clone();
            let work = move || queue.work(lanes, fills, make, n > 0);
            if let Err(error) = thread::Builder::new().name(format!("key-pool-{n}")).spawn(work) {
                tracing::error!(%error, "a key generation thread did not start");
            }
        }
    }

    /// Generates a key for a mount. RSA keys come from the stock or from a thread of the pool; other keys are generated
    /// in place. The job is dropped unstarted when this future is dropped, or when `caller` leaves before that.
    ///
    /// # Errors
    /// `Busy` immediately when the queue of the lane or of the caller is full, or later when a job of another mount or
    /// caller displaces this one; `Internal` when the crypto library fails.
    pub async fn generate(&self, spec: KeySpec, mount: MountId, caller: &CallerWatch) -> Result<PrivateKey> {
        let Some(lane) = PoolLane::of(spec.kind()) else { return PrivateKey::generate(spec) };
        if let Some(key) = self.0.0.take(spec) {
            return Ok(key);
        }
        let (answer, key) = oneshot::channel();
        let caller_id = QueueCaller::current().caller_id();
        self.0.0.push(
            lane,
            KeyGenerationJob { spec, mount, caller_id, caller: caller.clone(), queued_at: Instant::now(), answer },
        );
        key.await.map_err(|_| Error::internal("a key generation thread died"))?
    }
}

impl Drop for KeyPoolHandle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let stock = state.stock.keep(StockSizes::default());
        drop(state);
        self.0.changed.notify_all();
        drop(stock);
    }
}

impl KeyPoolQueue {
    fn lock(&self) -> MutexGuard<'_, KeyPoolState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, lane: PoolLane, job: KeyGenerationJob) {
        let mut state = self.lock();
        let rejected = state.lines[lane as usize].push(job, lane.max_queued(), lane.max_queued_per_caller());
        update_queue_gauge(&state, lane);
        drop(state);
        if let Some(job) = rejected {
            job.reject_busy();
        }
        // All threads, because not every thread serves this lane.
        self.changed.notify_all();
    }

    fn take(&self, spec: KeySpec) -> Option<PrivateKey> {
        let mut state = self.lock();
        let was_full = state.stock.has_all(spec);
        let key = state.stock.take(spec);
        drop(state);
        // A thread that has nothing to fill sleeps until it is notified. While keys of this size are missing, the
        // threads check by themselves.
        if was_full && key.is_some() {
            self.changed.notify_all();
        }
        key
    }

    /// Returns the next task of a thread: a job of the first of `lanes` that has one, otherwise a key of `fills` for
    /// the stock. `None` when the pool is closed.
    fn next(&self, lanes: &[PoolLane], fills: &[PoolLane]) -> Option<KeyPoolTask> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((lane, job)) = state.next_job(lanes) {
                state.active_threads += 1;
                return Some(KeyPoolTask::Answer(lane, job));
            }
            let Some(spec) = state.stock.missing(fills) else {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            let Some(pause) = self.pause(&state) else {
                state.stock.begin(spec);
                return Some(KeyPoolTask::Fill(spec, state.pace.concurrency()));
            };
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Returns the time until the next check for filling the stock; `None` if a key may start now.
    fn pause(&self, state: &KeyPoolState) -> Option<Duration> {
        let callers_wait = state.active_threads > 0 || state.lines.iter().any(|line| line.len() > 0);
        if callers_wait || state.stock.generating() >= state.pace.concurrency() {
            return Some(MIN_QUIET_TIME);
        }
        let too_early = MIN_QUIET_TIME.saturating_sub((self.quiet_for)());
        state.pace.pause(Instant::now()).or_else(|| Some(too_early).filter(|left| !left.is_zero()))
    }

    fn work(
        &self,
        lanes: &[PoolLane],
        fills: &[PoolLane],
        make: impl Fn(KeySpec) -> Result<PrivateKey>,
        backoff: bool,
    ) {
        lower_priority(NICE);
        let mut lanes = lanes.to_vec();
        while let Some(task) = self.next(&lanes, fills) {
            let started = Instant::now();
            let active_threads = processor_time();
            let make = |spec| {
                catch_unwind(AssertUnwindSafe(|| make(spec)))
                    .unwrap_or_else(|_| Err(Error::internal("key generation panicked")))
            };
            let spent = || TimeSpent {
                took: started.elapsed(),
                active_threads: processor_time().saturating_sub(active_threads),
            };
            match task {
                KeyPoolTask::Answer(lane, job) => {
                    // The other lanes go first next time.
                    lanes.sort_by_key(|other| *other == lane);
                    run_job(lane, job, started, make);
                    self.lock().active_threads -= 1;
                    if backoff {
                        thread::sleep(pause_after(spent()));
                    }
                }
                KeyPoolTask::Fill(spec, concurrency) => {
                    let key = make(spec);
                    self.filled(spec, key, concurrency, spent());
                }
            }
        }
    }

    fn filled(&self, spec: KeySpec, key: Result<PrivateKey>, concurrency: usize, spent: TimeSpent) {
        let mut state = self.lock();
        let more = match &key {
            Ok(_) => state.pace.done(concurrency, spent, Instant::now()),
            Err(_) => {
                state.pace.record_failure(Instant::now());
                false
            }
        };
        let (key, failure) = match key {
            Ok(key) => (Some(key), None),
            Err(error) => (None, Some(error)),
        };
        let surplus = if state.closed { key } else { state.stock.end(spec, key) };
        drop(state);
        drop(surplus);
        if more {
            self.changed.notify_all();
        }
        if let Some(error) = failure {
            outage::warn_recurring_failure("no key for the stock", &error);
        }
    }
}

impl KeyPoolState {
    /// Returns the next job of the first of `lanes` that has one, with its lane. Serves jobs from the stock if
    /// it has a key by now.
    fn next_job(&mut self, lanes: &[PoolLane]) -> Option<(PoolLane, KeyGenerationJob)> {
        for lane in lanes {
            let job = loop {
                let Some(job) = self.lines[*lane as usize].next() else { break None };
                match self.stock.take_queued(job.spec) {
                    Some(key) => {
                        record_wait(*lane, job.queued_at.elapsed());
                        // A caller that has left drops the key.
                        let _ = job.answer.send(Ok(key));
                    }
                    None => break Some(job),
                }
            };
            update_queue_gauge(self, *lane);
            if let Some(job) = job {
                return Some((*lane, job));
            }
        }
        None
    }
}

/// Generates the key of a job; the work began at `started`.
fn run_job(lane: PoolLane, job: KeyGenerationJob, started: Instant, make: impl Fn(KeySpec) -> Result<PrivateKey>) {
    record_wait(lane, started.duration_since(job.queued_at));
    let key = make(job.spec);
    metrics::histogram!(telemetry::KEY_GENERATION_WORK_SECONDS, "lane" => lane.name()).record(started.elapsed());
    let _ = job.answer.send(key);
}

/// Records the wait of a caller until its key was started or came from the stock.
fn record_wait(lane: PoolLane, waited: Duration) {
    metrics::histogram!(telemetry::KEY_GENERATION_WAIT_SECONDS, "lane" => lane.name()).record(waited);
}

fn update_queue_gauge(state: &KeyPoolState, lane: PoolLane) {
    let jobs = state.lines[lane as usize].len();
    metrics::gauge!(telemetry::KEY_GENERATION_QUEUE, "lane" => lane.name()).set(jobs as f64);
}

#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Fallback: a thread counts as always on a processor.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests;
