//! Standard error, as the logs write to it.
//!
//! A thread of its own writes. Access lines come with every request, so no worker waits for them: they are put behind each
//! other in a buffer. An event waits until its line is written, so that none is lost, but not for long: a pipe that is
//! full and not read must neither stop requests nor the end of the process. Lines that find no room are counted.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::catalogue::LOG_LINES_DROPPED;

/// Most bytes of access lines that wait.
const MAX_ACCESS_BYTES: usize = 1 << 20;
/// Most bytes of lines that wait, those of events included.
const MAX_WAITING_BYTES: usize = 2 << 20;
/// How long access lines are gathered before they are written: the thread is woken a hundred times a second at most.
const GATHER: Duration = Duration::from_millis(10);
/// How long an event waits for its line. Later events do not wait until something is written again.
const MAX_EVENT_WAIT: Duration = Duration::from_millis(500);

/// The one of this process.
pub(super) static OUTPUT: Output<std::io::Stderr> = Output::new(std::io::stderr);

/// Where lines go.
pub(super) struct Output<W> {
    waiting: Mutex<Waiting>,
    /// There are lines to write.
    come: Condvar,
    /// Lines were written.
    gone: Condvar,
    to: fn() -> W,
    thread: Once,
}

struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room since the last ones were written.
    dropped: u64,
    /// The thread has nothing to do, and must be woken.
    idle: bool,
    /// The take that the last event waits for.
    due: u64,
    /// An event waited in vain, and nothing was written since.
    stuck: bool,
    /// Times that the thread has taken the lines, and times that it has written them.
    taken: u64,
    written: u64,
}

impl<W: Write + 'static> Output<W> {
    const fn new(to: fn() -> W) -> Self {
        let waiting =
            Waiting { lines: Vec::new(), dropped: 0, idle: false, due: 0, stuck: false, taken: 0, written: 0 };
        Self { waiting: Mutex::new(waiting), come: Condvar::new(), gone: Condvar::new(), to, thread: Once::new() }
    }

    /// Writes a whole line, behind all that wait, and waits for that.
    fn write(&'static self, line: &[u8]) {
        self.start();
        let mut waiting = self.lock();
        if waiting.lines.len() + line.len() > MAX_WAITING_BYTES {
            waiting.dropped += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        // The lines that are in the buffer now are written when the next take is.
        let due = waiting.taken + 1;
        let end = Instant::now() + MAX_EVENT_WAIT;
        waiting.due = due;
        waiting.idle = false;
        self.come.notify_one();
        while waiting.written < due && !waiting.stuck {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                waiting.stuck = true;
                break;
            };
            waiting = self.gone.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes the lines that wait.
    pub(super) fn flush(&'static self) {
        self.write(&[]);
    }

    /// Has a line written soon; never waits.
    pub(super) fn push(&'static self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.lines.len() + line.len() > MAX_ACCESS_BYTES {
            waiting.dropped += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        let wake = std::mem::take(&mut waiting.idle);
        drop(waiting);
        if wake {
            self.come.notify_one();
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
            let mut waiting = self.lock();
            while waiting.lines.is_empty() && waiting.dropped == 0 && waiting.written >= waiting.due {
                waiting.idle = true;
                waiting = self.come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            waiting.idle = false;
            if waiting.written >= waiting.due {
                waiting = self.come.wait_timeout(waiting, GATHER).unwrap_or_else(PoisonError::into_inner).0;
            }
            let lines = taken(&mut waiting);
            drop(waiting);
            let mut to = (self.to)();
            // What cannot be written is not: there is nobody to tell.
            let _ = to.write_all(&lines);
            let mut waiting = self.lock();
            waiting.written = waiting.taken;
            waiting.stuck = false;
            drop(waiting);
            self.gone.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines that wait, and one that tells how many could not.
fn taken(waiting: &mut Waiting) -> Vec<u8> {
    // As much room again, so that requests seldom ask for memory.
    let next = Vec::with_capacity(waiting.lines.len());
    let mut lines = std::mem::replace(&mut waiting.lines, next);
    let dropped = std::mem::take(&mut waiting.dropped);
    waiting.taken += 1;
    if dropped > 0 {
        metrics::counter!(LOG_LINES_DROPPED).increment(dropped);
        super::line::left_out(dropped, &mut lines);
    }
    lines
}

/// What the lines of events are written through: each comes in one piece.
pub(super) struct Events;

impl Write for Events {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        OUTPUT.write(line);
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

    /// Waits while somebody holds `STUCK`, as a pipe that nobody reads.
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

    static PIPE: Output<Pipe> = Output::new(|| Pipe);

    fn written() -> String {
        String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn access_lines_wait_for_nobody_and_events_are_written_behind_them_before_they_are_over() {
        PIPE.push(b"one\n");
        PIPE.write(b"event\n");
        assert_eq!(written(), "one\nevent\n");
        PIPE.push(b"two\n");
        let started = Instant::now();
        while !written().ends_with("two\n") {
            assert!(started.elapsed() < Duration::from_secs(20), "the thread does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        let unread = STUCK.lock().unwrap();
        let line = [b'x'; 1023].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        let (started, pushed) = (Instant::now(), 3 * MAX_ACCESS_BYTES / line.len());
        for _ in 0..pushed {
            PIPE.push(&line);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "a worker waited for a pipe that nobody reads");
        // Nor does an event wait for long, and the next one not at all.
        (0..20).for_each(|_| PIPE.write(b"unread\n"));
        assert!(started.elapsed() < Duration::from_secs(5), "an event waited for a pipe that nobody reads");
        drop(unread);
        PIPE.write(b"after\n");
        while !written().ends_with("after\n") {
            assert!(started.elapsed() < Duration::from_secs(20), "the thread does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        let written = written();
        assert_eq!(written.matches("unread\n").count(), 20, "they are written later");
        let kept = written.lines().filter(|line| line.starts_with('x')).count();
        let told = written.lines().find(|line| line.contains("lines were left out")).unwrap();
        let dropped = told.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
        assert_eq!(kept + dropped, pushed, "{told}");
        assert!(kept * line.len() <= 2 * MAX_ACCESS_BYTES);
    }
}
