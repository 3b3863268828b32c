//! Threads for RSA generation. They run at nice 19, so that the seconds of CPU they need come out of
//! what the signing workers leave. Priority alone does not keep the cores free for others (a database
//! beside this process waits for its turn all the same), so every thread but the first rests after a key
//! for which it had to wait.
//!
//! A key of 8192 bits takes hundreds of times as long as one of 2048, and nothing can end it once it is
//! begun. So keys wait in lanes by size (`lane`), and every thread takes certain lanes only: whatever is
//! asked for, the first thread is kept for small keys and the second for nothing that is large, and no
//! more than one large key is in the making. In a lane mounts take turns, and in a mount its callers;
//! the places of a lane and of one caller are bounded, and a full one is the caller's error at once.
//!
//! A caller that has left before its turn costs nothing: its job is dropped unstarted, and holds no place.
//!
//! While nobody asks for anything, the threads for small keys fill a stock ([`stock`]). A caller who finds a key
//! there has it at once, on their own thread. A thread looks between two keys whether somebody asks; a key that is
//! in the making by then goes to whoever waits for one of its size.

mod lane;
mod pace;
mod stock;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::lane::{Job, Lane, Line};
pub use self::lane::{Presence, Watch};
use self::pace::{Pace, Spent, rest};
use self::stock::Stock;
pub use self::stock::StockSizes;
use super::local::{KeySpec, PrivateKey};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::telemetry;
use crate::telemetry::{outage, traffic};
use crate::turns::Caller;
use crate::turns::cpu::lower_priority;

/// What each thread takes, in turns.
const THREADS: [&[Lane]; 3] = [&[Lane::Small], &[Lane::Small, Lane::Medium], &[Lane::Medium, Lane::Large]];
/// What each of them makes for the stock: the first nothing but small keys, so that they wait for no others, and the
/// last nothing, so that medium ones find it free.
const FILLS: [&[Lane]; THREADS.len()] = [&[Lane::Small], &[Lane::Small, Lane::Medium], &[]];

/// What goes on failing is one outage, and told once.
const _: () = assert!(pace::AFTER_FAILURE.as_secs() < outage::QUIET.as_secs());

/// How long no request may have begun or ended before a key is made for the stock.
const QUIET: Duration = Duration::from_millis(50);

/// How far the threads step back behind the workers.
const NICE: i32 = 19;

/// A handle to the pool; clones share it. The threads end when the last handle is gone.
#[derive(Clone)]
pub struct KeyPool(Arc<Handle>);

/// Closes the queue when the last handle is dropped; the threads hold the queue, not this.
struct Handle(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// How long nobody has asked for anything.
    quiet_for: fn() -> Duration,
}

struct State {
    /// By lane, in the order of [`Lane::ALL`].
    lines: [Line; Lane::ALL.len()],
    /// Jobs that threads work at.
    at_work: usize,
    stock: Stock,
    pace: Pace,
    closed: bool,
}

