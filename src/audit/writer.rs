//! A device that writes lines: one thread, which alone touches what is written to.
//!
//! The thread is called when the turn of the worker that an entry came from is over: before that nobody there could go
//! on with it, and what else the turn has to write goes along. Whatever arrived during a write leaves with the next one,
//! so the outcomes of one commit share a write. An entry is taken when the sink has taken every byte of it. Where a
//! write has lasted longer than [`PATIENCE`] the device counts as hung: whoever waits is told so, and whoever comes is,
//! until the write ends. What waits is bounded, and whoever does not fit waits for room. After a write that failed the
//! device is down: whoever comes is told so at once, and the thread tries it by itself, with a line of its own, until it
//! takes that.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::{Counter, counter, gauge, histogram};
use tokio::sync::{Notify, oneshot};

use super::device::{Device, PATIENCE, Sink};
use super::entry::{Entry, Request};
use super::line::Form;
use super::settings::DeviceSettings;
use super::standing::{Due, Standing};
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Most bytes that wait to be written; one entry more than that fits.
const MOST_WAITING: usize = 16 << 20;

/// A device of the configuration.
pub struct Writer {
    settings: DeviceSettings,
    form: Arc<Form>,
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
    standing: Standing,
    reopen: bool,
    closed: bool,
}

impl State {
    /// Nobody knows when the write will end.
    fn is_hung(&self) -> bool {
        self.writing.is_some_and(|begun| begun.elapsed() > PATIENCE)
    }
}

/// What became of a write: everybody whose entry was in it hears the same.
type Written = Result<(), Arc<io::Error>>;

struct Waiting {
    since: Instant,
    reply: oneshot::Sender<Written>,
    /// Perhaps nobody waits: then nobody else counts it.
    trial: bool,
}

/// What the thread is to do.
enum Task {
    Write,
    Reopen,
    /// Whether the device takes something.
    Try,
    /// It takes entries again after so long.
    Back(Duration),
    End,
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
    pub fn start(settings: DeviceSettings, key: &[u8], sink: Box<dyn Sink>, clock: Clock) -> Result<Arc<Self>> {
        let queue = Arc::new(Queue { state: Mutex::default(), work: Condvar::new(), room: Notify::new() });
        let form = Arc::new(settings.form(key));
        // At zero from the start, so that an alert sees the first failure.
        let count = |result: &'static str| {
            let counter = counter!(telemetry::AUDIT_ENTRIES, "device" => settings.name.clone(), "result" => result);
            counter.increment(0);
            counter
        };
        let (written, failed) = (count("written"), count("failed"));
        let thread = thread::Builder::new().name("signet-audit".to_owned());
        let work = Work {
            queue: Arc::clone(&queue),
            sink,
            name: settings.name.clone(),
            form: Arc::clone(&form),
            clock,
            written,
            failed: failed.clone(),
        };
        thread.spawn(move || work.run()).map_err(Error::internal)?;
        Ok(Arc::new(Self { form, settings, queue, failed }))
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

    fn missed(&self) -> bool {
        self.failed.increment(1);
        !self.queue.lock().standing.is_down()
    }

    fn is_down(&self) -> bool {
        let state = self.queue.lock();
        state.standing.is_down() || state.is_hung()
    }

    fn is_trusted(&self) -> bool {
        let state = self.queue.lock();
        state.standing.is_up() && !state.is_hung()
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
        if state.standing.is_down() {
            return Err(Error::new(Kind::Unavailable, "it is down"));
        }
        if state.is_hung() {
            return Err(Error::new(Kind::Unavailable, "it hangs"));
        }
        if state.lines.len() > MOST_WAITING {
            return Ok(None);
        }
        state.lines.extend_from_slice(line);
        let (reply, told) = oneshot::channel();
        let trial = !state.standing.is_up();
        state.waiting.push(Waiting { since: Instant::now(), reply, trial });
        let of = thread::current().id();
        let first = !state.calling.contains(&of);
        if first {
            state.calling.push(of);
        }
        drop(state);
        Ok(Some((told, first.then(|| Turn { queue: self, of }))))
    }

