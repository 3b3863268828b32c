//! An audit device that writes lines.
//!
//! The entries of a worker thread are collected until the other ready tasks of that thread have run, and are then
//! written together. The worker writes them itself if there are other workers ([`register_worker`]) and the output is
//! fast ([`AuditSink::has_fast_writes`]) and idle. Otherwise, and for a while after a slow write, the device's thread
//! writes them. An entry counts as accepted once all of its bytes are written. After [`ENTRY_TIMEOUT`] a write counts
//! as hung, and entries are rejected until it ends. The queue is bounded; entries that do not fit wait. After a failed
//! write the device is down until its thread has written a test line.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::sync::{Notify, oneshot};

use super::device::{AuditDevice, AuditSink, ENTRY_TIMEOUT};
use super::entry::{AuditEntry, AuditRequest};
use super::health::{DeviceHealth, DeviceHealthTask};
use super::line::EntryFormat;
use super::settings::AuditDeviceSettings;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Maximum number of bytes in the queue. The last accepted entry may exceed it.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Maximum duration of a write by a worker; a longer one counts as slow.
const MAX_WORKER_WRITE_TIME: Duration = Duration::from_millis(10);
/// Time after a slow write during which workers leave all writes to the device's thread.
const WORKER_WRITE_PAUSE: Duration = Duration::from_secs(5);

thread_local! {
    /// `true` if other workers can handle requests while a write blocks this thread.
    static MAY_BLOCK_ON_WRITE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one of `workers` HTTP workers. If there are several, this worker performs fast writes
/// itself. Other threads leave all writes to the threads of the devices.
pub fn register_worker(workers: usize) {
    MAY_BLOCK_ON_WRITE.set(workers > 1);
}

/// A configured audit device with its own thread.
pub struct AuditWriter {
    settings: AuditDeviceSettings,
    format: Arc<EntryFormat>,
    shared: Arc<AuditWriterShared>,
}

/// The queue between requests and writing threads.
#[derive(Default)]
struct AuditQueue {
    state: Mutex<AuditQueueState>,
    work_arrived: Condvar,
    space_freed: Notify,
}

#[derive(Default)]
struct AuditQueueState {
    /// The batches that worker threads are collecting, by thread. A batch is written when its worker has run its other
    /// ready tasks.
    collected: Vec<(ThreadId, AuditBatch)>,
    /// Entries that wait for the device's thread.
    queued_batch: AuditBatch,
    /// Empty batches, reused for their capacity.
    spare: Vec<AuditBatch>,
    idle: bool,
    /// Start time of the current write. The writing thread has exclusive use of the output.
    write_started_at: Option<Instant>,
    /// Time from which workers may perform writes themselves; `None` if the output is not known to have fast writes.
    worker_writes_from: Option<Instant>,
    health: DeviceHealth,
    reopen: bool,
    closed: bool,
}

impl AuditQueueState {
    /// `true` if the current write takes too long.
    fn is_hung(&self) -> bool {
        self.write_started_at.is_some_and(|begun| begun.elapsed() > ENTRY_TIMEOUT)
    }

    /// `true` if the idle thread of the device must wake: it has a task, or, while the device is not up, it must
    /// determine the time of its next task.
    fn is_due(&self) -> bool {
        !self.queued_batch.lines.is_empty() || self.reopen || self.closed || !self.health.is_up()
    }

    fn queued_bytes(&self) -> usize {
        self.collected.iter().fold(self.queued_batch.lines.len(), |all, (_, batch)| all + batch.lines.len())
    }

    /// Removes and returns the batch that a worker thread has collected.
    fn take_collected(&mut self, thread: ThreadId) -> Option<AuditBatch> {
        let at = self.collected.iter().position(|(owner, _)| *owner == thread)?;
        Some(self.collected.swap_remove(at).1)
    }
}

/// Lines that are written together.
#[derive(Default)]
struct AuditBatch {
    lines: Vec<u8>,
    waiting: Vec<QueuedEntry>,
}

impl AuditBatch {
    /// Appends another batch, and returns the emptied one. Swaps instead of copying if possible.
    fn append_batch(&mut self, mut other: Self) -> Self {
        if self.lines.is_empty() {
            std::mem::swap(self, &mut other);
        }
        self.lines.append(&mut other.lines);
        self.waiting.append(&mut other.waiting);
        other
    }
}

/// The result of a write, shared by all of its entries.
type AuditWriteResult = Result<(), Arc<io::Error>>;

struct QueuedEntry {
    since: Instant,
    reply: oneshot::Sender<AuditWriteResult>,
    /// `true` if the device was on trial. The request possibly does not wait for such an entry, so the device itself
    /// counts the result.
    trial: bool,
}

/// The next task of the device's thread.
enum AuditWriterTask {
    Write(AuditBatch),
    Reopen,
    Probe,
    /// Log that the device accepts entries again, with the time since it failed.
    Recovered(Duration),
    End,
}

/// The request whose entry is the first of a worker thread's batch holds this guard. When the guard is dropped, even
/// because the client disconnected, the device's thread gets all entries of the batch that are not written yet.
struct BatchGuard<'w> {
    shared: &'w AuditWriterShared,
    thread: ThreadId,
}

