//! A device that writes lines: one thread, which alone touches what is written to.
//!
//! Whatever arrived during a write leaves with the next one, so the outcomes of one commit share a write. An entry is
//! taken when the sink has taken every byte of it. Where a write has lasted longer than [`PATIENCE`] the device
//! counts as hung: whoever waits is told so, and whoever comes is, until the write ends. What waits is bounded, and
//! whoever does not fit waits for room.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::{Counter, counter, gauge, histogram};
use tokio::sync::{Notify, oneshot};

use super::device::{Device, Sink};
use super::entry::{Entry, Request};
use super::line::Form;
use super::settings::DeviceSettings;
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Longest wait for one entry, and longest time a write may last before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes that wait to be written; one entry more than that fits.
const MOST_WAITING: usize = 16 << 20;
/// How long a write is put off for each entry of the last one when that had several: where more than five of them come
/// in a millisecond they gather up to [`LONGEST_GATHER`], and where fewer come nobody waits for company. A write for
/// each pair costs a busy server a fifth more CPU than one for ten.
const GATHER: Duration = Duration::from_micros(200);
/// The longest that a write is put off.
const LONGEST_GATHER: Duration = Duration::from_millis(1);

/// A device of the configuration.
pub struct Writer {
    settings: DeviceSettings,
    form: Form,
    queue: Arc<Queue>,
    written: Counter,
    failed: Counter,
}

/// What stands between requests and the thread.
struct Queue {
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// What waited has been taken.
    room: Notify,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    waiting: Vec<Waiting>,
    /// The thread waits for work.
    idle: bool,
    /// When the write that is under way began.
    writing: Option<Instant>,
    reopen: bool,
    closed: bool,
}

/// What became of a write: everybody whose entry was in it hears the same.
type Written = Result<(), Arc<io::Error>>;

struct Waiting {
    since: Instant,
    reply: oneshot::Sender<Written>,
}

impl Writer {
    /// Starts the thread. `key` is what texts are hashed under.
    ///
    /// # Errors
    /// `Internal` when the system gives no thread.
    pub fn start(settings: DeviceSettings, key: &[u8], sink: Box<dyn Sink>) -> Result<Arc<Self>> {
        let queue = Arc::new(Queue { state: Mutex::default(), work: Condvar::new(), room: Notify::new() });
        let (name, shared) = (settings.name.clone(), Arc::clone(&queue));
        // At zero from the start, so that an alert sees the first failure.
        let count = |result: &'static str| {
            let counter = counter!(telemetry::AUDIT_ENTRIES, "device" => settings.name.clone(), "result" => result);
            counter.increment(0);
            counter
        };
        let (written, failed) = (count("written"), count("failed"));
        let thread = std::thread::Builder::new().name("signet-audit".to_owned());
        thread.spawn(move || run(&shared, sink, &name)).map_err(Error::internal)?;
        Ok(Arc::new(Self { form: settings.form(key), settings, queue, written, failed }))
    }

    /// How it was configured.
    pub fn settings(&self) -> &DeviceSettings {
        &self.settings
    }

    /// What this device writes in the place of a text.
    pub fn hash(&self, text: &str) -> String {
        self.form.mask.hash(text.as_bytes())
    }

    /// Opens what is written to anew before the next write (SIGHUP).
    pub fn reopen(&self) {
        self.queue.lock().reopen = true;
        self.queue.work.notify_one();
    }

    async fn write(&self, line: &[u8]) -> Result<()> {
        let failed = |text| Error::new(Kind::Unavailable, text);
        let end = tokio::time::Instant::now() + PATIENCE;
        let reply = loop {
            // Made before the look, so that no room made meanwhile is missed.
            let room = self.queue.room.notified();
            match self.queue.put(line)? {
                Some(reply) => break reply,
                None => tokio::time::timeout_at(end, room).await.map_err(|_| failed("too much waits to be written"))?,
            }
        };
        match tokio::time::timeout_at(end, reply).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(why))) => Err(Error::unavailable("it cannot be written to", why)),
            Ok(Err(_)) => Err(failed("its thread has ended")),
            Err(_) => Err(failed("it hangs")),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.work.notify_one();
    }
}

impl Device for Writer {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn asked(&self, request: &Request<'_>) -> Vec<u8> {
        self.form.asked(request)
    }

    fn record<'e>(&'e self, asked: &'e [u8], entry: &'e Entry<'e>) -> BoxFuture<'e, Result<()>> {
        async move {
            let written = self.write(&self.form.line(asked, entry)).await;
            let count = if written.is_ok() { &self.written } else { &self.failed };
            count.increment(1);
            written
        }
        .boxed()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when there is no room.
    fn put(&self, line: &[u8]) -> Result<Option<oneshot::Receiver<Written>>> {
        let mut state = self.lock();
        if state.writing.is_some_and(|begun| begun.elapsed() > PATIENCE) {
            return Err(Error::new(Kind::Unavailable, "it hangs"));
        }
        if state.lines.len() > MOST_WAITING {
            return Ok(None);
        }
        state.lines.extend_from_slice(line);
        let (reply, told) = oneshot::channel();
        state.waiting.push(Waiting { since: Instant::now(), reply });
        let wake = std::mem::take(&mut state.idle);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(Some(told))
    }

    /// What is to be written next, into buffers that are empty; `false` at the end.
    fn take(&self, lines: &mut Vec<u8>, waiting: &mut Vec<Waiting>, sink: &mut dyn Sink, name: &str) -> bool {
        let mut state = self.lock();
        state.writing = None;
        loop {
            if std::mem::take(&mut state.reopen) {
                // An opening may hang like a write.
                state.writing = Some(Instant::now());
                drop(state);
                if let Err(error) = sink.reopen() {
                    tracing::error!(device = name, "an audit device was not opened again: {error}");
                }
                state = self.lock();
                state.writing = None;
                continue;
            }
            if !state.waiting.is_empty() {
                break;
            }
            if state.closed {
                return false;
            }
            state.idle = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle = false;
        }
        std::mem::swap(&mut state.lines, lines);
        std::mem::swap(&mut state.waiting, waiting);
        state.writing = Some(Instant::now());
        drop(state);
        self.room.notify_waiters();
        true
    }
}

/// The thread.
fn run(queue: &Queue, mut sink: Box<dyn Sink>, name: &str) {
    let labels = || [("device", name.to_owned())];
    let (wait, work) =
        (histogram!(telemetry::AUDIT_WAIT_SECONDS, &labels()), histogram!(telemetry::AUDIT_WRITE_SECONDS, &labels()));
    let queued = gauge!(telemetry::AUDIT_QUEUE, &labels());
    let (mut lines, mut waiting) = (Vec::new(), Vec::new());
    let mut last = 0;
    loop {
        if last > 1 {
            std::thread::sleep(GATHER.saturating_mul(last).min(LONGEST_GATHER));
        }
        if !queue.take(&mut lines, &mut waiting, &mut *sink, name) {
            return;
        }
        last = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let begun = Instant::now();
        queued.set(last);
        let written = sink.write(&lines).map_err(Arc::new);
        work.record(begun.elapsed().as_secs_f64());
        for Waiting { since, reply } in waiting.drain(..) {
            wait.record(begun.saturating_duration_since(since).as_secs_f64());
            // Whoever left has no use for it.
            let _ = reply.send(written.clone());
        }
        queued.set(0);
        lines.clear();
        // A burst of large entries does not keep its room for ever.
        lines.shrink_to(MOST_WAITING / 16);
    }
}
