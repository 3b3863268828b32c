//! A secret on standard input: on a terminal it is asked for, and not shown while it is typed.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _, stderr, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signet::error::{Error, Result};
use signet::secret::Secret;
use tokio::sync::oneshot;

/// Longest line that is read, octets.
const LONGEST: u64 = 4096;

/// The next line; `what` is asked for on a terminal, which is left as it was also when this is dropped before the line
/// comes: a caller who hears signals drops it.
///
/// # Errors
/// `Unavailable` when standard input cannot be read.
pub(super) async fn secret(what: &str) -> Result<Secret> {
    let silent = if stdin().is_terminal() { Some(Silent::input().map_err(unreadable)?) } else { None };
    if silent.is_some() {
        // Whoever closed standard error knows what to type.
        let _ = write!(stderr(), "{what}: ");
    }
    let (tell, told) = oneshot::channel();
    // One of the runtime's threads would hold up the end of the program until the line comes.
    std::thread::spawn(move || tell.send(line()));
    let line = told.await.map_err(Error::internal)?;
    drop(silent);
    line
}

fn line() -> Result<Secret> {
    // Sized beforehand: bytes that grow leave copies behind.
    let mut line = Vec::with_capacity(LONGEST as usize);
    let read = stdin().lock().take(LONGEST).read_until(b'\n', &mut line);
    let line = Secret::new(line);
    read.map(|_| line).map_err(unreadable)
}

fn unreadable(e: impl Into<std::io::Error>) -> Error {
    Error::unavailable("standard input: cannot be read", e.into())
}

/// A terminal that shows line ends and nothing else of what is typed, until this is dropped.
struct Silent(Termios);

impl Silent {
    fn input() -> rustix::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing any more.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
