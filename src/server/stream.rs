//! The stream of a connection, as HTTP/1.1 reads and writes it.
//!
//! “HTTP” means the HTTP/1.1 implementation of actix here. When no request is in progress and HTTP has processed its
//! input and fetched the response, the stream of a closing connection reports end of file. HTTP then completes writing
//! and closes. The stream fails, and the request is dropped, if the client stops reading, is too slow, or disconnects
//! during a request. As HTTP processes all its input before other connections run, it gets little input at a time. It
//! gets only a few pipelined requests in advance, and none while the client does not read, because they would fill the
//! memory.

mod head_scanner;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use self::head_scanner::HeadScanner;
use super::connection::Connection;
use super::connections::ConnectionSlot;
use super::mismatch;

/// Maximum number of bytes that HTTP gets before other connections run: enough for most requests, or for a hundred of
/// the shortest ones.
const INPUT_BYTES_PER_SLICE: usize = 4 << 10;
/// Maximum number of bytes of a request body that HTTP gets before other connections run. HTTP's read buffer keeps this
/// size.
const BODY_BYTES_PER_SLICE: usize = 16 << 10;
/// Maximum number of bytes after a request (pipelined requests) that HTTP gets before the response to that request.
const MAX_PIPELINED_BYTES: usize = 8 << 10;

/// Wakes a task after the other ready tasks have run and the sockets were polled. A plain wake would queue the task
/// immediately, and the runtime runs dozens of queued tasks between two polls of the sockets.
pub(super) fn wake_after_yield(cx: &Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(cx.waker()));
}

pub(super) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The stream of a connection. Dropping it closes the socket before it frees the slot.
pub(super) struct ConnectionStream {
    transport: Transport,
    /// `true` if the last write is blocked because the client does not read.
    blocked: bool,
    /// Number of bytes written since the last blocked write.
    written: u64,
    /// `true` once the first bytes from the client were read.
    has_read: bool,
    /// `true` if HTTP got input and has not polled the stream again since, so that the input may be unprocessed.
    has_unprocessed_input: bool,
    /// Number of bytes that HTTP got since other connections last ran.
    bytes_this_slice: usize,
    /// Number of bytes after the current request (pipelined requests) that HTTP got before the response to that
    /// request.
    pipelined_bytes: usize,
    /// `true` if HTTP got bytes while a handler ran, which HTTP may not have processed.
    may_have_unparsed_input: bool,
    /// `true` if HTTP gets no input because the client does not read its responses.
    input_paused: bool,
    head_scanner: HeadScanner,
    slot: ConnectionSlot,
}

impl ConnectionStream {
    pub(super) fn new(transport: Transport, slot: ConnectionSlot) -> Self {
        Self {
            transport,
            blocked: false,
            written: 0,
            has_read: false,
            has_unprocessed_input: false,
            bytes_this_slice: 0,
            pipelined_bytes: 0,
            may_have_unparsed_input: false,
            input_paused: false,
            head_scanner: HeadScanner::default(),
            slot,
        }
    }

    /// Returns the transport and the slot, which HTTP/2 uses without this stream.
    pub(super) fn into_parts(self) -> (Transport, ConnectionSlot) {
        (self.transport, self.slot)
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.slot.connection()
    }

    /// Returns the number of bytes that HTTP may get now. If it is 0, the connection's task is woken when HTTP may get
    /// more.
    fn allowed_bytes(&mut self, cx: &Context<'_>) -> usize {
        let connection = self.slot.connection();
        let (allowed, max) = match connection.readable_body_bytes() {
            Some(body) => {
                let body = usize::try_from(body).unwrap_or(usize::MAX);
                let allowed = body.saturating_add(MAX_PIPELINED_BYTES.saturating_sub(self.pipelined_bytes));
                if allowed == 0 || self.may_have_unparsed_input {
                    connection.request_wake();
                }
                (allowed, if body > 0 { BODY_BYTES_PER_SLICE } else { INPUT_BYTES_PER_SLICE })
            }
            None if self.blocked => {
                self.input_paused = true;
                return 0;
            }
            None => {
                (self.pipelined_bytes, self.may_have_unparsed_input) = (0, false);
                (INPUT_BYTES_PER_SLICE, INPUT_BYTES_PER_SLICE)
            }
        };
        if allowed > 0 && self.bytes_this_slice >= max {
            wake_after_yield(cx);
            return 0;
        }
        allowed.min(max.saturating_sub(self.bytes_this_slice))
    }

    fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        max: usize,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() <= max {
            return Pin::new(&mut self.transport).poll_read(cx, buffer);
        }
        let mut some = ReadBuf::new(buffer.initialize_unfilled_to(max));
        let polled = Pin::new(&mut self.transport).poll_read(cx, &mut some);
        let read = some.filled().len();
        buffer.advance(read);
        polled
    }

    /// Records whether a write is blocked because the client does not read. Fails if the write has been blocked for too
    /// long on a closing connection.
    fn note_blocking<T>(&mut self, cx: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let connection = self.slot.connection();
        if polled.is_pending() {
            self.blocked = true;
            connection.register_task(cx);
            if connection.is_stuck() || connection.is_close_overdue() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else if self.blocked {
            self.blocked = false;
            connection.note_sent(std::mem::take(&mut self.written));
            if std::mem::take(&mut self.input_paused) {
                cx.waker().wake_by_ref();
            }
        }
        polled
    }
}

impl AsyncRead for ConnectionStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let allowed = this.allowed_bytes(cx);
        let polled = if allowed > 0 { this.poll_read_at_most(cx, buffer, allowed) } else { Poll::Pending };
        let connection = this.slot.connection();
        if polled.is_pending() {
            this.bytes_this_slice = 0;
            connection.register_task(cx);
            if std::mem::take(&mut this.has_unprocessed_input) {
                if connection.close_requested_at().is_some() {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            // Ready without new bytes means end of file.
            return if connection.is_ending() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let read = buffer.filled().len() - before;
        if read == 0 && matches!(polled, Poll::Ready(Ok(()))) {
            if std::mem::take(&mut this.has_unprocessed_input) {
                // Report the end of file only after HTTP has processed its input.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if connection.readable_body_bytes().is_some() {
                // The client has disconnected during a request. The error makes HTTP drop the request.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        if read > 0 {
            this.has_unprocessed_input = true;
            this.bytes_this_slice += read;
            if connection.readable_body_bytes().is_some() {
                this.pipelined_bytes += connection.count_received(read as u64) as usize;
                this.may_have_unparsed_input = true;
            }
            connection.note_input();
            let first = (!std::mem::replace(&mut this.has_read, true)).then(|| buffer.filled()[before]);
            if let (Some(first), Transport::Tcp(stream)) = (first, &this.transport)
                && mismatch::is_tls(first)
            {
                mismatch::reject_tls(stream);
                // The input is TLS and not a request. Without it, HTTP sees an empty read, which is the end of file.
                buffer.set_filled(before);
            }
            if this.head_scanner.scan(&mut buffer.filled_mut()[before..]).is_err() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
        polled
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = &polled {
            this.written += *written as u64;
        }
        this.note_blocking(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_flush(cx);
        this.note_blocking(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_shutdown(cx);
        this.note_blocking(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::capacity::ConnectionCaps;
    use crate::server::connections::Connections;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn closing_stream_ends_after_received_bytes_were_parsed() {
        let connections = Connections::new("main", ConnectionCaps { total: 4, per_address: 4 }, Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let mut stream = ConnectionStream::new(Transport::Tcp(accepted), connections.admit(peer.ip()).unwrap());
        client.write_all(b"GET").await.unwrap();
        let mut read = async || {
            let mut bytes = [0; 16];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_read(cx, &mut buffer))).await;
            read.map(|read| read.map(|()| buffer.filled().len()).unwrap())
        };
        while read().await.is_pending() {
            tokio::task::yield_now().await;
        }
        connections.close();
        assert_eq!(read().await, Poll::Pending, "HTTP has not looked yet");
        assert_eq!(read().await, Poll::Ready(0));
    }
}
