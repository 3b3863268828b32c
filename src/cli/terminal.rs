//! Reads a secret from standard input. On a terminal, prompts for it without echo.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _, stderr, stdin};

use crate::error::{Error, Result};
use crate::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

/// Maximum length of the input line with the secret, in bytes.
const MAX_LINE_BYTES: u64 = 4096;

/// Reads a line from standard input. On a terminal, prompts for `what` and turns off the echo, which is restored even
/// if this future is dropped early, for example on a signal.
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
    // A separate thread reads the line. With a blocking task of the runtime, the program could not exit before the line
    // arrives.
    std::thread::spawn(move || sender.send(read_line()));
    let line = receiver.await.map_err(Error::internal)?;
    drop(silent);
    line
}

fn read_line() -> Result<Secret> {
    // The buffer has its maximum size from the start, because a growing one would leave copies of the secret in memory.
    let mut line = Vec::with_capacity(MAX_LINE_BYTES as usize);
    let read = stdin().lock().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    let line = Secret::new(line);
    read.map(|_| line).map_err(read_error)
}

fn read_error(e: impl Into<std::io::Error>) -> Error {
    Error::unavailable("standard input: cannot be read", e.into())
}

/// A guard that turns off the echo of the terminal, except for line feeds. It contains the previous settings, which
/// `drop` restores.
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
        // The result is ignored, because the terminal may have been closed.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
