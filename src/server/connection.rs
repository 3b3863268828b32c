//! One connection: what it is doing, and the stream that HTTP reads and writes.
//!
//! A connection is *opening* (TLS, or the head of a request, is on its way), *idle* or *busy* with a request.
//! It is told to leave by [`Connection::leave`]; then its stream ends, as if the client had closed its side,
//! as soon as no request is under way: HTTP finishes what it was writing and closes. A client that takes
//! nothing of that any more is not waited for.
//!
//! The word that says all this is stored a few times for each request and read when places are short.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::connections::Place;

/// How long the octets of a connection that leaves may be stuck, milliseconds.
pub(super) const GRACE: u64 = 2000;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// TLS is being agreed on, or the head of a request is on its way.
    Opening,
    /// Waits for the next request; the last answer may still be on its way.
    Idle,
    /// A request is with its handler.
    Busy,
}

/// A connection, for its stream, its requests and the table. Times are milliseconds since `began`.
pub(super) struct Connection {
    /// Grows from one to the next.
    pub(super) id: u64,
    /// What its address is counted as.
    pub(super) source: IpAddr,
    began: Instant,
    /// The phase in the two lowest bits, above them since when.
    state: AtomicU64,
    /// When it was told to leave; 0 when it was not.
    left: AtomicU64,
    waker: AtomicWaker,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(id: u64, source: IpAddr, began: Instant, now: u64) -> Self {
        let (left, waker) = (AtomicU64::new(0), AtomicWaker::new());
        let connection = Self { id, source, began, state: AtomicU64::new(0), left, waker };
        connection.set(Phase::Opening, now);
        connection
    }

    fn now(&self) -> u64 {
        elapsed(self.began)
    }

    fn set(&self, phase: Phase, since: u64) {
        self.state.store(since << 2 | phase as u64, Ordering::Relaxed);
    }

    /// The phase, and since when.
    fn state(&self) -> (Phase, u64) {
        let state = self.state.load(Ordering::Relaxed);
        let phase = match state & 3 {
            0 => Phase::Opening,
            1 => Phase::Idle,
            _ => Phase::Busy,
        };
        (phase, state >> 2)
    }

    /// Since when it waits for its client; nothing when a request is under way.
    pub(super) fn waiting(&self) -> Option<(Phase, u64)> {
        Some(self.state()).filter(|(phase, _)| *phase != Phase::Busy)
    }

    /// Octets came.
    fn heard(&self) {
        if self.state().0 == Phase::Idle {
            self.set(Phase::Opening, self.now());
        }
    }

    /// Octets left that could not leave before.
    fn sent(&self) {
        if self.state().0 == Phase::Idle {
            self.set(Phase::Idle, self.now());
        }
    }

    /// Makes it leave; [`Connection::wake`] lets it know.
    pub(super) fn leave(&self, now: u64) {
        self.left.store(now.max(1), Ordering::Release);
    }

    /// Lets its task look at what it was told.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// When it was told to leave.
    pub(super) fn left(&self) -> Option<u64> {
        Some(self.left.load(Ordering::Acquire)).filter(|left| *left != 0)
    }

    /// Waits until it is told to leave.
    pub(super) async fn told(&self) {
        std::future::poll_fn(|cx| {
            self.waker.register(cx.waker());
            if self.left().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether its stream ends now.
    fn ends(&self) -> bool {
        self.left().is_some() && self.waiting().is_some()
    }

    /// Whether it was told to leave and still has octets that nobody takes.
    fn is_stuck(&self) -> bool {
        let now = self.now();
        let long = |since: u64| since + GRACE <= now;
        self.left().is_some_and(long) && self.waiting().is_some_and(|(_, since)| long(since))
    }
}

/// Milliseconds since `began`.
pub(super) fn elapsed(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A request with its handler; until it is dropped the connection is busy.
pub(super) struct Exchange(Arc<Connection>);

impl Exchange {
    /// Begins when the head of a request was read.
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.set(Phase::Busy, 0);
        Self(Arc::clone(connection))
    }

    /// Whether the connection closes after it.
    pub(super) fn is_last(&self) -> bool {
        self.0.left().is_some()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.set(Phase::Idle, self.0.now());
    }
}

/// What a stream runs on.
pub(super) enum Transport {
    /// Plain HTTP.
    Tcp(TcpStream),
    /// TLS, after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The stream of a connection. The socket closes before the place is free.
pub(super) struct Stream {
    transport: Transport,
    /// Whether octets wait for the client to take some.
    blocked: bool,
    place: Place,
}

impl Stream {
    /// The stream of the connection in a place.
    pub(super) fn new(transport: Transport, place: Place) -> Self {
        Self { transport, blocked: false, place }
    }

    /// Its connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.place.connection()
    }

    /// Notes whether octets move, and gives up on those that do not.
    fn noted<T>(&mut self, cx: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let connection = self.place.connection();
        if polled.is_pending() {
            self.blocked = true;
            connection.waker.register(cx.waker());
            if connection.is_stuck() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else if self.blocked {
            self.blocked = false;
            connection.sent();
        }
        polled
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        let connection = this.place.connection();
        if polled.is_pending() {
            connection.waker.register(cx.waker());
            // Nothing read is what a stream says at its end.
            return if connection.ends() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        if buffer.filled().len() > before {
            connection.heard();
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_write(cx, octets),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, octets),
        };
        this.noted(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = match &mut this.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        this.noted(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = match &mut this.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        };
        this.noted(cx, polled)
    }
}
