//! The byte stream of an HTTP/2 connection. It counts frames and tracks progress.
//!
//! If bytes arrive at a closed socket, the kernel discards output that it has not sent yet. So when the server closes a
//! connection shortly after a response, it waits until the client has closed its side, and discards what the client
//! still sends. It does not wait if another connection needs the slot.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::allowance::FrameAllowance;
use super::frames::{FrameCounts, FrameScanner};
use super::time_slice::TimeSlice;
use crate::server::connection::{Connection, ConnectionPhase};
use crate::server::connections::ConnectionSlot;
use crate::server::stream::Transport;

/// Number of bytes by which each frame reduces the time slice in addition to its length, because short frames cost time
/// too.
const FRAME_OVERHEAD_BYTES: usize = 256;

/// The activity on an HTTP/2 connection, from which its phase is computed. Times are those of [`Connection`].
pub(super) struct Http2Activity {
    pub(super) connection: Arc<Connection>,
    /// Number of requests in their handlers.
    requests_in_handlers: Cell<usize>,
    /// Number of these requests whose handlers wait for more of the request body.
    receiving: Cell<usize>,
    /// `true` if a response progressed or a request ended since the last check.
    progressed: Cell<bool>,
    /// Time at which the client began the frame that is still incomplete; `None` if there is none.
    partial: Cell<Option<u64>>,
    pub(super) time_slice: TimeSlice,
    /// The client's remaining tokens for frames.
    pub(super) allowance: FrameAllowance,
}

impl Http2Activity {
    pub(super) fn new(connection: Arc<Connection>) -> Rc<Self> {
        let requests_in_handlers = Cell::new(0);
        let receiving = Cell::new(0);
        let progressed = Cell::new(false);
        let partial = Cell::new(None);
        let time_slice = TimeSlice::new();
        let allowance = FrameAllowance::new(connection.now());
        Rc::new(Self { connection, requests_in_handlers, receiving, progressed, partial, time_slice, allowance })
    }

    /// Returns the phase of the connection that follows from its requests; `None` if no request is in its handler.
    pub(super) fn phase(&self) -> Option<ConnectionPhase> {
        match (self.requests_in_handlers.get(), self.receiving.get()) {
            (0, _) => None,
            (handled, receiving) if handled > receiving => Some(ConnectionPhase::Busy),
            _ => Some(ConnectionPhase::Receiving),
        }
    }

    /// `true` if a handler prevents the connection from closing. A handler that waits for a request body does not
    /// prevent it once the connection has given up on the body.
    pub(super) fn is_busy(&self) -> bool {
        match self.phase() {
            Some(ConnectionPhase::Receiving) => !self.connection.is_given_up(),
            phase => phase.is_some(),
        }
    }

    pub(super) fn receiving(&self) -> usize {
        self.receiving.get()
    }

    pub(super) fn partial_frame_since(&self) -> Option<u64> {
        self.partial.get()
    }

    pub(super) fn note_progress(&self) {
        self.progressed.set(true);
    }

    /// `true` if a response progressed or a request ended since the last call.
    pub(super) fn take_progress(&self) -> bool {
        self.progressed.take()
    }
}

/// A guard for a request in its handler, which counts the request while it exists.
pub(super) struct HandlerGuard(Rc<Http2Activity>);

impl HandlerGuard {
    pub(super) fn begin(activity: &Rc<Http2Activity>) -> Self {
        activity.requests_in_handlers.set(activity.requests_in_handlers.get() + 1);
        Self(Rc::clone(activity))
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        self.0.requests_in_handlers.set(self.0.requests_in_handlers.get() - 1);
        self.0.note_progress();
    }
}

/// A guard for a handler that waits for more of a request body, which counts the handler while it exists.
pub(super) struct BodyWaitGuard(Rc<Http2Activity>);

impl BodyWaitGuard {
    pub(super) fn begin(activity: &Rc<Http2Activity>) -> Self {
        activity.receiving.set(activity.receiving.get() + 1);
        Self(Rc::clone(activity))
    }
}

impl Drop for BodyWaitGuard {
    fn drop(&mut self) {
        self.0.receiving.set(self.0.receiving.get() - 1);
        self.0.note_progress();
    }
}

/// The byte stream of an HTTP/2 connection. Dropping it closes the socket before it frees the slot.
pub(super) struct ObservedTransport {
    transport: Transport,
    frames: FrameScanner,
    /// `true` if the last write is blocked because the client does not read.
    blocked: bool,
    /// `true` if the sending side of the socket was shut down.
    write_shut_down: bool,
    activity: Rc<Http2Activity>,
    slot: ConnectionSlot,
}

impl ObservedTransport {
    pub(super) fn new(transport: Transport, slot: ConnectionSlot, activity: &Rc<Http2Activity>) -> Self {
        let activity = Rc::clone(activity);
        Self { transport, frames: FrameScanner::new(), blocked: false, write_shut_down: false, activity, slot }
    }

    fn scan_input(&mut self, bytes: &[u8]) {
        let Http2Activity { connection, partial, time_slice, allowance, .. } = &*self.activity;
        let FrameCounts { any_ended, frames, charged } = self.frames.scan(bytes);
        time_slice.charge(bytes.len() + FRAME_OVERHEAD_BYTES * frames);
        if charged > 0 {
            allowance.spend(charged, connection.now());
        }
        if !self.frames.is_partial() {
            partial.set(None);
        } else if any_ended || partial.get().is_none() {
            partial.set(Some(connection.now()));
        }
    }

    /// Discards input until the client has closed its sending side.
    fn poll_client_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scrap = [0; 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut scrap);
            ready!(Pin::new(&mut *self).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.activity.note_progress();
        }
    }

    /// Adds tokens to the frame allowance for written bytes, and calls `note_blocking`.
    fn note_write(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.activity.allowance.add_tokens(bytes as u64);
        }
        self.note_blocking(polled)
    }

    /// Records that a write is blocked. When it continues, records progress.
    fn note_blocking<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        if polled.is_pending() {
            self.blocked = true;
        } else if std::mem::take(&mut self.blocked) {
            self.activity.note_progress();
        }
        polled
    }
}

impl AsyncRead for ObservedTransport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.activity.allowance.is_spent() {
            return Poll::Pending;
        }
        if this.activity.time_slice.is_over() {
            this.activity.time_slice.end(cx);
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.transport).poll_read(cx, buffer);
        this.scan_input(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for ObservedTransport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_write(cx, bytes);
        this.note_write(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_write_vectored(cx, pieces);
        this.note_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.transport).poll_flush(cx);
        this.note_blocking(polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.write_shut_down {
            let polled = Pin::new(&mut this.transport).poll_shutdown(cx);
            ready!(this.note_blocking(polled))?;
            this.write_shut_down = true;
        }
        if this.slot.may_close_first() {
            return Poll::Ready(Ok(()));
        }
        this.poll_client_close(cx)
    }
}
