//! The failures of a command, and the exit status of each.

use crate::error::{Error, Kind};

/// Exit status of a command that failed, for example because the server is unreachable.
const EXIT_ERROR: u8 = 1;
/// Exit status for an invalid command line, as used by clap.
pub(super) const EXIT_USAGE: u8 = 2;
/// Exit status of a checking command that completed and found problems.
const EXIT_FINDING: u8 = 3;

pub(crate) enum CommandFailure {
    /// The command failed.
    Error(Error),
    /// The command completed its checks and found problems, which the error describes.
    Finding(Error),
}

impl CommandFailure {
    /// Returns the error to print.
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Error(error) | Self::Finding(error) => error,
        }
    }

    /// Returns the exit status of the process.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Error(_) => EXIT_ERROR,
            Self::Finding(_) => EXIT_FINDING,
        }
    }
}

pub(super) fn fail_on_findings(count: usize) -> Result<(), CommandFailure> {
    let text = match count {
        0 => return Ok(()),
        1 => "1 problem found".to_owned(),
        wrong => format!("{wrong} problems found"),
    };
    Err(CommandFailure::Finding(Error::new(Kind::Conflict, text)))
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
