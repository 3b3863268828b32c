//! Threads for RSA generation. They run at nice 19, so that the seconds of CPU they need come out of
//! what the signing workers leave. Priority alone does not keep the cores free for others (a database
//! beside this process waits for its turn all the same), so every thread but the first rests after a key
//! for which it had to wait.
//!
//! A key of 8192 bits takes hundreds of times as long as one of 2048, and nothing can end it once it is
//! begun. So keys wait in lanes by size (`lane`), and every thread takes certain lanes only: whatever is
//! asked for, the first thread is kept for small keys and the second for nothing that is large, and no
//! more than one large key is in the making. In a lane mounts take turns; its places are bounded, and a
//! full one is the caller's error at once.
//!
//! A caller that has left before its turn costs nothing: its job is dropped unstarted, and holds no place.

mod lane;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::lane::{Job, Lane, Line};
pub use self::lane::{Presence, Watch};
use super::local::{KeySpec, PrivateKey};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::telemetry;

/// What each thread takes, in turns.
const THREADS: [&[Lane]; 3] = [&[Lane::Small], &[Lane::Small, Lane::Medium], &[Lane::Medium, Lane::Large]];

/// How far the threads step back behind the workers.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// A thread that was kept from a processor for this part of its work is in the way of others.
const CROWDED: f64 = 0.1;
/// How long it rests then: times what the key took, and at most.
const REST: f64 = 3.0;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// A handle to the pool; clones share it. The threads end when the last handle is gone.
#[derive(Clone)]
pub struct KeyPool(Arc<Handle>);

/// Closes the queue when the last handle is dropped; the threads hold the queue, not this.
struct Handle(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By lane, in the order of [`Lane::ALL`].
    lines: [Line; Lane::ALL.len()],
    closed: bool,
}

impl KeyPool {
    /// Starts the threads.
    pub fn start() -> Self {
        let pool = Self::idle();
        pool.staff(PrivateKey::generate);
        pool
    }

    /// A pool without threads: jobs stay where they are.
    fn idle() -> Self {
        let state = State::default();
        Lane::ALL.into_iter().for_each(|lane| measure(&state, lane));
        Self(Arc::new(Handle(Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() }))))
    }

    /// Starts the threads, which make keys by `make`.
    fn staff(&self, make: impl Fn(KeySpec) -> Result<PrivateKey> + Clone + Send + 'static) {
        for (n, lanes) in THREADS.into_iter().enumerate() {
            let (queue, make) = (Arc::clone(&self.0.0), make.clone());
            let work = move || queue.work(lanes, make, n > 0);
            if let Err(error) = thread::Builder::new().name(format!("key-pool-{n}")).spawn(work) {
                tracing::error!(%error, "a key generation thread did not start");
            }
        }
    }

    /// Makes a key for a mount: RSA on a thread of the pool, every other kind right here. The job ends
    /// unstarted with this future, and with `caller`, where that may go first.
    ///
    /// # Errors
    /// `Busy` at once when the lane is full, or later when another mount has too small a share of it;
    /// `Internal` when the crypto library fails.
    pub async fn generate(&self, spec: KeySpec, mount: MountId, caller: &Watch) -> Result<PrivateKey> {
        let Some(lane) = Lane::of(spec.kind()) else { return PrivateKey::generate(spec) };
        let (answer, key) = oneshot::channel();
        self.0.0.push(lane, Job { spec, mount, caller: caller.clone(), queued_at: Instant::now(), answer });
        key.await.map_err(|_| Error::internal("a key generation thread died"))?
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, lane: Lane, job: Job) {
        let mut state = self.lock();
        let turned_away = state.lines[lane as usize].push(job, lane.places());
        measure(&state, lane);
        drop(state);
        if let Some(job) = turned_away {
            job.turn_away();
        }
        // All of them: not every thread takes this lane.
        self.changed.notify_all();
    }

    /// The next job of the first of `lanes` that has one, and its lane; `None` when the pool is closed.
    fn next(&self, lanes: &[Lane]) -> Option<(Lane, Job)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            for lane in lanes {
                let job = state.lines[*lane as usize].next();
                measure(&state, *lane);
                if let Some(job) = job {
                    return Some((*lane, job));
                }
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn work(&self, lanes: &[Lane], make: impl Fn(KeySpec) -> Result<PrivateKey>, rests: bool) {
        step_back();
        let mut lanes = lanes.to_vec();
        while let Some((lane, job)) = self.next(&lanes) {
            // The other lanes come first next time.
            lanes.sort_by_key(|other| *other == lane);
            let (started, at_work) = (Instant::now(), processor_time());
            let waited = started.duration_since(job.queued_at);
            metrics::histogram!(telemetry::KEY_GENERATION_WAIT_SECONDS, "lane" => lane.name()).record(waited);
            let key = catch_unwind(AssertUnwindSafe(|| make(job.spec)))
                .unwrap_or_else(|_| Err(Error::internal("key generation panicked")));
            metrics::histogram!(telemetry::KEY_GENERATION_WORK_SECONDS, "lane" => lane.name())
                .record(started.elapsed());
            // A caller that left meanwhile drops the key.
            let _ = job.answer.send(key);
            if rests {
                thread::sleep(rest(started.elapsed(), processor_time().saturating_sub(at_work)));
            }
        }
    }
}

fn measure(state: &State, lane: Lane) {
    let jobs = state.lines[lane as usize].len();
    metrics::gauge!(telemetry::KEY_GENERATION_QUEUE, "lane" => lane.name()).set(jobs as f64);
}

/// How long a thread rests after a key that took `took`, of which it was on a processor for `at_work`.
fn rest(took: Duration, at_work: Duration) -> Duration {
    let crowded = took.saturating_sub(at_work).as_secs_f64() > took.as_secs_f64() * CROWDED;
    if crowded { took.mul_f64(REST).min(LONGEST_REST) } else { Duration::ZERO }
}

/// Processor time of the calling thread.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// As if the thread was always at work.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}

/// Lowers the priority of the calling thread: on Linux the nice value belongs to the thread.
#[cfg(target_os = "linux")]
fn step_back() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::warn!(%error, "key generation runs at normal priority");
    }
}

#[cfg(not(target_os = "linux"))]
fn step_back() {}

#[cfg(test)]
mod tests;