/// What a thread does next.
enum Task {
    /// Makes a key for a caller.
    Answer(Lane, Job),
    /// Makes a key for the stock, one of so many at the same time.
    Fill(KeySpec, usize),
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
        Self::idle_with(traffic::quiet_for, thread::available_parallelism().map_or(1, usize::from))
    }

    fn idle_with(quiet_for: fn() -> Duration, processors: usize) -> Self {
        let (lines, stock, pace) = (Default::default(), Stock::default(), Pace::on(processors));
        let state = State { lines, at_work: 0, stock, pace, closed: false };
        Lane::ALL.into_iter().for_each(|lane| measure(&state, lane));
        let pool =
            Self(Arc::new(Handle(Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new(), quiet_for }))));
        pool.stock(StockSizes::default());
        pool
    }

    /// Keeps so many keys ready from now on; at first there is no stock. Keys that are too many are dropped here.
    pub fn stock(&self, sizes: StockSizes) {
        let surplus = self.0.0.lock().stock.keep(sizes);
        self.0.0.changed.notify_all();
        drop(surplus);
    }

    /// Starts the threads, which make keys by `make`.
    fn staff(&self, make: impl Fn(KeySpec) -> Result<PrivateKey> + Clone + Send + 'static) {
        for (n, (lanes, fills)) in THREADS.into_iter().zip(FILLS).enumerate() {
            let (queue, make) = (Arc::clone(&self.0.0), make.clone());
            let work = move || queue.work(lanes, fills, make, n > 0);
            if let Err(error) = thread::Builder::new().name(format!("key-pool-{n}")).spawn(work) {
                tracing::error!(%error, "a key generation thread did not start");
            }
        }
    }

    /// A new key for a mount: RSA from the stock or else made on a thread of the pool, every other kind made right
    /// here. The job ends unstarted with this future, and with `caller`, where that may go first.
    ///
    /// # Errors
    /// `Busy` at once when the lane is full, or later when another mount or caller has too small a share of it;
    /// `Internal` when the crypto library fails.
    pub async fn generate(&self, spec: KeySpec, mount: MountId, caller: &Watch) -> Result<PrivateKey> {
        let Some(lane) = Lane::of(spec.kind()) else { return PrivateKey::generate(spec) };
        if let Some(key) = self.0.0.take(spec) {
            return Ok(key);
        }
        let (answer, key) = oneshot::channel();
        let asker = Caller::current().asker();
        self.0.0.push(lane, Job { spec, mount, asker, caller: caller.clone(), queued_at: Instant::now(), answer });
        key.await.map_err(|_| Error::internal("a key generation thread died"))?
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let stock = state.stock.keep(StockSizes::default());
        drop(state);
        self.0.changed.notify_all();
        drop(stock);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, lane: Lane, job: Job) {
        let mut state = self.lock();
        let turned_away = state.lines[lane as usize].push(job, lane.places(), lane.places_of_caller());
        measure(&state, lane);
        drop(state);
        if let Some(job) = turned_away {
            job.turn_away();
        }
        // All of them: not every thread takes this lane.
        self.changed.notify_all();
    }

    /// A key of the stock.
    fn take(&self, spec: KeySpec) -> Option<PrivateKey> {
        let mut state = self.lock();
        let was_full = state.stock.has_all(spec);
        let key = state.stock.take(spec);
        drop(state);
        // A thread that has nothing to fill sleeps until it is told. While keys of this size are missing, those that make
        // them look by themselves.
        if was_full && key.is_some() {
            self.changed.notify_all();
        }
        key
    }

    /// What a thread does next: the next job of the first of `lanes` that has one, and without jobs a key of `fills`
    /// for the stock. `None` when the pool is closed.
    fn next(&self, lanes: &[Lane], fills: &[Lane]) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((lane, job)) = state.next_job(lanes) {
                state.at_work += 1;
                return Some(Task::Answer(lane, job));
            }
            let Some(spec) = state.stock.missing(fills) else {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            let Some(pause) = self.pause(&state) else {
                state.stock.begin(spec);
                return Some(Task::Fill(spec, state.pace.abreast()));
            };
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// How long to wait before another look whether a key may be made for the stock; `None` when it may.
    fn pause(&self, state: &State) -> Option<Duration> {
        let callers_wait = state.at_work > 0 || state.lines.iter().any(|line| line.len() > 0);
        if callers_wait || state.stock.making() >= state.pace.abreast() {
            return Some(QUIET);
        }
        let too_early = QUIET.saturating_sub((self.quiet_for)());
        state.pace.pause(Instant::now()).or_else(|| Some(too_early).filter(|left| !left.is_zero()))
    }

    fn work(&self, lanes: &[Lane], fills: &[Lane], make: impl Fn(KeySpec) -> Result<PrivateKey>, rests: bool) {
        lower_priority(NICE);
        let mut lanes = lanes.to_vec();
        while let Some(task) = self.next(&lanes, fills) {
            let (started, at_work) = (Instant::now(), processor_time());
            let make = |spec| {
                catch_unwind(AssertUnwindSafe(|| make(spec)))
                    .unwrap_or_else(|_| Err(Error::internal("key generation panicked")))
            };
            let spent = || Spent { took: started.elapsed(), at_work: processor_time().saturating_sub(at_work) };
            match task {
                Task::Answer(lane, job) => {
                    // The other lanes come first next time.
                    lanes.sort_by_key(|other| *other == lane);
                    answer(lane, job, started, make);
                    self.lock().at_work -= 1;
                    if rests {
                        thread::sleep(rest(spent()));
                    }
                }
                Task::Fill(spec, abreast) => {
                    let key = make(spec);
                    self.filled(spec, key, abreast, spent());
                }
            }
        }
    }

    /// Puts a key into the stock, and says when the next one may be begun.
    fn filled(&self, spec: KeySpec, key: Result<PrivateKey>, abreast: usize, spent: Spent) {
        let mut state = self.lock();
        let more = match &key {
            Ok(_) => state.pace.done(abreast, spent, Instant::now()),
            Err(_) => {
                state.pace.failed(Instant::now());
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
            outage::keeps_failing("no key for the stock", &error);
        }
    }
}

impl State {
    /// The next job of the first of `lanes` that has one, and its lane. Jobs that the stock has a key for by now are
    /// answered on the way.
    fn next_job(&mut self, lanes: &[Lane]) -> Option<(Lane, Job)> {
        for lane in lanes {
            let job = loop {
                let Some(job) = self.lines[*lane as usize].next() else { break None };
                match self.stock.take_late(job.spec) {
                    Some(key) => {
                        note_wait(*lane, job.queued_at.elapsed());
                        // A caller that left meanwhile drops the key.
                        let _ = job.answer.send(Ok(key));
                    }
                    None => break Some(job),
                }
            };
            measure(self, *lane);
            if let Some(job) = job {
                return Some((*lane, job));
            }
        }
        None
    }
}

/// Makes the key of a job, which was begun at `started`.
fn answer(lane: Lane, job: Job, started: Instant, make: impl Fn(KeySpec) -> Result<PrivateKey>) {
    note_wait(lane, started.duration_since(job.queued_at));
    let key = make(job.spec);
    metrics::histogram!(telemetry::KEY_GENERATION_WORK_SECONDS, "lane" => lane.name()).record(started.elapsed());
    // A caller that left meanwhile drops the key.
    let _ = job.answer.send(key);
}

/// How long a caller waited in a lane until their key was begun, or came out of the stock.
fn note_wait(lane: Lane, waited: Duration) {
    metrics::histogram!(telemetry::KEY_GENERATION_WAIT_SECONDS, "lane" => lane.name()).record(waited);
}

fn measure(state: &State, lane: Lane) {
    let jobs = state.lines[lane as usize].len();
    metrics::gauge!(telemetry::KEY_GENERATION_QUEUE, "lane" => lane.name()).set(jobs as f64);
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

#[cfg(test)]
mod tests;
