//! The stream of a connection, as HTTP/1.1 reads and writes it.
//!
//! When its connection is told to leave, the stream ends as if the client had closed its side, as soon as no
//! request is under way and HTTP has got all of the last answer: it finishes what it was writing and closes. A client
//! that takes nothing of that any more is not waited for, nor one that takes too long. What came is looked at before. A
//! client that closes its side while a request is under way has left: the stream fails, and the request ends.
//!
//! HTTP reads as much as it can, and answers all that it has read before anybody else has a turn. So it gets little at a
//! time. Of requests that follow one that is not answered yet it gets a few, and none while the client does not take
//! what is answered: each of them would be kept.

mod heads;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use self::heads::HeadScanner;
use super::connection::Connection;
use super::connections::Place;
use super::mismatch;

/// Octets of requests that HTTP gets before others have a turn: enough for most, and for a hundred of the shortest.
const AT_ONCE: usize = 4 << 10;
/// Octets of a body that it gets so: what it reads them into stays with the connection.
const BODY_AT_ONCE: usize = 16 << 10;
/// Octets behind a request that is not answered yet.
const AHEAD: usize = 8 << 10;

/// Wakes a task when those that are ready have had their turn and the sockets were looked at. Who wakes itself stands in
/// the line again at once, and the runtime goes through the line some tens of times before it looks.
pub(super) fn yielding(cx: &Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(cx.waker()));
}

/// What a stream runs on.
pub(super) enum Transport {
    /// Plain HTTP.
    Tcp(TcpStream),
    /// TLS, after its handshake.
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
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, octets),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, octets),
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

/// The stream of a connection. The socket closes before the place is free.
pub(super) struct Stream {
    transport: Transport,
    /// Whether octets wait for the client to take some.
    blocked: bool,
    /// Octets that left since some could not.
    written: u64,
    /// Whether anything was read.
    begun: bool,
    /// Whether HTTP has got something that it has not looked at.
    unseen: bool,
    /// Octets that HTTP has got since others had a turn.
    given: usize,
    /// Octets that it has got behind requests that were not answered.
    ahead: usize,
    /// Whether it got any while a request was with its handler: it may have left them as they are.
    behind: bool,
    /// Whether it gets none because the client takes none.
    held: bool,
    heads: HeadScanner,
    place: Place,
}

impl Stream {
    /// The stream of the connection in a place.
    pub(super) fn new(transport: Transport, place: Place) -> Self {
        Self {
            transport,
            blocked: false,
            written: 0,
            begun: false,
            unseen: false,
            given: 0,
            ahead: 0,
            behind: false,
            held: false,
            heads: HeadScanner::default(),
            place,
        }
    }

    /// What it runs on, and its place, for who reads and writes it in another way.
    pub(super) fn into_parts(self) -> (Transport, Place) {
        (self.transport, self.place)
    }

    /// Its connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.place.connection()
    }

    /// How many octets HTTP may get now. Where that is none, its task is woken when there may be some.
    fn room(&mut self, cx: &Context<'_>) -> usize {
        let connection = self.place.connection();
        let (room, most) = match connection.body() {
            Some(body) => {
                let body = usize::try_from(body).unwrap_or(usize::MAX);
                let room = body.saturating_add(AHEAD.saturating_sub(self.ahead));
                if room == 0 || self.behind {
                    connection.look_again();
                }
                (room, if body > 0 { BODY_AT_ONCE } else { AT_ONCE })
            }
            None if self.blocked => {
                self.held = true;
                return 0;
            }
            None => {
                (self.ahead, self.behind) = (0, false);
                (AT_ONCE, AT_ONCE)
            }
        };
        if room > 0 && self.given >= most {
            yielding(cx);
            return 0;
        }
        room.min(most.saturating_sub(self.given))
    }

    /// Reads so many octets at most.
    fn poll_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>, most: usize) -> Poll<io::Result<()>> {
        if buffer.remaining() <= most {
            return Pin::new(&mut self.transport).poll_read(cx, buffer);
        }
        let mut some = ReadBuf::new(buffer.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.transport).poll_read(cx, &mut some);
        let read = some.filled().len();
        buffer.advance(read);
        polled
    }

    /// Notes whether octets move, and gives up on those that do not.
    fn noted<T>(&mut self, cx: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let connection = self.place.connection();
        if polled.is_pending() {
            self.blocked = true;
            connection.watch(cx);
            if connection.is_stuck() || connection.is_late() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else if self.blocked {
            self.blocked = false;
            connection.sent(std::mem::take(&mut self.written));
            if std::mem::take(&mut self.held) {
                cx.waker().wake_by_ref();
            }
        }
        polled
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let room = this.room(cx);
        let polled = if room > 0 { this.poll_some(cx, buffer, room) } else { Poll::Pending };
        let connection = this.place.connection();
        if polled.is_pending() {
            this.given = 0;
            connection.watch(cx);
            if std::mem::take(&mut this.unseen) {
                if connection.left().is_some() {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            // Nothing read is what a stream says at its end.
            return if connection.ends() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let read = buffer.filled().len() - before;
        if read == 0 && matches!(polled, Poll::Ready(Ok(()))) {
            if std::mem::take(&mut this.unseen) {
                // HTTP looks at what it has got first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if connection.body().is_some() {
                // Who closes has left: what it waited for must not go on for nobody.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        if read > 0 {
            this.unseen = true;
            this.given += read;
            if connection.body().is_some() {
                this.ahead += connection.took(read as u64) as usize;
                this.behind = true;
            }
            connection.heard();
            let first = (!std::mem::replace(&mut this.begun, true)).then(|| buffer.filled()[before]);
            if let (Some(first), Transport::Tcp(stream)) = (first, &this.transport)
                && mismatch::is_tls(first)
            {
                mismatch::plain_only(stream);
                // What came is no request, and none follows: the stream ends.
                buffer.set_filled(before);
            }
            if this.heads.scan(&mut buffer.filled_mut()[before..]).is_err() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_write(cx, octets);
        if let Poll::Ready(Ok(written)) = &polled {
            this.written += *written as u64;
        }
        this.noted(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_flush(cx);
        this.noted(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_shutdown(cx);
        this.noted(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::capacity::Caps;
    use crate::server::connections::Connections;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn one_that_leaves_ends_when_what_it_read_was_looked_at() {
        let connections = Connections::new("main", Caps { total: 4, per_address: 4 }, Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let mut stream = Stream::new(Transport::Tcp(accepted), connections.admit(peer.ip()).unwrap());
        client.write_all(b"GET").await.unwrap();
        let mut read = async || {
            let mut octets = [0; 16];
            let mut buffer = ReadBuf::new(&mut octets);
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
