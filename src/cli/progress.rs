//! Progress display for long operations: one line on the terminal, redrawn several times a second and erased at the
//! end.
//!
//! Nothing is shown with `--quiet` or `--json`, or if standard error is not a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::storage::ProgressCounters;

use super::output;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
const ERASE_LINE: &str = "\r\u{1b}[K";

#[derive(clap::Args)]
pub(super) struct QuietArgument {
    /// Show no progress. There is none without a terminal, nor with --json.
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

#[derive(Clone, Copy)]
pub(super) enum ProgressUnit {
    Bytes,
    /// Items with this plural name, such as `rows`.
    Items(&'static str),
}

/// A progress display on the terminal. Dropping it erases the progress line.
pub(super) struct ProgressDisplay {
    pub(super) progress: Arc<ProgressCounters>,
    /// Locked during any output to the terminal, so that the lines of two threads do not mix.
    screen: Arc<Mutex<()>>,
    /// Dropping this sender ends the drawing thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressDisplay {
    pub(super) fn start(what: &'static str, unit: ProgressUnit, quiet: &QuietArgument) -> Self {
        let progress = Arc::<ProgressCounters>::default();
        let screen = Arc::<Mutex<()>>::default();
        let (end, ended) = mpsc::channel();
        let is_shown = stderr().is_terminal() && !quiet.quiet && !output::is_json();
        let counters = Arc::clone(&progress);
        let shared = Arc::clone(&screen);
        let draw = move || {
            loop {
                {
                    let _held = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ =
                        write!(stderr(), "{ERASE_LINE}{}", format_line(what, unit, counters.done(), counters.total()));
                }
                if ended.recv_timeout(REDRAW_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let _ = write!(stderr(), "{ERASE_LINE}");
        };
        let thread = is_shown.then(|| std::thread::spawn(draw));
        Self { progress, screen, end: Some(end), thread }
    }

    /// Erases the progress line and runs `write`, which prints lines of its own.
    pub(super) fn without_progress_line(&self, write: impl FnOnce()) {
        let _held = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if self.thread.is_some() {
            let _ = write!(stderr(), "{ERASE_LINE}");
        }
        write();
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn format_line(what: &str, unit: ProgressUnit, done: u64, total: Option<u64>) -> String {
    let amount = |amount: u64| match unit {
        ProgressUnit::Bytes => format!("{:.1} MiB", amount as f64 / f64::from(1 << 20)),
        ProgressUnit::Items(name) => format!("{amount} {name}"),
    };
    match total {
        Some(total) => {
            let percent = u128::from(done.min(total)) * 100 / u128::from(total);
            format!("{what}: {} of {} ({percent} %)", amount(done), amount(total))
        }
        None => format!("{what}: {}", amount(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_a_percentage_if_the_total_is_known() {
        assert_eq!(
            format_line("copying", ProgressUnit::Bytes, 3 << 19, Some(3 << 20)),
            "copying: 1.5 MiB of 3.0 MiB (50 %)"
        );
        assert_eq!(format_line("checking", ProgressUnit::Items("rows"), 7, None), "checking: 7 rows");
        assert_eq!(
            format_line("copying", ProgressUnit::Bytes, u64::MAX, Some(1 << 20)).split_once(" of").unwrap().1,
            " 1.0 MiB (100 %)"
        );
    }
}
