//! Standard output. Who reads it may leave before the end, or be a file on a disk that is full.

use std::fmt::Display;
use std::io::{ErrorKind, Result as IoResult, Write as _};

use signet::error::{Error, Result, io_words};

/// That standard output takes nothing.
pub(super) fn unwritten(e: std::io::Error) -> Error {
    Error::unavailable(format!("standard output: cannot be written ({})", io_words(e.kind())), e)
}

/// What became of a line about work, which goes on when nobody reads it any more.
///
/// # Errors
/// `Unavailable` when it cannot be written for another reason.
pub(super) fn told(written: IoResult<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(unwritten),
    }
}

/// A line about work that is not stopped by whatever becomes of the line.
pub(super) fn line(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_when_nobody_reads_and_else_the_cause_is_named() {
        assert!(told(Ok(())).is_ok() && told(Err(ErrorKind::BrokenPipe.into())).is_ok());
        let error = told(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(error.text(), "standard output: cannot be written (no storage space)");
    }
}
