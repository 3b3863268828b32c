//! How a command fails, and the exit status that says so.

use signet::error::{Error, Kind};

/// Exit status of a command that could not do its work, or could not ask.
const ERROR: u8 = 1;
/// Exit status of a command line that is not understood; clap's.
pub(super) const USAGE: u8 = 2;
/// Exit status of a command that did its work and found something wrong.
const FINDING: u8 = 3;

/// Why a command does not succeed.
pub(crate) enum Failure {
    /// The command could not do its work.
    Error(Error),
    /// The command did its work, and found something wrong.
    Finding(Error),
}

impl Failure {
    /// The message.
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Error(error) | Self::Finding(error) => error,
        }
    }

    /// The exit status of the process.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Error(_) => ERROR,
            Self::Finding(_) => FINDING,
        }
    }
}

/// Ends a report that names this many wrong things.
pub(super) fn findings(count: usize) -> Result<(), Failure> {
    let text = match count {
        0 => return Ok(()),
        1 => "one thing is wrong".to_owned(),
        wrong => format!("{wrong} things are wrong"),
    };
    Err(Failure::Finding(Error::new(Kind::Conflict, text)))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