impl BatchGuard<'_> {
    /// Writes the batch on this thread if it may write now. Otherwise dropping the guard hands the batch to the
    /// device's thread.
    fn write_or_hand_over(self) {
        if let Some(batch) = self.shared.queue.take_for_writing(self.thread) {
            self.shared.write(batch);
        }
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        self.shared.queue.hand_over(self.thread);
    }
}

impl AuditWriter {
    /// Starts the thread of a device. `key` is the HMAC key with which texts are hashed.
    ///
    /// # Errors
    /// `Internal` when the thread cannot be created.
    pub fn start(
        settings: AuditDeviceSettings,
        key: &[u8],
        sink: Box<dyn AuditSink>,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let format = Arc::new(settings.entry_format(key));
        let labels = || [("device", settings.name.clone())];
        // The counter is created at zero, so that an alert notices the first failure.
        let count = |result: &'static str| {
            let counter = counter!(telemetry::AUDIT_ENTRIES, "device" => settings.name.clone(), "result" => result);
            counter.increment(0);
            counter
        };
        let queue = AuditQueue::default();
        queue.lock().worker_writes_from = sink.has_fast_writes().then(Instant::now);
        let shared = Arc::new(AuditWriterShared {
            queue,
            output: Mutex::new(ExclusiveSink { sink, failed_at: clock.now() }),
            name: settings.name.clone(),
            format: Arc::clone(&format),
            written: count("written"),
            failed: count("failed"),
            wait_seconds: histogram!(telemetry::AUDIT_WAIT_SECONDS, &labels()),
            write_seconds: histogram!(telemetry::AUDIT_WRITE_SECONDS, &labels()),
            queue_length: gauge!(telemetry::AUDIT_QUEUE, &labels()),
            clock,
        });
        let thread = thread::Builder::new().name("signet-audit".to_owned());
        let of_thread = Arc::clone(&shared);
        thread.spawn(move || of_thread.run()).map_err(Error::internal)?;
        Ok(Arc::new(Self { settings, format, shared }))
    }

    /// The settings of the device.
    pub fn settings(&self) -> &AuditDeviceSettings {
        &self.settings
    }

    /// Returns the hash that this device writes for a text.
    pub fn hash(&self, text: &str) -> String {
        self.format.hash(text)
    }

    /// Reopens the output before the next write (SIGHUP).
    pub fn reopen(&self) {
        self.shared.queue.lock().reopen = true;
        self.shared.queue.work_arrived.notify_one();
    }

    async fn write(&self, line: &[u8]) -> Result<()> {
        let (reply, guard) = loop {
            // The future is created before the queue is checked, so that no notification is missed.
            let space_freed = self.shared.queue.space_freed.notified();
            match self.shared.enqueue(line)? {
                Some(queued) => break queued,
                None => space_freed.await,
            }
        };
        if let Some(guard) = guard {
            tokio::task::yield_now().await;
            guard.write_or_hand_over();
        }
        match reply.await {
            Ok(written) => written.map_err(|why| Error::unavailable("output error", why)),
            Err(_) => Err(Error::new(Kind::Unavailable, "the writing thread has ended")),
        }
    }
}

impl Drop for AuditWriter {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.queue.work_arrived.notify_one();
    }
}