    /// What is to be done next; what is to be written, into buffers that are empty.
    fn next(&self, lines: &mut Vec<u8>, waiting: &mut Vec<Waiting>) -> Task {
        let mut state = self.lock();
        state.writing = None;
        let task = loop {
            let now = Instant::now();
            if std::mem::take(&mut state.reopen) {
                if !state.standing.is_down() {
                    break Task::Reopen;
                }
                // An attempt opens it, too.
                state.standing.hurry(now);
            }
            let left = match state.standing.due(now) {
                Due::Back(after) => return Task::Back(after),
                Due::Attempt if !state.closed => break Task::Try,
                Due::Attempt => None,
                Due::Nothing(left) => left,
            };
            if std::mem::take(&mut state.called) && !state.waiting.is_empty() {
                std::mem::swap(&mut state.lines, lines);
                std::mem::swap(&mut state.waiting, waiting);
                break Task::Write;
            }
            if state.closed {
                return Task::End;
            }
            state.idle = true;
            state = match left {
                Some(left) => self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle = false;
        };
        // An opening may hang like a write.
        state.writing = Some(Instant::now());
        drop(state);
        if matches!(task, Task::Write) {
            self.room.notify_waiters();
        }
        task
    }

    /// After a write that failed, with all who wait. Whether that is news.
    fn fell(&self, waiting: &mut Vec<Waiting>) -> bool {
        let mut state = self.lock();
        let is_news = state.standing.failed(Instant::now());
        state.lines.clear();
        waiting.append(&mut state.waiting);
        drop(state);
        self.room.notify_waiters();
        is_news
    }
}

/// The thread, and what it has.
struct Work {
    queue: Arc<Queue>,
    sink: Box<dyn Sink>,
    name: String,
    form: Arc<Form>,
    clock: Clock,
    written: Counter,
    failed: Counter,
}

impl Work {
    fn run(mut self) {
        let labels = || [("device", self.name.clone())];
        let wait = histogram!(telemetry::AUDIT_WAIT_SECONDS, &labels());
        let work = histogram!(telemetry::AUDIT_WRITE_SECONDS, &labels());
        let queued = gauge!(telemetry::AUDIT_QUEUE, &labels());
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        let mut since = self.clock.now();
        loop {
            match self.queue.next(&mut lines, &mut waiting) {
                Task::End => return,
                Task::Reopen => {
                    if let Err(error) = self.sink.reopen() {
                        tracing::error!(device = self.name, "an audit device was not opened again: {error}");
                    }
                    continue;
                }
                Task::Try => {
                    self.attempt(since);
                    continue;
                }
                Task::Back(after) => {
                    let seconds = after.as_secs();
                    tracing::warn!(seconds, "audit device {}: it takes entries again", self.name);
                    continue;
                }
                Task::Write => {}
            }
            let begun = Instant::now();
            queued.set(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
            let written = self.sink.write(&lines).map_err(Arc::new);
            work.record(begun.elapsed().as_secs_f64());
            if let Err(why) = &written {
                since = self.clock.now();
                self.fell(why, &mut waiting);
            }
            self.count(written.is_ok(), &waiting);
            for Waiting { since, reply, .. } in waiting.drain(..) {
                wait.record(begun.saturating_duration_since(since).as_secs_f64());
                let _ = reply.send(written.clone());
            }
            queued.set(0);
            lines.clear();
            // A burst of large entries does not keep its room for ever.
            lines.shrink_to(MOST_WAITING / 16);
        }
    }

    /// After a write that failed: of what came meanwhile nothing is written either.
    fn fell(&self, why: &io::Error, waiting: &mut Vec<Waiting>) {
        let is_news = self.queue.fell(waiting);
        let what = format!("audit device {}: an entry was not taken: {why}", self.name);
        if is_news {
            tracing::error!("{what}; it is tried about each second, and this is not said again until it is over");
        } else {
            tracing::debug!("{what}");
        }
    }

    /// Tries a device that took no entry since then.
    fn attempt(&mut self, since: Time) {
        let line = self.form.test(self.clock.now(), since);
        match self.sink.reopen().and_then(|()| self.sink.write(&line)) {
            Ok(()) => self.queue.lock().standing.took(Instant::now()),
            Err(why) => {
                self.queue.lock().standing.failed(Instant::now());
                // Whoever watches sees that it goes on, also where nobody asks for anything meanwhile.
                self.failed.increment(1);
                tracing::debug!("audit device {}: it still takes nothing: {why}", self.name);
            }
        }
    }

    /// Before anybody goes on. Whoever left has no use for an entry, but for one that nobody waited for: that counts.
    /// What failed counts whoever is told of it.
    fn count(&self, written: bool, waiting: &[Waiting]) {
        let alone = |waiting: &&Waiting| waiting.trial && waiting.reply.is_closed();
        if written {
            self.written.increment(waiting.iter().filter(|one| one.trial || !one.reply.is_closed()).count() as u64);
        } else {
            self.failed.increment(waiting.iter().filter(alone).count() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// Tells what each write was.
    struct Told(mpsc::Sender<Vec<u8>>);

    impl Sink for Told {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            self.0.send(lines.to_vec()).map_err(io::Error::other)
        }
    }

    fn writer() -> (Arc<Writer>, mpsc::Receiver<Vec<u8>>) {
        let (told, writes) = mpsc::channel();
        (start(Box::new(Told(told))), writes)
    }

    fn start(sink: Box<dyn Sink>) -> Arc<Writer> {
        Writer::start(DeviceSettings::file("file", "unused"), &[7; 32], sink, Clock::system()).unwrap()
    }

    /// Takes nothing while it is bad, and that slowly.
    struct Moody {
        bad: Arc<AtomicBool>,
        slow: Duration,
        told: mpsc::Sender<Vec<u8>>,
    }

    impl Sink for Moody {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            if self.bad.load(Ordering::Relaxed) {
                thread::sleep(self.slow);
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.told.send(lines.to_vec()).map_err(io::Error::other)
        }
    }

    /// One that is bad, and takes so long to say so.
    fn bad(slow: Duration) -> (Arc<Writer>, Arc<AtomicBool>, mpsc::Receiver<Vec<u8>>) {
        let (told, writes) = mpsc::channel();
        let bad = Arc::new(AtomicBool::new(true));
        (start(Box::new(Moody { bad: Arc::clone(&bad), slow, told })), bad, writes)
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
    #[tokio::test]
    async fn after_a_failure_whoever_comes_is_refused_at_once_and_the_device_is_back_by_itself() {
        const SLOW: Duration = Duration::from_millis(500);
        let (writer, bad, writes) = bad(SLOW);
        assert!(!writer.is_down() && writer.is_trusted());
        let during = async {
            tokio::time::sleep(SLOW / 5).await;
            writer.write(b"two\n").await
        };
        let begun = Instant::now();
        let (one, two) = tokio::join!(writer.write(b"one\n"), during);
        assert!(one.is_err() && two.is_err());
        assert!(begun.elapsed() < 2 * SLOW, "who came during the write waits for no other one: {:?}", begun.elapsed());
        assert!(writer.is_down() && !writer.is_trusted());
        assert!(writer.write(b"three\n").now_or_never().is_some_and(|taken| taken.is_err()));
        assert!(!writer.missed(), "the thread has told it");
        bad.store(false, Ordering::Relaxed);
        let test: serde_json::Value = serde_json::from_slice(&writes.recv_timeout(SOON).unwrap()).unwrap();
        assert_eq!(test["request"]["path"], "sys/audit/test");
        while writer.is_down() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!writer.is_trusted(), "it is on trial");
        assert!(writer.write(b"four\n").await.is_ok());
        assert_eq!(writes.recv_timeout(SOON).unwrap(), b"four\n");
    }

    #[tokio::test]
    async fn whoever_waits_for_room_hears_of_a_failure() {
        let (writer, _bad, _writes) = bad(Duration::from_millis(300));
        let large = vec![b'x'; MOST_WAITING + 1];
        let during = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            tokio::join!(writer.write(&large), writer.write(b"two\n"))
        };
        let (one, (two, three)) = tokio::join!(writer.write(b"one\n"), during);
        assert!(one.is_err() && two.is_err() && three.is_err());
    }

    #[tokio::test]
    async fn one_that_is_opened_anew_is_tried_at_once() {
        let (writer, bad, writes) = bad(Duration::ZERO);
        assert!(writer.write(b"one\n").await.is_err());
        bad.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        writer.reopen();
        writes.recv_timeout(SOON).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    }
}
