//! The state of one connection, shared by its stream, its requests and the connection table.
//!
//! A connection is *opening* (TLS handshake or request head in progress), *idle*, *busy* with one or more requests, or
//! *receiving* (all its handlers wait for request bodies). The phase is an atomic value. Requests update it; the
//! connection table reads it to select connections to close. The stream of a connection implements the closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use crate::caller_network::CallerNetwork;
use crate::http::body::CallerIdentified;

/// Time limit for receiving a request head; the first one includes the TLS handshake.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time, in milliseconds, after which a closing connection is aborted if its client does not read the response.
pub(super) const STUCK_TIMEOUT_MILLIS: u64 = 2000;
/// Time, in milliseconds, after which a closing connection is aborted even if its client still reads: a new connection
/// already uses its slot.
pub(super) const CLOSE_TIMEOUT_MILLIS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The TLS handshake or the head of a request is in progress.
    Opening,
    /// The connection waits for the next request. Its last response may still be in transit to the client.
    Idle,
    /// A handler processes a request.
    Busy,
    /// All handlers on the connection wait for more of their request bodies.
    Receiving,
}

/// The state of a connection. Times are in milliseconds since `began`.
pub(super) struct Connection {
    /// Number of the connection, in the order of acceptance.
    pub(super) id: u64,
    /// The client's address or network, for the limit per address.
    pub(super) source: CallerNetwork,
    began: Instant,
    /// The phase in the two lowest bits, and the time at which the phase began in the other bits.
    packed_phase: AtomicU64,
    /// Time at which the connection was asked to close, or at which it completed its last response after that; 0 if it
    /// was not asked.
    close_requested_at: AtomicU64,
    /// `true` if the connection closes without waiting for the rest of its request bodies.
    given_up: AtomicBool,
    /// `true` once a request on this connection had a valid token.
    caller_identified: Arc<AtomicBool>,
    /// `true` while the HTTP/1.1 implementation has not fetched the whole response body from the app.
    sending: AtomicBool,
    /// Number of bytes that the stream may still read for the body of the current request.
    readable_body: AtomicU64,
    /// `true` if the completion of the current request must wake the connection's task, which may have unprocessed
    /// input.
    wake_requested: AtomicBool,
    waker: AtomicWaker,
}

impl Connection {
    pub(super) fn new(id: u64, source: CallerNetwork, began: Instant, now: u64) -> Self {
        let close_requested_at = AtomicU64::new(0);
        let sending = AtomicBool::new(false);
        let waker = AtomicWaker::new();
        let packed_phase = AtomicU64::new(0);
        let readable_body = AtomicU64::new(0);
        let wake_requested = AtomicBool::new(false);
        let given_up = AtomicBool::new(false);
        let caller_identified = Arc::default();
        let connection = Self {
            id,
            source,
            began,
            packed_phase,
            close_requested_at,
            given_up,
            caller_identified,
            sending,
            readable_body,
            wake_requested,
            waker,
        };
        connection.set_phase(ConnectionPhase::Opening, now);
        connection
    }

    pub(super) fn now(&self) -> u64 {
        elapsed_millis(self.began)
    }

    pub(super) fn set_phase(&self, phase: ConnectionPhase, since: u64) {
        self.packed_phase.store(since << 2 | phase as u64, Ordering::Relaxed);
    }

    fn phase_and_start(&self) -> (ConnectionPhase, u64) {
        let state = self.packed_phase.load(Ordering::Relaxed);
        let phase = match state & 3 {
            0 => ConnectionPhase::Opening,
            1 => ConnectionPhase::Idle,
            2 => ConnectionPhase::Busy,
            _ => ConnectionPhase::Receiving,
        };
        (phase, state >> 2)
    }

    /// Returns the phase and the time at which it began, if the connection waits for its client; `None` while the
    /// server processes a request.
    pub(super) fn client_wait(&self) -> Option<(ConnectionPhase, u64)> {
        Some(self.phase_and_start()).filter(|(phase, _)| *phase != ConnectionPhase::Busy)
    }

