//! Standard error, as the logs write to it.
//!
//! Lines of events are written where they happen, whole, before the event is over: none is lost. Access lines come
//! with every request, so no worker may wait for whoever reads them: they are put behind each other in a buffer, which
//! a thread of its own writes out. Lines of events write it out first, so that all stand in their order. What the buffer
//! has no room for, because standard error is not read, is left out and counted.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use super::catalogue::LOG_LINES_DROPPED;

/// Most octets of access lines that wait.
const ROOM: usize = 1 << 20;
/// How long lines are gathered before they are written: a thread is woken a hundred times a second at most.
const GATHER: Duration = Duration::from_millis(10);

/// The one of this process.
pub(super) static OUTPUT: Output<std::io::Stderr> = Output::new(std::io::stderr);

/// Where lines go.
pub(super) struct Output<W> {
    waiting: Mutex<Waiting>,
    come: Condvar,
    /// Held while something is written, so that lines stay whole and in order.
    writing: Mutex<()>,
    to: fn() -> W,
    thread: Once,
}

struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room since the last ones were written.
    dropped: u64,
    /// The thread has nothing to do, and must be woken.
    idle: bool,
}

impl<W: Write + 'static> Output<W> {
    const fn new(to: fn() -> W) -> Self {
        Self {
            waiting: Mutex::new(Waiting { lines: Vec::new(), dropped: 0, idle: false }),
            come: Condvar::new(),
            writing: Mutex::new(()),
            to,
            thread: Once::new(),
        }
    }

    /// Writes a whole line, behind all that wait. What cannot be written is not: there is nobody to tell.
    fn write(&self, line: &[u8]) {
        let _in_turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut to = (self.to)();
        let _ = to.write_all(&self.taken());
        let _ = to.write_all(line);
    }

    /// Writes the lines that wait.
    pub(super) fn flush(&self) {
        self.write(&[]);
    }

    /// Has a line written soon; never waits.
    pub(super) fn push(&'static self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.lines.len() + line.len() > ROOM {
            waiting.dropped += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        let wake = std::mem::take(&mut waiting.idle);
        drop(waiting);
        if wake {
            self.come.notify_one();
        }
        self.thread.call_once(|| {
            // Without a thread the lines are written with the next event, or at the end.
            let _ = std::thread::Builder::new().name("signet-log".to_owned()).spawn(|| self.run());
        });
    }

    fn run(&self) {
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() && waiting.dropped == 0 {
                waiting.idle = true;
                waiting = self.come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            waiting.idle = false;
            drop(waiting);
            std::thread::sleep(GATHER);
            self.flush();
        }
    }

    /// The lines that wait, and one that tells how many could not.
    fn taken(&self) -> Vec<u8> {
        let (mut lines, dropped) = {
            let mut waiting = self.lock();
            // As much room again, so that requests seldom ask for memory.
            let next = Vec::with_capacity(waiting.lines.len());
            (std::mem::replace(&mut waiting.lines, next), std::mem::take(&mut waiting.dropped))
        };
        if dropped > 0 {
            metrics::counter!(LOG_LINES_DROPPED).increment(dropped);
            super::line::left_out(dropped, &mut lines);
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let (started, pushed) = (Instant::now(), 3 * ROOM / line.len());
        for _ in 0..pushed {
            PIPE.push(&line);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "a worker waited for a pipe that nobody reads");
        drop(unread);
        PIPE.write(b"after\n");
        let written = written();
        assert!(written.ends_with("after\n"));
        let kept = written.lines().filter(|line| line.starts_with('x')).count();
        let told = written.lines().find(|line| line.contains("access lines were left out")).unwrap();
        let dropped = told.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
        assert_eq!(kept + dropped, pushed, "{told}");
        assert!(kept * line.len() <= 2 * ROOM);
    }
}
