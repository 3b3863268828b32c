//! Lines on a stream socket, TCP or Unix: a collector of logs on the other side.
//!
//! The connection is made at the first write and made again when it has ended; a write that fails is repeated once on
//! a new one. Whatever the other side says is read and not looked at: its leaving is noticed that way before a write
//! would be lost. `write_timeout` bounds a connection's making and every write.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device::Sink;

/// Where a collector listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Host and port.
    Tcp(String),
    /// The path of a socket.
    Unix(PathBuf),
}

/// A collector.
pub(super) struct Socket {
    peer: Peer,
    timeout: Duration,
    stream: Option<Box<dyn Stream>>,
}

trait Stream: Read + Write + Send {
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    fn close(&self);
}

impl Stream for TcpStream {
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        Self::set_nonblocking(self, on)
    }

    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for UnixStream {
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        Self::set_nonblocking(self, on)
    }

    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Socket {
    pub(super) fn new(peer: Peer, timeout: Duration) -> Self {
        Self { peer, timeout, stream: None }
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.peer {
            Peer::Unix(path) => self.unix(path),
            Peer::Tcp(address) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, self.timeout) {
                        Ok(stream) => {
                            stream.set_write_timeout(Some(self.timeout))?;
                            stream.set_nodelay(true)?;
                            return Ok(Box::new(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn unix(&self, path: &Path) -> io::Result<Box<dyn Stream>> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(Box::new(stream))
    }

    fn send(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        is_open(&mut *stream)?;
        // Half a line is the end of a connection.
        stream.write_all(lines).inspect_err(|_| stream.close())?;
        self.stream = Some(stream);
        Ok(())
    }
}

/// Whether the other side is there.
fn is_open(stream: &mut dyn Stream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut said = [0; 4096];
    let heard = stream.read(&mut said);
    stream.set_nonblocking(false)?;
    match heard {
        Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
        // Whoever says more than that before every write is not heard to its end.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

impl Sink for Socket {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let was_open = self.stream.is_some();
        match self.send(lines) {
            Err(error) if was_open && error.kind() != io::ErrorKind::WouldBlock => self.send(lines),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    const TIMEOUT: Duration = Duration::from_millis(300);

    #[test]
    fn lines_arrive_and_a_collector_that_comes_back_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = Socket::new(Peer::Tcp(listener.local_addr().unwrap().to_string()), TIMEOUT);
        socket.write(b"one\n").unwrap();
        let (mut first, _) = listener.accept().unwrap();
        let mut read = [0; 4];
        first.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"one\n");
        drop(first);
        std::thread::sleep(Duration::from_millis(20));
        socket.write(b"two\n").unwrap();
        let (mut second, _) = listener.accept().unwrap();
        second.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"two\n");
    }

    #[test]
    fn nobody_there_and_nobody_reading_are_errors_within_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("collector");
        let mut socket = Socket::new(Peer::Unix(path.clone()), TIMEOUT);
        assert!(socket.write(b"one\n").is_err());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(socket.write(&vec![b'x'; 8 << 20]).is_err());
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.read_to_end(&mut Vec::new()).unwrap();
        socket.write(b"two\n").unwrap();
        let (mut again, _) = listener.accept().unwrap();
        let mut read = [0; 4];
        again.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"two\n");
    }
}
