//! The client of the operator socket. Its functions block, because a command has nothing else to do meanwhile.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::socket_path::SocketFolder;
use super::wire::MAX_LINE_BYTES;
use crate::error::{Error, Kind, Result};

/// Maximum time without a message from the server, which sends one every few seconds while it works.
const MAX_SERVER_SILENCE: Duration = Duration::from_secs(30);

/// A connection to the operator socket of the server that uses a data folder, for one command.
pub struct OperatorClient(BufReader<UnixStream>);

impl OperatorClient {
    /// Connects to the server that uses a data folder; `None` when no server listens there.
    ///
    /// # Errors
    /// `Unavailable` when the folder or the socket cannot be opened.
    pub fn connect(folder: &Path) -> Result<Option<Self>> {
        let failed = |e: std::io::Error| {
            let why = if e.kind() == ErrorKind::PermissionDenied {
                "only processes of the server's user may connect"
            } else {
                "cannot connect"
            };
            Error::unavailable(format!("operator socket in {}: {why}", folder.display()), e)
        };
        let connected =
            SocketFolder::of(folder).and_then(|socket_folder| UnixStream::connect(socket_folder.socket_path()));
        let stream = match connected {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            other => other.map_err(failed)?,
        };
        stream
            .set_read_timeout(Some(MAX_SERVER_SILENCE))
            .and_then(|()| stream.set_write_timeout(Some(MAX_SERVER_SILENCE)))
            .map_err(failed)?;
        Ok(Some(Self(BufReader::new(stream))))
    }

    /// Sends a message and waits for the server's result.
    ///
    /// # Errors
    /// The error that the server reports; `Unavailable` when the server disconnects or sends nothing for
    /// `MAX_SERVER_SILENCE`.
    pub fn request(&mut self, line: &Value) -> Result<Value> {
        let sent = send_line(self.0.get_ref(), line);
        // Even if sending failed, read the response: the server may have sent an error before it disconnected.
        self.receive_result().map_err(|response| match sent {
            Err(error) if response.is_end => Error::unavailable("operator socket: the server does not respond", error),
            _ => response.error,
        })
    }

    /// Does `work` while the server processes the previous message, then sends `line` and waits for the server's
    /// result. `work` gets a flag that is set when the server reports an error, disconnects or sends nothing for too
    /// long.
    ///
    /// # Errors
    /// As [`request`](Self::request); the errors of `work`.
    pub fn run_then_send<T>(
        &mut self,
        work: impl FnOnce(&AtomicBool) -> Result<T>,
        line: &Value,
    ) -> Result<(T, Value)> {
        let writer = self.0.get_ref().try_clone().map_err(no_response_error)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let response = self.receive_result();
                stop.store(response.is_err(), Ordering::Release);
                response
            });
            let done = work(&stop);
            let stopped = stop.load(Ordering::Acquire);
            // An error is ignored here, because `receive_result` then returns the server's error or the end of the
            // connection.
            let _ = if done.is_ok() { send_line(&writer, line) } else { writer.shutdown(Shutdown::Both) };
            let response =
                receiver.join().map_err(|_| Error::internal("the reader of the operator socket has panicked"))?;
            match done {
                Ok(done) => Ok((done, response.map_err(|response| response.error)?)),
                Err(error) => {
                    Err(if stopped { response.err().map_or(error, |response| response.error) } else { error })
                }
            }
        })
    }

    /// Reads messages until one is a result or an error; skips `working` messages.
    fn receive_result(&mut self) -> Result<Value, OperatorReceiveError> {
        loop {
            let mut line = Vec::new();
            (&mut self.0)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
                .map_err(|e| OperatorReceiveError::end_of_stream(no_response_error(e)))?;
            if line.last() != Some(&b'\n') {
                return Err(OperatorReceiveError::end_of_stream(Error::new(
                    Kind::Unavailable,
                    "operator socket: the server has disconnected",
                )));
            }
            let mut answer: Value =
                serde_json::from_slice(&line).map_err(|e| OperatorReceiveError::response(Error::internal(e)))?;
            if let Some(text) = answer["error"].as_str() {
                return Err(OperatorReceiveError::response(Error::new(Kind::Unavailable, text.to_owned())));
            }
            if let Some(result) = answer.get_mut("result") {
                return Ok(result.take());
            }
        }
    }
}