    /// Returns the time at which the phase began, if the connection may close in this phase. A handler that waits for a
    /// body prevents closing, unless the connection has [given up](Self::give_up) on the body.
    fn closable_since(&self) -> Option<u64> {
        let (phase, since) = self.client_wait()?;
        (phase != ConnectionPhase::Receiving || self.is_given_up()).then_some(since)
    }

    /// Sets the phase of a busy connection to *receiving*, when its handler waits for more of the request body.
    pub(super) fn begin_body_wait(&self) {
        if self.phase_and_start().0 == ConnectionPhase::Busy {
            self.set_phase(ConnectionPhase::Receiving, self.now());
        }
    }

    /// Sets the phase of a receiving connection to *busy*, when its handler no longer waits for the request body.
    pub(super) fn end_body_wait(&self) {
        if self.phase_and_start().0 == ConnectionPhase::Receiving {
            self.set_phase(ConnectionPhase::Busy, 0);
        }
    }

    /// Lets the connection close although handlers wait for request bodies, because a new connection needs the slot.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns the flag that the HTTP layer sets once a request on this connection had a valid token.
    pub(super) fn identified_flag(&self) -> CallerIdentified {
        CallerIdentified(Arc::clone(&self.caller_identified))
    }

    /// Returns the order in which waiting connections are closed: the longest wait first, but connections on which an
    /// identified caller sends a body after all others.
    pub(super) fn eviction_rank(&self, phase: ConnectionPhase, since: u64) -> (bool, u64, u64) {
        (phase == ConnectionPhase::Receiving && self.caller_identified.load(Ordering::Relaxed), since, self.id)
    }

    /// `true` if the client exceeded [`HEAD_TIMEOUT`] for a request head. The timer of the HTTP/1.1 implementation may
    /// have started half a second earlier, so 700 ms less count as exceeded.
    pub(super) fn is_head_overdue(&self) -> bool {
        let (phase, since) = self.phase_and_start();
        let max_head_millis = (HEAD_TIMEOUT - Duration::from_millis(700)).as_millis() as u64;
        phase == ConnectionPhase::Opening
            && self.close_requested_at().is_none()
            && since + max_head_millis <= self.now()
    }

    pub(super) fn note_input(&self) {
        if self.phase_and_start().0 == ConnectionPhase::Idle {
            self.set_phase(ConnectionPhase::Opening, self.now());
        }
    }

    /// `true` if the last response may still be in transit to the client.
    pub(super) fn may_be_sending(&self) -> bool {
        self.closable_since().is_none_or(|since| since + STUCK_TIMEOUT_MILLIS > self.now())
    }

    /// Sets the number of bytes that the stream may read for the body of the current request.
    pub(super) fn expect_body(&self, bytes: u64) {
        if self.readable_body.swap(bytes, Ordering::Relaxed) == 0 && bytes > 0 {
            self.wake();
        }
    }

    /// Returns the number of bytes that the stream may read for the body of the current request; `None` if no handler
    /// runs.
    pub(super) fn readable_body_bytes(&self) -> Option<u64> {
        matches!(self.phase_and_start().0, ConnectionPhase::Busy | ConnectionPhase::Receiving)
            .then(|| self.readable_body.load(Ordering::Relaxed))
    }

    /// Counts bytes that arrived while a handler runs. Returns how many of them follow the request body.
    pub(super) fn count_received(&self, bytes: u64) -> u64 {
        let body = self.readable_body.load(Ordering::Relaxed);
        self.readable_body.store(body.saturating_sub(bytes), Ordering::Relaxed);
        self.request_wake();
        bytes.saturating_sub(body)
    }

    /// Makes the completion of the current request wake the connection's task. The HTTP/1.1 implementation does not
    /// resume by itself: it neither processes pipelined requests that it has already read, nor retries a read that the
    /// stream left pending.
    pub(super) fn request_wake(&self) {
        self.wake_requested.store(true, Ordering::Relaxed);
    }

