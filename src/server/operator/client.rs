//! The commands' end of the socket. It blocks: a command line waits for nothing else.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::place::Place;
use super::wire::LINE;
use crate::error::{Error, Kind, Result};

/// Longest silence of a server that works: it says something every few seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection to the server that runs on a data folder, for one command.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to the server that uses a data folder; `None` when no server listens there.
    ///
    /// # Errors
    /// `Unavailable` when the folder or the socket cannot be opened.
    pub fn connect(folder: &Path) -> Result<Option<Self>> {
        let failed = |e: std::io::Error| {
            let why = if e.kind() == ErrorKind::PermissionDenied { "is for the server's user only" } else { "fails" };
            Error::unavailable(format!("operator's socket in {}: {why}", folder.display()), e)
        };
        let connected = Place::of(folder).and_then(|place| UnixStream::connect(place.socket()));
        let stream = match connected {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            other => other.map_err(failed)?,
        };
        stream
            .set_read_timeout(Some(SILENCE))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE)))
            .map_err(failed)?;
        Ok(Some(Self(BufReader::new(stream))))
    }

    /// Sends a line and waits for what becomes of it.
    ///
    /// # Errors
    /// What the server refuses, and `Unavailable` when it leaves or falls silent.
    pub fn ask(&mut self, line: &Value) -> Result<Value> {
        let gone = |e| Error::unavailable("the server does not answer", e);
        let text = format!("{line}\n");
        self.0.get_mut().write_all(text.as_bytes()).map_err(gone)?;
        loop {
            let mut line = Vec::new();
            (&mut self.0).take(LINE).read_until(b'\n', &mut line).map_err(gone)?;
            if line.last() != Some(&b'\n') {
                return Err(Error::new(Kind::Unavailable, "the server has ended"));
            }
            let mut answer: Value = serde_json::from_slice(&line).map_err(Error::internal)?;
            if let Some(text) = answer["error"].as_str() {
                return Err(Error::new(Kind::Unavailable, text.to_owned()));
            }
            if let Some(result) = answer.get_mut("result") {
                return Ok(result.take());
            }
        }
    }
}
