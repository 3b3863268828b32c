//! Lines of JSON on a connection, as the server hears and says them. Refuses lines that are too long.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::{Error, Result};

/// Longest line, octets.
pub(super) const LINE: u64 = 64 << 10;
/// How long a caller may take to read a line.
const READ: Duration = Duration::from_secs(10);

/// Both directions of a connection, which work beside each other.
pub(super) struct Conversation {
    pub(super) ears: Ears,
    pub(super) mouth: Mouth,
}

/// What the caller sends.
pub(super) struct Ears(BufReader<OwnedReadHalf>);

/// What the caller is sent.
pub(super) struct Mouth(OwnedWriteHalf);

impl Conversation {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self { ears: Ears(BufReader::new(read)), mouth: Mouth(write) }
    }

    /// The next line.
    pub(super) async fn hear(&mut self) -> Result<Value> {
        self.ears.hear().await
    }

    /// One line.
    pub(super) async fn say(&mut self, line: &Value) -> Result<()> {
        self.mouth.say(line).await
    }
}

impl Ears {
    /// The next line.
    ///
    /// # Errors
    /// `Unavailable` when the caller has left, `Malformed` for a line that is too long or no JSON.
    pub(super) async fn hear(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(LINE).read_until(b'\n', &mut line).await;
        read.map_err(|e| Error::unavailable("the caller has left", e))?;
        if line.is_empty() {
            return Err(Error::unavailable("the caller has left", "end of file"));
        }
        if line.last() != Some(&b'\n') {
            return Err(Error::malformed("a line is cut or longer than 64 KiB"));
        }
        serde_json::from_slice(&line).map_err(|_| Error::malformed("a line is no JSON"))
    }
}

impl Mouth {
    /// One line.
    ///
    /// # Errors
    /// `Unavailable` when the caller has left, or does not read.
    pub(super) async fn say(&mut self, line: &Value) -> Result<()> {
        let text = format!("{line}\n");
        let said = tokio::time::timeout(READ, self.0.write_all(text.as_bytes())).await;
        said.map_err(|e| Error::unavailable("the caller does not read", e))?
            .map_err(|e| Error::unavailable("the caller has left", e))
    }
}
