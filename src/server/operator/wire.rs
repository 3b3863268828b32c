//! A connection of the operator socket, on which both sides send messages as lines of JSON of limited length.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::{Error, Result};

/// Maximum length of a message, in bytes.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 10;
/// Time limit for sending a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The server side of a connection. Both directions can be used independently.
pub(super) struct OperatorConnection {
    pub(super) reader: OperatorReader,
    pub(super) writer: OperatorWriter,
}

/// The receiving direction of a connection.
pub(super) struct OperatorReader(BufReader<OwnedReadHalf>);

/// The sending direction of a connection.
pub(super) struct OperatorWriter(OwnedWriteHalf);

impl OperatorConnection {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self { reader: OperatorReader(BufReader::new(read)), writer: OperatorWriter(write) }
    }

    pub(super) async fn receive(&mut self) -> Result<Value> {
        self.reader.receive().await
    }

    pub(super) async fn send(&mut self, line: &Value) -> Result<()> {
        self.writer.send(line).await
    }
}

impl OperatorReader {
    /// Receives the next message from the client.
    ///
    /// # Errors
    /// `Unavailable` when the client has disconnected, `Malformed` for a line that is too long or not JSON.
    pub(super) async fn receive(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await;
        read.map_err(|e| Error::unavailable("operator socket: the client has disconnected", e))?;
        if line.is_empty() {
            return Err(Error::unavailable("operator socket: the client has disconnected", "end of file"));
        }
        if line.last() != Some(&b'\n') {
            return Err(Error::malformed("operator socket: a line is incomplete or longer than 64 KiB"));
        }
        serde_json::from_slice(&line).map_err(|_| Error::malformed("operator socket: a line is not JSON"))
    }
}

impl OperatorWriter {
    /// Sends a message to the client.
    ///
    /// # Errors
    /// `Unavailable` when the client has disconnected or does not read.
    pub(super) async fn send(&mut self, line: &Value) -> Result<()> {
        let text = format!("{line}\n");
        let said = tokio::time::timeout(SEND_TIMEOUT, self.0.write_all(text.as_bytes())).await;
        said.map_err(|e| Error::unavailable("operator socket: the client does not read", e))?
            .map_err(|e| Error::unavailable("operator socket: the client has disconnected", e))
    }
}
