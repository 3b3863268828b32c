//! Standard error as the output of all logs.
//!
//! One thread does the writing. Access log lines come with every request, so they are only buffered. The thread that
//! logs any other event waits until its line is written, so that no such line is lost. It waits only briefly, because a
//! full pipe without a reader must not block requests or the end of the process. Lines that do not fit into the buffer
//! are dropped and counted.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::catalogue::LOG_LINES_DROPPED;

/// An access log line that would fill the buffer beyond this number of bytes is dropped.
const ACCESS_LINE_BUFFER_BYTES: usize = 1 << 20;
/// An event that would fill the buffer beyond this number of bytes is dropped.
const EVENT_BUFFER_BYTES: usize = 2 << 20;
/// Time for which access log lines are collected, so that the thread wakes at most a hundred times a second.
const COLLECTION_TIME: Duration = Duration::from_millis(10);
/// Maximum time for which the thread of an event waits until its line is written. If this time is exceeded, later
/// events return immediately until the output works again.
const MAX_EVENT_WAIT: Duration = Duration::from_millis(500);

pub(super) static LOG_OUTPUT: LogOutput<std::io::Stderr> = LogOutput::new(std::io::stderr);

/// A buffered output with its own thread.
pub(super) struct LogOutput<W> {
    state: Mutex<LogOutputState>,
    work_arrived: Condvar,
    lines_written: Condvar,
    open: fn() -> W,
    thread: Once,
}

struct LogOutputState {
    lines: Vec<u8>,
    /// Lines dropped since the last write.
    dropped: u64,
    /// `true` while the writing thread waits to be woken.
    idle: bool,
    /// Value of `takes_written` at which the line of the latest event is written.
    awaited_takes: u64,
    /// `true` if an event timed out and nothing has been written since.
    stuck: bool,
    /// Number of times that the thread has taken the buffered lines; `takes_written` is how many of these takes it has
    /// written.
    takes_begun: u64,
    takes_written: u64,
}

impl<W: Write + 'static> LogOutput<W> {
    const fn new(open: fn() -> W) -> Self {
        let state = LogOutputState {
            lines: Vec::new(),
            dropped: 0,
            idle: false,
            awaited_takes: 0,
            stuck: false,
            takes_begun: 0,
            takes_written: 0,
        };
        Self {
            state: Mutex::new(state),
            work_arrived: Condvar::new(),
            lines_written: Condvar::new(),
            open,
            thread: Once::new(),
        }
    }

    /// Appends a line to the buffer and waits until it is written.
    fn write(&'static self, line: &[u8]) {
        self.start();
        let mut state = self.lock();
        if state.lines.len() + line.len() > EVENT_BUFFER_BYTES {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        // The thread writes the buffered lines with its next take.
        let due = state.takes_begun + 1;
        let end = Instant::now() + MAX_EVENT_WAIT;
        state.awaited_takes = due;
        state.idle = false;
        self.work_arrived.notify_one();
        while state.takes_written < due && !state.stuck {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                state.stuck = true;
                break;
            };
            state = self.lines_written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn flush(&'static self) {
        self.write(&[]);
    }

    /// Buffers a line; never waits.
    pub(super) fn push_access_line(&'static self, line: &[u8]) {
        let mut state = self.lock();
        if state.lines.len() + line.len() > ACCESS_LINE_BUFFER_BYTES {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        let wake = std::mem::take(&mut state.idle);
        drop(state);
        if wake {
            self.work_arrived.notify_one();
        }
        self.start();
    }

    fn start(&'static self) {
        self.thread.call_once(|| {
            // Without a thread nothing is written, and events do not wait.
            if std::thread::Builder::new().name("signet-log".to_owned()).spawn(|| self.run()).is_err() {
                self.lock().stuck = true;
            }
        });
    }

    fn run(&self) {
        loop {
            let mut state = self.lock();
            while state.lines.is_empty() && state.dropped == 0 && state.takes_written >= state.awaited_takes {
                state.idle = true;
                state = self.work_arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle = false;
            if state.takes_written >= state.awaited_takes {
                state =
                    self.work_arrived.wait_timeout(state, COLLECTION_TIME).unwrap_or_else(PoisonError::into_inner).0;
            }
            let lines = take_lines(&mut state);
            drop(state);
            let mut output = (self.open)();
            // A failed write cannot be reported anywhere.
            let _ = output.write_all(&lines);
            let mut state = self.lock();
            state.takes_written = state.takes_begun;
            state.stuck = false;
            drop(state);
            self.lines_written.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogOutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the buffered lines, with a warning about dropped ones.
fn take_lines(state: &mut LogOutputState) -> Vec<u8> {
    // The new buffer has the size of the old one, so that requests rarely allocate memory.
    let next = Vec::with_capacity(state.lines.len());
    let mut lines = std::mem::replace(&mut state.lines, next);
    let dropped = std::mem::take(&mut state.dropped);
    state.takes_begun += 1;
    if dropped > 0 {
        metrics::counter!(LOG_LINES_DROPPED).increment(dropped);
        super::line::write_dropped_warning(dropped, &mut lines);
    }
    lines
}

/// The writer for events. The logging library passes each event as a whole.
pub(super) struct EventWriter;

impl Write for EventWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        LOG_OUTPUT.write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static STUCK: Mutex<()> = Mutex::new(());

    /// An output that blocks while `STUCK` is locked, like a pipe that is not read.
    struct Pipe;

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _unread = STUCK.lock().unwrap();
            WRITTEN.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    static PIPE: LogOutput<Pipe> = LogOutput::new(|| Pipe);

    fn written() -> String {
        String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn access_log_never_blocks_and_events_keep_their_order() {
        PIPE.push_access_line(b"one\n");
        PIPE.write(b"event\n");
        assert_eq!(written(), "one\nevent\n");
        PIPE.push_access_line(b"two\n");
        let started = Instant::now();
        while !written().ends_with("two\n") {
            assert!(started.elapsed() < Duration::from_secs(20), "the thread does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        let unread = STUCK.lock().unwrap();
        let line = [b'x'; 1023].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        let started = Instant::now();
        let pushed = 3 * ACCESS_LINE_BUFFER_BYTES / line.len();
        for _ in 0..pushed {
            PIPE.push_access_line(&line);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "a worker waited for a pipe without a reader");
        // Only the first of these events waits, and only briefly; the others do not wait at all.
        (0..20).for_each(|_| PIPE.write(b"unread\n"));
        assert!(started.elapsed() < Duration::from_secs(5), "an event waited for a pipe without a reader");
        drop(unread);
        PIPE.write(b"after\n");
        while !written().ends_with("after\n") {
            assert!(started.elapsed() < Duration::from_secs(20), "the thread does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        let written = written();
        assert_eq!(written.matches("unread\n").count(), 20, "events that timed out are written later");
        let kept = written.lines().filter(|line| line.starts_with('x')).count();
        let warning = written.lines().find(|line| line.contains("log lines were dropped")).unwrap();
        let dropped = warning.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
        assert_eq!(kept + dropped, pushed, "{warning}");
        assert!(kept * line.len() <= 2 * ACCESS_LINE_BUFFER_BYTES);
    }
}
