//! Threads for RSA generation. They run at nice 19, so that the seconds of CPU they need come out of
//! what the signing workers leave; the queue is bounded, and a full one is the caller's error at once.
//! Priority alone does not keep the cores free for others (a database beside this process waits for its
//! turn all the same), so every thread but the first rests after a key for which it had to wait.
//!
//! A caller that has left before its turn costs nothing: its job is dropped unstarted.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::local::{KeySpec, PrivateKey};
use crate::error::{Error, Kind, Result};
use crate::telemetry;
use crate::x509::algorithm::KeyKind;

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
    limit: usize,
}

struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    spec: KeySpec,
    queued_at: Instant,
    answer: oneshot::Sender<Result<PrivateKey>>,
}

impl KeyPool {
    /// Starts `threads` threads (at least one) behind a queue of at most `queue` waiting jobs.
    pub fn start(threads: usize, queue: usize) -> Self {
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        let shared = Arc::new(Queue { state, changed: Condvar::new(), limit: queue });
        for n in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            let started = thread::Builder::new().name(format!("key-pool-{n}")).spawn(move || shared.work(n > 0));
            if let Err(error) = started {
                tracing::error!(%error, "a key generation thread did not start");
            }
        }
        Self(Arc::new(Handle(shared)))
    }

    /// Makes a key: RSA on a thread of the pool, every other kind right here.
    ///
    /// # Errors
    /// `Busy` at once when the queue is full; `Internal` when the crypto library fails.
    pub async fn generate(&self, spec: KeySpec) -> Result<PrivateKey> {
        if !matches!(spec.kind(), KeyKind::Rsa { .. }) {
            return PrivateKey::generate(spec);
        }
        let (answer, key) = oneshot::channel();
        self.0.0.push(Job { spec, queued_at: Instant::now(), answer })?;
        key.await.map_err(|_| Error::internal("a key generation thread died"))?
    }

    /// Jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        self.0.0.lock().jobs.len()
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

    fn push(&self, job: Job) -> Result<()> {
        let mut state = self.lock();
        if state.jobs.len() >= self.limit {
            // Callers that have left hold no place.
            state.jobs.retain(|waiting| !waiting.answer.is_closed());
        }
        if state.jobs.len() >= self.limit {
            return Err(Error::new(Kind::Busy, "too many RSA keys are being generated, try again shortly"));
        }
        state.jobs.push_back(job);
        measure(&state);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The next job of a caller that still waits; `None` when the pool is closed.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let first = state.jobs.pop_front();
            measure(&state);
            match first {
                Some(job) if job.answer.is_closed() => continue,
                Some(job) => return Some(job),
                None => state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    fn work(&self, rests: bool) {
        step_back();
        while let Some(job) = self.next() {
            let (started, at_work) = (Instant::now(), processor_time());
            metrics::histogram!(telemetry::KEY_GENERATION_WAIT_SECONDS).record(started.duration_since(job.queued_at));
            let key = catch_unwind(AssertUnwindSafe(|| PrivateKey::generate(job.spec)))
                .unwrap_or_else(|_| Err(Error::internal("key generation panicked")));
            metrics::histogram!(telemetry::KEY_GENERATION_WORK_SECONDS).record(started.elapsed());
            // A caller that left meanwhile drops the key.
            let _ = job.answer.send(key);
            if rests {
                thread::sleep(rest(started.elapsed(), processor_time().saturating_sub(at_work)));
            }
        }
    }
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

fn measure(state: &State) {
    metrics::gauge!(telemetry::KEY_GENERATION_QUEUE).set(state.jobs.len() as f64);
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
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn rsa(bits: i64) -> KeySpec {
        KeySpec::new("rsa", bits).unwrap()
    }

    #[test]
    fn a_thread_rests_only_after_it_was_in_the_way_and_never_for_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(60), ms(58)), Duration::ZERO);
        assert_eq!(rest(ms(100), ms(60)), ms(300));
        assert_eq!(rest(ms(9000), ms(60)), LONGEST_REST);
        let before = processor_time();
        while processor_time() == before {
            std::hint::black_box(before);
        }
    }

    /// A pool without threads: jobs stay where they are.
    fn idle(limit: usize) -> KeyPool {
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        KeyPool(Arc::new(Handle(Arc::new(Queue { state, changed: Condvar::new(), limit }))))
    }

    #[tokio::test]
    async fn rsa_comes_from_the_pool_and_other_keys_from_here() {
        let pool = KeyPool::start(2, 8);
        let (a, b) = tokio::join!(pool.generate(rsa(2048)), pool.generate(rsa(2048)));
        assert!(a.unwrap().public() != b.unwrap().public());
        let idle = idle(0);
        for (key_type, bits) in [("ec", 224), ("ec", 256), ("ed25519", 0)] {
            let key = idle.generate(KeySpec::new(key_type, bits).unwrap()).await.unwrap();
            assert_eq!(key.kind().name(), key_type);
        }
    }

    #[tokio::test]
    async fn a_full_queue_is_busy_at_once_and_callers_that_left_hold_no_place() {
        let pool = idle(2);
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let mut call = Box::pin(async { pool.generate(rsa(2048)).await.map(|_| ()) });
            assert!((&mut call).now_or_never().is_none());
            waiting.push(call);
        }
        assert_eq!(pool.queued(), 2);
        assert_eq!(pool.generate(rsa(2048)).await.err().unwrap().kind(), Kind::Busy);
        waiting.pop();
        assert!(Box::pin(pool.generate(rsa(2048))).now_or_never().is_none(), "the free place is taken");
        assert_eq!(pool.queued(), 2);
    }

    #[test]
    fn a_job_whose_caller_has_left_is_skipped() {
        let pool = idle(3);
        let left = Box::pin(pool.generate(rsa(8192)));
        let mut stays = Box::pin(pool.generate(rsa(2048)));
        let mut left = left;
        assert!((&mut left).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(left);
        let job = pool.0.0.next().unwrap();
        assert_eq!(job.spec, rsa(2048));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_threads_are_nice_and_end_with_the_last_handle() {
        let pool = KeyPool::start(1, 1);
        let queue = Arc::downgrade(&pool.0.0);
        let nice = thread::spawn(|| {
            step_back();
            rustix::process::getpriority_process(None).unwrap()
        });
        assert_eq!(nice.join().unwrap(), NICE);
        assert!(rustix::process::getpriority_process(None).unwrap() < NICE, "this thread is not");
        drop(pool.clone());
        drop(pool);
        for _ in 0..500 {
            if queue.strong_count() == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the thread still runs");
    }
}
