//! Audit output to a log collector, over a TCP or Unix stream socket.
//!
//! The socket connects at the first write and reconnects when the connection has ended; a failed write is retried once
//! on a new connection. Input is read and discarded, to detect a closed connection before a write is lost.
//! `write_timeout` limits connecting over TCP, each write, and the time until the peer acknowledges data. Connecting to
//! a Unix socket blocks while the collector accepts no connections; the device then counts as hung. Acknowledged data
//! has left this machine, but need not be on a disk.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;
use rustix::net::{Shutdown, shutdown};

use super::device::AuditSink;

/// The address of a log collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAddress {
    /// Host and port.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

pub(super) struct SocketSink {
    peer: CollectorAddress,
    timeout: Duration,
    stream: Option<Box<dyn SinkStream>>,
}

/// A TCP or Unix stream socket.
trait SinkStream: Read + Write + AsFd + Send {}

impl<S: Read + Write + AsFd + Send> SinkStream for S {}

impl SocketSink {
    pub(super) fn new(peer: CollectorAddress, timeout: Duration) -> Self {
        Self { peer, timeout, stream: None }
    }

    fn connect(&self) -> io::Result<Box<dyn SinkStream>> {
        match &self.peer {
            CollectorAddress::Unix(path) => self.connect_unix(path),
            CollectorAddress::Tcp(address) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, self.timeout) {
                        Ok(stream) => {
                            stream.set_write_timeout(Some(self.timeout))?;
                            stream.set_nodelay(true)?;
                            let timeout_millis = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
                            rustix::net::sockopt::set_tcp_user_timeout(&stream, timeout_millis)?;
                            return Ok(Box::new(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn connect_unix(&self, path: &Path) -> io::Result<Box<dyn SinkStream>> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(Box::new(stream))
    }

    fn send(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        check_open(&mut *stream)?;
        // Closes the connection after a partial write, because the next line must not follow an incomplete one.
        write_until(&mut *stream, lines, Instant::now() + self.timeout).inspect_err(|_| {
            let _ = shutdown(&*stream, Shutdown::Both);
        })?;
        self.stream = Some(stream);
        Ok(())
    }
}

/// Writes all lines, or fails once the deadline `until` has passed, even if the peer keeps reading slowly.
fn write_until(stream: &mut dyn SinkStream, mut lines: &[u8], until: Instant) -> io::Result<()> {
    while !lines.is_empty() {
        if Instant::now() > until {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match stream.write(lines) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => lines = &lines[taken..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fails if the peer has closed the connection. The connection counts as open if the peer still sends data after a few
/// reads.
fn check_open(stream: &mut dyn SinkStream) -> io::Result<()> {
    const MAX_READS: usize = 16;
    ioctl_fionbio(&*stream, true)?;
    let mut discarded = [0; 4096];
    let end = (0..MAX_READS).map(|_| stream.read(&mut discarded)).find(|end| !matches!(end, Ok(1..)));
    ioctl_fionbio(&*stream, false)?;
    match end {
        None => Ok(()),
        Some(Ok(_)) => Err(io::ErrorKind::ConnectionAborted.into()),
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

impl AuditSink for SocketSink {
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
    fn socket_sink_reconnects_to_a_restarted_collector() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = SocketSink::new(CollectorAddress::Tcp(listener.local_addr().unwrap().to_string()), TIMEOUT);
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
    fn closed_peer_is_reconnected_before_the_next_write() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = SocketSink::new(CollectorAddress::Tcp(listener.local_addr().unwrap().to_string()), TIMEOUT);
        socket.write(b"one\n").unwrap();
        let (mut first, _) = listener.accept().unwrap();
        first.write_all(b"bye\n").unwrap();
        first.shutdown(std::net::Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        socket.write(b"two\n").unwrap();
        let (mut second, _) = listener.accept().unwrap();
        let mut read = [0; 4];
        second.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"two\n");
    }

    #[test]
    fn very_slow_reader_fails_the_write_within_the_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = SocketSink::new(CollectorAddress::Tcp(listener.local_addr().unwrap().to_string()), TIMEOUT);
        let drops = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The collector reads slowly until the sink closes the connection.
            while stream.read(&mut [0; 64 * 1024]).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let begun = Instant::now();
        assert!(socket.write(&vec![b'x'; 64 << 20]).is_err());
        assert!(begun.elapsed() < 10 * TIMEOUT, "{:?}", begun.elapsed());
        drops.join().unwrap();
    }

    #[test]
    fn missing_or_stalled_collector_is_an_error_within_the_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("collector");
        let mut socket = SocketSink::new(CollectorAddress::Unix(path.clone()), TIMEOUT);
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