struct OperatorReceiveError {
    error: Error,
    /// `true` if the connection ended without an error message.
    is_end: bool,
}

impl OperatorReceiveError {
    fn end_of_stream(error: Error) -> Self {
        Self { error, is_end: true }
    }

    fn response(error: Error) -> Self {
        Self { error, is_end: false }
    }
}

fn send_line(mut stream: &UnixStream, line: &Value) -> std::io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

fn no_response_error(error: std::io::Error) -> Error {
    Error::unavailable("operator socket: the server does not respond", error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use serde_json::json;

    use super::super::socket_path::SOCKET_NAME;
    use super::*;

    const WORKING: &str = "{\"working\":true}\n";

    /// Returns a client that is connected to a server, which runs `server` with the connection.
    fn client(server: impl FnOnce(BufReader<UnixStream>) + Send + 'static) -> (tempfile::TempDir, OperatorClient) {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET_NAME)).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // A write fails if the client does not read for this long.
            stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
            server(BufReader::new(stream));
        });
        let client = OperatorClient::connect(folder.path()).unwrap().unwrap();
        (folder, client)
    }

    fn receive(stream: &mut BufReader<UnixStream>) -> String {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn client_reads_progress_lines_while_its_work_runs() {
        let (told, all_said) = std::sync::mpsc::channel();
        let (_folder, mut client) = client(move |mut stream| {
            for _ in 0..20_000 {
                stream.get_mut().write_all(WORKING.as_bytes()).unwrap();
            }
            told.send(()).unwrap();
            assert_eq!(receive(&mut stream), "{\"release\":true}\n");
            stream.get_mut().write_all(b"{\"result\":{\"held\":true}}\n").unwrap();
        });
        let work = |_: &AtomicBool| all_said.recv_timeout(Duration::from_secs(20)).map_err(Error::internal);
        let ((), answer) = client.run_then_send(work, &json!({ "release": true })).unwrap();
        assert_eq!(answer, json!({ "held": true }));
    }

    #[test]
    fn client_stops_its_work_and_returns_the_server_error() {
        for (last, says) in [
            ("{\"error\":\"the disk is full\"}\n", "the disk is full"),
            ("", "operator socket: the server has disconnected"),
        ] {
            let (_folder, mut client) = client(move |mut stream| {
                stream.get_mut().write_all(format!("{WORKING}{last}").as_bytes()).unwrap();
            });
            let begun = Instant::now();
            let work = |stop: &AtomicBool| -> Result<()> {
                while !stop.load(Ordering::Acquire) {
                    assert!(begun.elapsed() < Duration::from_secs(20), "the server does not end it");
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Error::internal("stopped"))
            };
            let error = client.run_then_send(work, &json!({ "release": true })).unwrap_err();
            assert_eq!(error.to_string(), says);
        }
    }

    #[test]
    fn client_returns_the_error_of_its_failed_work() {
        let (_folder, mut client) = client(|mut stream| drop(receive(&mut stream)));
        let work = |_: &AtomicBool| Err::<(), _>(Error::invalid("no such thing"));
        let error = client.run_then_send(work, &json!({ "release": true })).unwrap_err();
        assert_eq!(error.to_string(), "no such thing");
    }

    #[test]
    fn client_reports_an_error_sent_before_it_sent_its_request() {
        let (_folder, mut client) = client(|mut stream| {
            stream.get_mut().write_all(b"{\"error\":\"too many\"}\n").unwrap();
        });
        // After this time, the server has disconnected.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(client.request(&json!({ "command": "backup" })).unwrap_err().to_string(), "too many");
    }
}
