//! The progress of long work: one line on a terminal, rewritten several times a second and erased at the end.
//!
//! Nothing is shown when standard error is no terminal, with `--quiet` and with `--json`.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use signet::storage::Progress;

use super::output;

/// Time between two versions of the line.
const INTERVAL: Duration = Duration::from_millis(200);
/// Returns to the start of the line and erases it.
const ERASE: &str = "\r\u{1b}[K";

/// The flag of commands that show progress.
#[derive(clap::Args)]
pub(super) struct Quiet {
    /// Show no progress. There is none without a terminal, nor with --json.
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

/// The unit of the counters.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Bytes,
    /// Things by this name, in the plural.
    Things(&'static str),
}

/// A display of progress. Dropping it erases the line.
pub(super) struct Display {
    pub(super) progress: Arc<Progress>,
    /// Held while anything is written to the terminal.
    screen: Arc<Mutex<()>>,
    /// Dropped to end the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Shows the progress of `what`.
    pub(super) fn start(what: &'static str, unit: Unit, quiet: &Quiet) -> Self {
        let (progress, screen) = (Arc::<Progress>::default(), Arc::<Mutex<()>>::default());
        let (end, ended) = mpsc::channel();
        let is_shown = stderr().is_terminal() && !quiet.quiet && !output::is_json();
        let (counters, shared) = (Arc::clone(&progress), Arc::clone(&screen));
        let draw = move || {
            loop {
                {
                    let _held = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = write!(stderr(), "{ERASE}{}", line(what, unit, counters.done(), counters.total()));
                }
                if ended.recv_timeout(INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let _ = write!(stderr(), "{ERASE}");
        };
        let thread = is_shown.then(|| std::thread::spawn(draw));
        Self { progress, screen, end: Some(end), thread }
    }

    /// Writes lines of results, with nothing of the display beside them.
    pub(super) fn around(&self, write: impl FnOnce()) {
        let _held = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if self.thread.is_some() {
            let _ = write!(stderr(), "{ERASE}");
        }
        write();
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn line(what: &str, unit: Unit, done: u64, total: Option<u64>) -> String {
    let amount = |amount: u64| match unit {
        Unit::Bytes => format!("{:.1} MiB", amount as f64 / f64::from(1 << 20)),
        Unit::Things(name) => format!("{amount} {name}"),
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
    fn progress_line_has_the_share_where_the_total_is_known() {
        assert_eq!(line("copying", Unit::Bytes, 3 << 19, Some(3 << 20)), "copying: 1.5 MiB of 3.0 MiB (50 %)");
        assert_eq!(line("checking", Unit::Things("rows"), 7, None), "checking: 7 rows");
        assert_eq!(
            line("copying", Unit::Bytes, u64::MAX, Some(1 << 20)).split_once(" of").unwrap().1,
            " 1.0 MiB (100 %)"
        );
    }
}
