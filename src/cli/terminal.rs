//! Reads a secret from standard input. On a terminal, prompts for it without echo.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _, stderr, stdin};

use crate::error::{Error, Result};
use crate::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

/// Maximum length of the line with the secret, in bytes.
const MAX_LINE_BYTES: u64 = 4096;

/// Reads a line; prompts for `what` on a terminal. The terminal is restored even if this future is dropped
/// early, as on a signal.
///
/// # Errors
/// `Unavailable` when standard input cannot be read.
pub(super) async fn read_secret(what: &str) -> Result<Secret> {
    let silent = if stdin().is_terminal() { Some(EchoGuard::input().map_err(read_error)?) } else { None };
    if silent.is_some() {
        // The result is ignored: if standard error is closed, the secret is read without the prompt.
        let _ = write!(stderr(), "{what}: ");
    }
    let (sender, receiver) = oneshot::channel();
    // A separate thread reads the line. A thread of the runtime would delay the exit of the program until the line
    // arrives.
    std::thread::spawn(move || sender.send(read_line()));
    let line = receiver.await.map_err(Error::internal)?;
    drop(silent);
    line
}

fn read_line() -> Result<Secret> {
    // Allocated at its full size, because a growing buffer would leave copies of the secret in memory.
    let mut line = Vec::with_capacity(MAX_LINE_BYTES as usize);
    let read = stdin().lock().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    let line = Secret::new(line);
    read.map(|_| line).map_err(read_error)
}

fn read_error(e: impl Into<std::io::Error>) -> Error {
    Error::unavailable("standard input: cannot be read", e.into())
}

/// A terminal without echo, except for line ends, until this is dropped.
struct EchoGuard(Termios);

impl EchoGuard {
    fn input() -> rustix::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // The result is ignored, because the terminal may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