impl AuditDevice for AuditWriter {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn render_request(&self, request: &AuditRequest<'_>) -> Vec<u8> {
        self.format.render_request(request)
    }

    fn record<'e>(&'e self, request_part: &'e [u8], entry: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>> {
        async move { self.write(&self.format.render_line(request_part, entry)).await }.boxed()
    }

    fn record_missed_entry(&self) -> bool {
        self.shared.failed.increment(1);
        // During an outage and the trial after it, the device's thread does the logging.
        self.shared.queue.lock().health.is_up()
    }

    fn is_down(&self) -> bool {
        let state = self.shared.queue.lock();
        state.health.is_down() || state.is_hung()
    }

    fn is_trusted(&self) -> bool {
        let state = self.shared.queue.lock();
        state.health.is_up() && !state.is_hung()
    }
}

impl AuditQueue {
    fn lock(&self) -> MutexGuard<'_, AuditQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the batch that a worker thread has collected to the device's thread.
    fn hand_over(&self, thread: ThreadId) {
        let mut state = self.lock();
        if let Some(batch) = state.take_collected(thread) {
            let empty = state.queued_batch.append_batch(batch);
            state.spare.push(empty);
        }
        self.wake(state);
    }

    /// Unlocks the state, and wakes the device's thread if it is idle and has something to do.
    fn wake(&self, mut state: MutexGuard<'_, AuditQueueState>) {
        let wake = state.idle && state.is_due();
        state.idle &= !wake;
        drop(state);
        if wake {
            self.work_arrived.notify_one();
        }
    }

    /// Returns the batch that a worker thread has collected, and gives this thread exclusive use of the output to write
    /// it. `None` if the thread may not write now.
    fn take_for_writing(&self, thread: ThreadId) -> Option<AuditBatch> {
        let mut state = self.lock();
        let now = Instant::now();
        let may_write = MAY_BLOCK_ON_WRITE.get() && state.worker_writes_from.is_some_and(|from| from <= now);
        if !may_write || state.write_started_at.is_some() || state.reopen || !state.health.is_up() {
            return None;
        }
        let batch = state.take_collected(thread)?;
        state.write_started_at = Some(now);
        drop(state);
        self.space_freed.notify_waiters();
        Some(batch)
    }

    /// Waits for the next task of the device's thread, with exclusive use of the output.
    fn wait_for_task(&self) -> AuditWriterTask {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let mut left = None;
            if state.write_started_at.is_none() {
                if std::mem::take(&mut state.reopen) {
                    if !state.health.is_down() {
                        state.write_started_at = Some(now);
                        return AuditWriterTask::Reopen;
                    }
                    // While the device is down, each attempt reopens the output, so it suffices to make the next
                    // attempt immediate.
                    state.health.retry_now(now);
                }
                left = match state.health.next_task(now) {
                    DeviceHealthTask::Recovered(after) => return AuditWriterTask::Recovered(after),
                    DeviceHealthTask::Attempt if !state.closed => {
                        state.write_started_at = Some(now);
                        return AuditWriterTask::Probe;
                    }
                    DeviceHealthTask::Attempt => None,
                    DeviceHealthTask::Nothing(left) => left,
                };
                if !state.queued_batch.lines.is_empty() {
                    let empty = state.spare.pop().unwrap_or_default();
                    let batch = std::mem::replace(&mut state.queued_batch, empty);
                    state.write_started_at = Some(now);
                    drop(state);
                    self.space_freed.notify_waiters();
                    return AuditWriterTask::Write(batch);
                }
                if state.closed {
                    return AuditWriterTask::End;
                }
            }
            state.idle = true;
            state = match left {
                Some(left) => self.work_arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work_arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle = false;
        }
    }

    /// Ends the exclusive use of the output. `took` is the duration of the write.
    fn end_write(&self, mut batch: AuditBatch, took: Duration, fast_writes: bool) {
        batch.lines.clear();
        // Limits the memory that the batch retains after a burst of large entries.
        batch.lines.shrink_to(MAX_QUEUED_BYTES / 16);
        let mut state = self.lock();
        let now = Instant::now();
        let from = if took > MAX_WORKER_WRITE_TIME {
            now + WORKER_WRITE_PAUSE
        } else {
            state.worker_writes_from.unwrap_or(now)
        };
        state.worker_writes_from = fast_writes.then_some(from);
        state.write_started_at = None;
        if batch.lines.capacity() > 0 {
            state.spare.push(batch);
        }
        self.wake(state);
    }