    fn wake_if_requested(&self) {
        if self.wake_requested.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Extends the time that the connection may wait for its client by a millisecond for each byte sent after a blocked
    /// write. A client that reads only a few bytes now and then cannot keep a response alive.
    pub(super) fn note_sent(&self, bytes: u64) {
        if let (ConnectionPhase::Idle, since) = self.phase_and_start() {
            self.set_phase(ConnectionPhase::Idle, since.saturating_add(bytes).min(self.now()));
        }
    }

    /// Asks the connection to close. The caller must then [wake](Connection::wake) the connection's task.
    pub(super) fn request_close(&self, now: u64) {
        self.close_requested_at.store(now.max(1), Ordering::Release);
    }

    /// Restarts the time limits of a closing connection when a response is ready, so that the client has the full time
    /// to receive the response.
    pub(super) fn note_response(&self) {
        if self.close_requested_at().is_some() {
            self.request_close(self.now());
        }
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Registers the connection's task, which [`Connection::wake`] wakes.
    pub(super) fn register_task(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Returns the time at which the connection was asked to close, or at which it completed its last response after
    /// that. `None` if it was not asked.
    pub(super) fn close_requested_at(&self) -> Option<u64> {
        Some(self.close_requested_at.load(Ordering::Acquire)).filter(|at| *at != 0)
    }

    /// Waits until the connection is asked to close.
    pub(super) async fn close_requested(&self) {
        std::future::poll_fn(|cx| {
            self.register_task(cx);
            if self.close_requested_at().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// `true` if the stream must report end of file now, so that HTTP/1.1 closes the connection. A response that
    /// HTTP/1.1 has not fetched completely delays this, because HTTP/1.1 fetches no more of it after the end of file.
    pub(super) fn is_ending(&self) -> bool {
        let sends = self.sending.load(Ordering::Relaxed);
        self.close_requested_at().is_some() && self.closable_since().is_some() && (!sends || self.is_close_overdue())
    }

    /// `true` if the connection was asked to close more than [`CLOSE_TIMEOUT_MILLIS`] ago and no handler prevents it.
    pub(super) fn is_close_overdue(&self) -> bool {
        self.close_requested_at().is_some_and(|at| at + CLOSE_TIMEOUT_MILLIS <= self.now())
            && self.closable_since().is_some()
    }

    /// `true` if the connection was asked to close and its client has accepted no bytes for [`STUCK_TIMEOUT_MILLIS`].
    pub(super) fn is_stuck(&self) -> bool {
        let now = self.now();
        let long = |since: u64| since + STUCK_TIMEOUT_MILLIS <= now;
        self.close_requested_at().is_some_and(long) && self.closable_since().is_some_and(long)
    }
}

/// A guard for a response body that HTTP/1.1 is sending. Until it is dropped, the stream of a closing connection stays
/// open.
pub(super) struct SendingGuard(Arc<Connection>);

impl SendingGuard {
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.sending.store(true, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.0.sending.store(false, Ordering::Relaxed);
        self.0.wake_if_requested();
        if self.0.close_requested_at().is_some() {
            self.0.wake();
        }
    }
}

pub(super) fn elapsed_millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A guard for a request in its handler. The connection is *busy* until the guard is dropped.
pub(super) struct BusyGuard(Arc<Connection>);

impl BusyGuard {
    /// Marks the connection as *busy*, after the request head was read. `body` is the number of bytes that the stream
    /// may read for the request body.
    pub(super) fn begin(connection: &Arc<Connection>, body: u64) -> Self {
        connection.set_phase(ConnectionPhase::Busy, 0);
        connection.readable_body.store(body, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }

    /// `true` if the connection will close after this request.
    pub(super) fn is_last(&self) -> bool {
        self.0.close_requested_at().is_some()
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.set_phase(ConnectionPhase::Idle, self.0.now());
        self.0.note_response();
        self.0.wake_if_requested();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn connection_wait_start_advances_with_bytes_sent() {
        let began = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        let connection = Connection::new(1, CallerNetwork::of(Ipv4Addr::LOCALHOST.into()), began, 0);
        connection.set_phase(ConnectionPhase::Idle, 0);
        connection.note_sent(1);
        assert_eq!(connection.client_wait(), Some((ConnectionPhase::Idle, 1)));
        connection.note_sent(64 << 10);
        assert_eq!(connection.client_wait(), Some((ConnectionPhase::Idle, 1 + (64 << 10))));
        connection.note_sent(64 << 10);
        let (_, since) = connection.client_wait().unwrap();
        assert!((100_000..101_000).contains(&since), "it waits from now on: {since}");
    }
}
