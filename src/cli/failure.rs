//! Failures of commands, and their exit statuses.

use signet::error::{Error, Kind};

/// Exit status of a command that could not do its work or reach the server.
const ERROR: u8 = 1;
/// Exit status for an invalid command line, as used by clap.
pub(super) const USAGE: u8 = 2;
/// Exit status of a command that did its work and found problems.
const FINDING: u8 = 3;

pub(crate) enum Failure {
    /// The command could not do its work.
    Error(Error),
    /// The command did its work, and found something wrong.
    Finding(Error),
}

impl Failure {
    /// The error.
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