    /// Records a failed write, and moves all queued entries to `waiting`. Returns `true` if the failure must be logged.
    fn fail_pending(&self, waiting: &mut Vec<QueuedEntry>) -> bool {
        let mut state = self.lock();
        let is_new_outage = state.health.record_failure(Instant::now());
        let collected = std::mem::take(&mut state.collected);
        for mut batch in collected.into_iter().map(|(_, batch)| batch).chain([std::mem::take(&mut state.queued_batch)])
        {
            waiting.append(&mut batch.waiting);
        }
        drop(state);
        self.space_freed.notify_waiters();
        is_new_outage
    }
}

/// The output, and state that only the thread with exclusive use of the output changes.
struct ExclusiveSink {
    sink: Box<dyn AuditSink>,
    /// Time of the last failed write.
    failed_at: Time,
}

/// The state that requests share with the device's thread.
struct AuditWriterShared {
    queue: AuditQueue,
    output: Mutex<ExclusiveSink>,
    name: String,
    format: Arc<EntryFormat>,
    clock: Clock,
    written: Counter,
    failed: Counter,
    wait_seconds: Histogram,
    write_seconds: Histogram,
    queue_length: Gauge,
}

impl AuditWriterShared {
    /// Queues a line; `None` if the queue is full. If a guard is returned, the caller yields once and then calls
    /// [`BatchGuard::write_or_hand_over`].
    fn enqueue(&self, line: &[u8]) -> Result<Option<(oneshot::Receiver<AuditWriteResult>, Option<BatchGuard<'_>>)>> {
        let mut state = self.queue.lock();
        if state.health.is_down() {
            return Err(Error::new(Kind::Unavailable, "the device is down, and the last write failed"));
        }
        if state.is_hung() {
            return Err(Error::new(Kind::Unavailable, "the current write has not finished"));
        }
        if state.queued_bytes() > MAX_QUEUED_BYTES {
            return Ok(None);
        }
        let (reply, result) = oneshot::channel();
        let waiting = QueuedEntry { since: Instant::now(), reply, trial: !state.health.is_up() };
        let thread = thread::current().id();
        let known = state.collected.iter().position(|(owner, _)| *owner == thread);
        let at = known.unwrap_or_else(|| {
            let batch = state.spare.pop().unwrap_or_default();
            state.collected.push((thread, batch));
            state.collected.len() - 1
        });
        let batch = &mut state.collected[at].1;
        batch.lines.extend_from_slice(line);
        batch.waiting.push(waiting);
        drop(state);
        Ok(Some((result, known.is_none().then(|| BatchGuard { shared: self, thread }))))
    }

    fn run(&self) {
        loop {
            match self.queue.wait_for_task() {
                AuditWriterTask::Write(batch) => self.write(batch),
                AuditWriterTask::Reopen => {
                    let begun = Instant::now();
                    let mut output = self.lock_sink();
                    if let Err(error) = output.sink.reopen() {
                        tracing::error!(
                            "audit device {}: cannot be reopened, the old output stays in use: {error}",
                            self.name
                        );
                    }
                    self.end_write(&output, AuditBatch::default(), begun);
                }
                AuditWriterTask::Probe => self.probe(),
                AuditWriterTask::Recovered(after) => {
                    let seconds = after.as_secs();
                    tracing::warn!(seconds, "audit device {}: accepts entries again", self.name);
                }
                AuditWriterTask::End => return,
            }
        }
    }

