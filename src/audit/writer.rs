//! A device that writes lines: one thread, which alone touches what is written to.
//!
//! The thread is called when the turn of the worker that an entry came from is over: before that nobody there could go
//! on with it, and what else the turn has to write goes along. Whatever arrived during a write leaves with the next one,
//! so the outcomes of one commit share a write. An entry is taken when the sink has taken every byte of it. Where a
//! write has lasted longer than [`PATIENCE`] the device counts as hung: whoever waits is told so, and whoever comes is,
//! until the write ends. What waits is bounded, and whoever does not fit waits for room.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::{Counter, counter, gauge, histogram};
use tokio::sync::{Notify, oneshot};

use super::device::{Device, PATIENCE, Sink};
use super::entry::{Entry, Request};
use super::line::Form;
use super::settings::DeviceSettings;
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Most bytes that wait to be written; one entry more than that fits.
const MOST_WAITING: usize = 16 << 20;

/// A device of the configuration.
pub struct Writer {
    settings: DeviceSettings,
    form: Form,
    queue: Arc<Queue>,
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
    /// Threads in whose turn something came, and which are to call for it.
    calling: Vec<ThreadId>,
    /// There is something whose turn is over.
    called: bool,
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

/// The first entry of a turn: when this is dropped the thread is called, once for all of them. Whoever leaves calls too.
struct Turn<'q> {
    queue: &'q Queue,
    of: ThreadId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.calling.retain(|calling| *calling != self.of);
        state.called = true;
        self.queue.wake(state);
    }
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
        let thread = thread::Builder::new().name("signet-audit".to_owned());
        thread.spawn(move || run(&shared, sink, &name, &written)).map_err(Error::internal)?;
        Ok(Arc::new(Self { form: settings.form(key), settings, queue, failed }))
    }

    /// How it was configured.
    pub fn settings(&self) -> &DeviceSettings {
        &self.settings
    }

    /// What this device writes in the place of a text.
    pub fn hash(&self, text: &str) -> String {
        self.form.hash(text)
    }

    /// Opens what is written to anew before the next write (SIGHUP).
    pub fn reopen(&self) {
        self.queue.lock().reopen = true;
        self.queue.work.notify_one();
    }

    async fn write(&self, line: &[u8]) -> Result<()> {
        let (reply, turn) = loop {
            // Made before the look, so that no room made meanwhile is missed.
            let room = self.queue.room.notified();
            match self.queue.put(line)? {
                Some(put) => break put,
                None => room.await,
            }
        };
        if let Some(turn) = turn {
            tokio::task::yield_now().await;
            drop(turn);
        }
        match reply.await {
            Ok(written) => written.map_err(|why| Error::unavailable("it cannot be written to", why)),
            Err(_) => Err(Error::new(Kind::Unavailable, "its thread has ended")),
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
        async move { self.write(&self.form.line(asked, entry)).await }.boxed()
    }

    fn missed(&self) {
        self.failed.increment(1);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the state; the thread, if it waits, looks at it.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let wake = std::mem::take(&mut state.idle);
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// `None` when there is no room. A turn that begins with this entry is to be ended soon.
    fn put(&self, line: &[u8]) -> Result<Option<(oneshot::Receiver<Written>, Option<Turn<'_>>)>> {
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
        let of = thread::current().id();
        let first = !state.calling.contains(&of);
        if first {
            state.calling.push(of);
        }
        drop(state);
        Ok(Some((told, first.then(|| Turn { queue: self, of }))))
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
            if std::mem::take(&mut state.called) && !state.waiting.is_empty() {
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
fn run(queue: &Queue, mut sink: Box<dyn Sink>, name: &str, taken: &Counter) {
    let labels = || [("device", name.to_owned())];
    let (wait, work) =
        (histogram!(telemetry::AUDIT_WAIT_SECONDS, &labels()), histogram!(telemetry::AUDIT_WRITE_SECONDS, &labels()));
    let queued = gauge!(telemetry::AUDIT_QUEUE, &labels());
    let (mut lines, mut waiting) = (Vec::new(), Vec::new());
    loop {
        if !queue.take(&mut lines, &mut waiting, &mut *sink, name) {
            return;
        }
        let begun = Instant::now();
        queued.set(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
        let written = sink.write(&lines).map_err(Arc::new);
        work.record(begun.elapsed().as_secs_f64());
        if written.is_ok() {
            // Before anybody goes on; whoever left has no use for it.
            taken.increment(waiting.iter().filter(|waiting| !waiting.reply.is_closed()).count() as u64);
        }
        for Waiting { since, reply } in waiting.drain(..) {
            wait.record(begun.saturating_duration_since(since).as_secs_f64());
            let _ = reply.send(written.clone());
        }
        queued.set(0);
        lines.clear();
        // A burst of large entries does not keep its room for ever.
        lines.shrink_to(MOST_WAITING / 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Tells what each write was.
    struct Told(mpsc::Sender<Vec<u8>>);

    impl Sink for Told {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            self.0.send(lines.to_vec()).map_err(io::Error::other)
        }
    }

    fn writer() -> (Arc<Writer>, mpsc::Receiver<Vec<u8>>) {
        let (told, writes) = mpsc::channel();
        (Writer::start(DeviceSettings::file("file", "unused"), &[7; 32], Box::new(Told(told))).unwrap(), writes)
    }

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn what_comes_in_one_turn_is_one_write() {
        let (writer, writes) = writer();
        let later = async {
            // Long enough for a thread that was called already.
            thread::sleep(Duration::from_millis(100));
            writer.write(b"two\n").await
        };
        let (one, two) = tokio::join!(writer.write(b"one\n"), later);
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(writes.recv_timeout(SOON).unwrap(), b"one\ntwo\n");
    }

    #[tokio::test]
    async fn a_turn_that_lasts_holds_nobody_of_another_worker() {
        let (writer, writes) = writer();
        let mut lasting = Box::pin(writer.write(b"one\n"));
        assert!(futures_util::poll!(&mut lasting).is_pending());
        let elsewhere = Arc::clone(&writer);
        let other = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(elsewhere.write(b"two\n")).is_ok()
        });
        assert!(other.join().unwrap());
        assert_eq!(writes.recv_timeout(SOON).unwrap(), b"one\ntwo\n");
        assert!(lasting.await.is_ok());
    }

    #[tokio::test]
    async fn whoever_leaves_in_its_turn_leaves_its_line_and_the_next_turn_is_its_own() {
        let (writer, writes) = writer();
        for line in [b"one\n", b"two\n"] {
            assert!(writer.write(line).now_or_never().is_none());
            assert_eq!(writes.recv_timeout(SOON).unwrap(), line);
        }
    }
}