    fn lock_sink(&self) -> MutexGuard<'_, ExclusiveSink> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_write(&self, output: &ExclusiveSink, batch: AuditBatch, begun: Instant) {
        self.queue.end_write(batch, begun.elapsed(), output.sink.has_fast_writes());
    }

    /// Writes a batch, and sends the result to the requests of all its entries.
    fn write(&self, mut batch: AuditBatch) {
        let begun = Instant::now();
        let mut output = self.lock_sink();
        let waiting = &mut batch.waiting;
        self.queue_length.set(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
        let written = output.sink.write(&batch.lines).map_err(Arc::new);
        self.write_seconds.record(begun.elapsed().as_secs_f64());
        if let Err(why) = &written {
            output.failed_at = self.clock.now();
            self.fail_pending(why, waiting);
        }
        self.count_results(written.is_ok(), waiting);
        for QueuedEntry { since, reply, .. } in waiting.drain(..) {
            self.wait_seconds.record(begun.saturating_duration_since(since).as_secs_f64());
            let _ = reply.send(written.clone());
        }
        self.queue_length.set(0);
        self.end_write(&output, batch, begun);
    }

    /// Handles a failed write. The entries that are queued by now fail, too: they are moved to `waiting`.
    fn fail_pending(&self, why: &io::Error, waiting: &mut Vec<QueuedEntry>) {
        let is_new_outage = self.queue.fail_pending(waiting);
        let what = format!("audit device {}: write failed: {why}", self.name);
        if is_new_outage {
            tracing::error!("{what}; retrying every second, not logged again until recovery");
        } else {
            tracing::debug!("{what}");
        }
    }

    fn probe(&self) {
        let begun = Instant::now();
        let mut output = self.lock_sink();
        let line = self.format.render_test_line(self.clock.now(), output.failed_at);
        match output.sink.reopen().and_then(|()| output.sink.write(&line)) {
            Ok(()) => self.queue.lock().health.record_success(Instant::now()),
            Err(why) => {
                self.queue.lock().health.record_failure(Instant::now());
                // Each failed attempt is counted, so that the metrics show that the outage continues, even without
                // requests.
                self.failed.increment(1);
                tracing::debug!("audit device {}: still accepts no entries: {why}", self.name);
            }
        }
        self.end_write(&output, AuditBatch::default(), begun);
    }

    /// Counts the entries of a write before their requests continue. A written entry counts if its request still waits
    /// for it, or if the device was on trial. A failed entry is counted here only if the device was on trial and the
    /// request no longer waits. A request that still waits counts its failed entry by
    /// [`AuditDevice::record_missed_entry`].
    fn count_results(&self, written: bool, waiting: &[QueuedEntry]) {
        let is_unnoticed = |waiting: &&QueuedEntry| waiting.trial && waiting.reply.is_closed();
        if written {
            self.written.increment(waiting.iter().filter(|one| one.trial || !one.reply.is_closed()).count() as u64);
        } else {
            self.failed.increment(waiting.iter().filter(is_unnoticed).count() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// A sink that sends the written lines to a channel.
    struct RecordingSink(mpsc::Sender<Vec<u8>>);

    impl AuditSink for RecordingSink {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            self.0.send(lines.to_vec()).map_err(io::Error::other)
        }
    }

    fn recording_writer() -> (Arc<AuditWriter>, mpsc::Receiver<Vec<u8>>) {
        let (sender, writes) = mpsc::channel();
        (start_writer(Box::new(RecordingSink(sender))), writes)
    }

    fn start_writer(sink: Box<dyn AuditSink>) -> Arc<AuditWriter> {
        AuditWriter::start(AuditDeviceSettings::file("file", "unused"), &[7; 32], sink, Clock::system()).unwrap()
    }

    /// A sink whose writes fail after a delay while `bad` is set.
    struct FlakySink {
        bad: Arc<AtomicBool>,
        slow: Duration,
        sender: mpsc::Sender<Vec<u8>>,
    }

    impl AuditSink for FlakySink {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            if self.bad.load(Ordering::Relaxed) {
                thread::sleep(self.slow);
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.sender.send(lines.to_vec()).map_err(io::Error::other)
        }
    }

    /// Returns a writer whose sink fails, each time after the duration `slow`.
    fn failing_writer(slow: Duration) -> (Arc<AuditWriter>, Arc<AtomicBool>, mpsc::Receiver<Vec<u8>>) {
        let (sender, writes) = mpsc::channel();
        let bad = Arc::new(AtomicBool::new(true));
        (start_writer(Box::new(FlakySink { bad: Arc::clone(&bad), slow, sender })), bad, writes)
    }

    const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn entries_of_one_event_loop_pass_are_one_write() {
        let (writer, writes) = recording_writer();
        let later = async {
            // Gives a thread that was woken earlier the time to finish.
            thread::sleep(Duration::from_millis(100));
            writer.write(b"two\n").await
        };
        let (one, two) = tokio::join!(writer.write(b"one\n"), later);
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), b"one\ntwo\n");
    }

    #[tokio::test]
    async fn long_event_loop_pass_does_not_delay_another_worker() {
        let (writer, writes) = recording_writer();
        let mut lasting = Box::pin(writer.write(b"one\n"));
        assert!(futures_util::poll!(&mut lasting).is_pending());
        let elsewhere = Arc::clone(&writer);
        let other = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(elsewhere.write(b"two\n")).is_ok()
        });
        assert!(other.join().unwrap());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), b"two\n");
        assert!(lasting.await.is_ok());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), b"one\n");
    }

    #[tokio::test]
    async fn entry_of_a_cancelled_caller_is_still_written() {
        let (writer, writes) = recording_writer();
        for line in [b"one\n", b"two\n"] {
            assert!(writer.write(line).now_or_never().is_none());
            assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), line);
        }
    }
    #[tokio::test]
    async fn failed_device_refuses_immediately_and_recovers_by_itself() {
        const FAILED_WRITE_DURATION: Duration = Duration::from_secs(2);
        let (writer, bad, writes) = failing_writer(FAILED_WRITE_DURATION);
        assert!(!writer.is_down() && writer.is_trusted());
        let during = async {
            tokio::time::sleep(FAILED_WRITE_DURATION / 5).await;
            writer.write(b"two\n").await
        };
        let begun = Instant::now();
        let (one, two) = tokio::join!(writer.write(b"one\n"), during);
        assert!(one.is_err() && two.is_err());
        assert!(
            begun.elapsed() < 2 * FAILED_WRITE_DURATION,
            "an entry that arrives during a write waits for no other write: {:?}",
            begun.elapsed()
        );
        assert!(writer.is_down() && !writer.is_trusted());
        assert!(writer.write(b"three\n").now_or_never().is_some_and(|taken| taken.is_err()));
        assert!(!writer.record_missed_entry(), "the device's thread has logged the failure");
        bad.store(false, Ordering::Relaxed);
        let test: serde_json::Value = serde_json::from_slice(&writes.recv_timeout(WRITE_TIMEOUT).unwrap()).unwrap();
        assert_eq!(test["request"]["path"], "sys/audit/test");
        while writer.is_down() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!writer.is_trusted(), "the device is on trial");
        assert!(writer.write(b"four\n").await.is_ok());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), b"four\n");
    }

    #[tokio::test]
    async fn failure_reaches_callers_that_wait_for_queue_space() {
        let (writer, _bad, _writes) = failing_writer(Duration::from_millis(300));
        let large = vec![b'x'; MAX_QUEUED_BYTES + 1];
        let during = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            tokio::join!(writer.write(&large), writer.write(b"two\n"))
        };
        let (one, (two, three)) = tokio::join!(writer.write(b"one\n"), during);
        assert!(one.is_err() && two.is_err() && three.is_err());
    }

    #[tokio::test]
    async fn reopened_device_is_retried_immediately() {
        // The device's thread also tests the output every second. On a busy machine one of the three attempts may be
        // late.
        let mut took = Vec::new();
        for _ in 0..3 {
            let (writer, bad, writes) = failing_writer(Duration::ZERO);
            assert!(writer.write(b"one\n").await.is_err());
            bad.store(false, Ordering::Relaxed);
            let begun = Instant::now();
            writer.reopen();
            writes.recv_timeout(WRITE_TIMEOUT).unwrap();
            took.push(begun.elapsed());
        }
        assert!(took.iter().any(|took| *took < Duration::from_millis(900)), "{took:?}");
    }

    /// A sink that sends the id of the writing thread to a channel. The next write lasts `takes`.
    struct FastSink {
        sender: mpsc::Sender<ThreadId>,
        takes: Arc<Mutex<Duration>>,
        fast_writes: bool,
    }

    impl AuditSink for FastSink {
        fn write(&mut self, _: &[u8]) -> io::Result<()> {
            thread::sleep(std::mem::take(&mut *self.takes.lock().unwrap()));
            self.sender.send(thread::current().id()).map_err(io::Error::other)
        }

        fn has_fast_writes(&self) -> bool {
            self.fast_writes
        }
    }

    fn writer_with_fast_sink(fast_writes: bool) -> (Arc<AuditWriter>, Arc<Mutex<Duration>>, mpsc::Receiver<ThreadId>) {
        let (sender, writes) = mpsc::channel();
        let takes = Arc::default();
        let sink = Box::new(FastSink { sender, takes: Arc::clone(&takes), fast_writes });
        let settings = AuditDeviceSettings::file("file", "unused");
        (AuditWriter::start(settings, &[7; 32], sink, Clock::system()).unwrap(), takes, writes)
    }

    #[tokio::test]
    async fn fast_writes_run_on_the_worker_and_others_on_the_thread() {
        for (workers, has_fast_writes, here) in [(0, true, false), (2, true, true), (1, true, false), (2, false, false)]
        {
            register_worker(workers);
            let (writer, _takes, writes) = writer_with_fast_sink(has_fast_writes);
            let (one, two) = tokio::join!(writer.write(b"one\n"), writer.write(b"two\n"));
            assert!(one.is_ok() && two.is_ok());
            let by = writes.recv_timeout(WRITE_TIMEOUT).unwrap();
            assert_eq!(by == thread::current().id(), here, "{workers} workers, fast: {has_fast_writes}");
            assert!(writes.try_recv().is_err(), "one pass is one write");
        }
    }

    #[tokio::test]
    async fn slow_write_moves_writes_to_the_thread_for_a_while() {
        register_worker(2);
        let (writer, takes, writes) = writer_with_fast_sink(true);
        *takes.lock().unwrap() = 2 * MAX_WORKER_WRITE_TIME;
        assert!(writer.write(b"one\n").await.is_ok());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), thread::current().id());
        assert!(writer.write(b"two\n").await.is_ok());
        assert_ne!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), thread::current().id());
        // The thread sends results before it releases the output.
        while writer.shared.queue.lock().write_started_at.is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        writer.shared.queue.lock().worker_writes_from = Some(Instant::now());
        assert!(writer.write(b"three\n").await.is_ok());
        assert_eq!(writes.recv_timeout(WRITE_TIMEOUT).unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn write_by_one_worker_does_not_delay_another() {
        const LONG_WRITE_DURATION: Duration = Duration::from_secs(2);
        register_worker(2);
        let (writer, takes, writes) = writer_with_fast_sink(true);
        *takes.lock().unwrap() = LONG_WRITE_DURATION;
        let elsewhere = Arc::clone(&writer);
        let other = thread::spawn(move || {
            register_worker(2);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(elsewhere.write(b"one\n")).is_ok()
        });
        while writer.shared.queue.lock().write_started_at.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        let mut waits = Box::pin(writer.write(b"two\n"));
        while futures_util::poll!(&mut waits).is_pending() && begun.elapsed() < LONG_WRITE_DURATION / 3 {
            tokio::task::yield_now().await;
        }
        assert!(begun.elapsed() < LONG_WRITE_DURATION / 2, "the second worker was delayed: {:?}", begun.elapsed());
        assert!(waits.await.is_ok() && other.join().unwrap());
        let first = writes.recv_timeout(WRITE_TIMEOUT).unwrap();
        let second = writes.recv_timeout(WRITE_TIMEOUT).unwrap();
        assert!(first != second && second != thread::current().id(), "the device's thread writes the second entry");
    }

    #[tokio::test]
    async fn failed_write_by_a_worker_takes_the_device_down() {
        struct Broken(Arc<AtomicBool>);
        impl AuditSink for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<()> {
                if self.0.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            }

            fn has_fast_writes(&self) -> bool {
                true
            }
        }
        register_worker(2);
        let full = Arc::new(AtomicBool::new(true));
        let writer = start_writer(Box::new(Broken(Arc::clone(&full))));
        let (one, two) = tokio::join!(writer.write(b"one\n"), writer.write(b"two\n"));
        assert!(one.is_err() && two.is_err() && writer.is_down());
        full.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        while writer.is_down() {
            assert!(begun.elapsed() < WRITE_TIMEOUT, "the device's thread retries by itself");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(writer.write(b"three\n").await.is_ok());
    }
}
