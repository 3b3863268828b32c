//! The state of one connection, shared by its stream, its requests and the connection table.
//!
//! A connection is *opening* (TLS handshake or request head in progress), *idle*, *busy* with one or more
//! requests, or *receiving*: its handlers wait for request bodies, and the server does nothing for it. The phase
//! is an atomic that each request updates and that the table reads when it must close connections. How a
//! connection closes is up to its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use crate::caller_network::CallerNetwork;
use crate::http::body::CallerIdentified;

/// Time limit for receiving a request head, including the TLS handshake.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time, in milliseconds, after which a closing connection with blocked writes is aborted.
pub(super) const STUCK_TIMEOUT_MILLIS: u64 = 2000;
/// Time, in milliseconds, after which a closing connection is aborted despite progress: a new connection already counts
/// for its slot.
pub(super) const CLOSE_TIMEOUT_MILLIS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The TLS handshake or the head of a request is in progress.
    Opening,
    /// Waits for the next request. The last response may still be in transit.
    Idle,
    /// A handler processes a request.
    Busy,
    /// A handler waits for more of the request body.
    Receiving,
}

/// A connection. Times are milliseconds since `began`.
pub(super) struct Connection {
    /// Ascending in the order of acceptance.
    pub(super) id: u64,
    /// The client's network, by which per-address limits count the connection.
    pub(super) source: CallerNetwork,
    began: Instant,
    /// The phase in the two lowest bits, the time at which it began in the others.
    packed_phase: AtomicU64,
    /// Time at which the connection was asked to close, or of its last completed response after that; 0 if it was not
    /// asked.
    close_requested_at: AtomicU64,
    /// `true` if the connection closes without waiting for request bodies.
    given_up: AtomicBool,
    /// `true` if a caller was identified on this connection.
    caller_identified: Arc<AtomicBool>,
    /// `true` while the HTTP/1.1 implementation still has to fetch a part of the response body.
    sending: AtomicBool,
    /// Bytes that may be read for the body of the current request.
    readable_body: AtomicU64,
    /// `true` if the connection's task must be woken when the current request completes, to check for unprocessed
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

    /// Returns the phase and its start while the connection waits for its client; `None` while the server processes a
    /// request.
    pub(super) fn client_wait(&self) -> Option<(ConnectionPhase, u64)> {
        Some(self.phase_and_start()).filter(|(phase, _)| *phase != ConnectionPhase::Busy)
    }

    /// Returns the start of the phase if the connection may close in it. A handler that waits for a body prevents that,
    /// unless the body was [given up](Self::give_up).
    fn closable_since(&self) -> Option<u64> {
        let (phase, since) = self.client_wait()?;
        (phase != ConnectionPhase::Receiving || self.is_given_up()).then_some(since)
    }

    /// Notes that a handler waits for more of a request body.
    pub(super) fn begin_body_wait(&self) {
        if self.phase_and_start().0 == ConnectionPhase::Busy {
            self.set_phase(ConnectionPhase::Receiving, self.now());
        }
    }

    /// Notes that a handler no longer waits for a request body.
    pub(super) fn end_body_wait(&self) {
        if self.phase_and_start().0 == ConnectionPhase::Receiving {
            self.set_phase(ConnectionPhase::Busy, 0);
        }
    }

    /// Gives up the request bodies that handlers wait for, because a new connection needs the slot.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns the flag that is set once a caller is identified.
    pub(super) fn identified_flag(&self) -> CallerIdentified {
        CallerIdentified(Arc::clone(&self.caller_identified))
    }

    /// Returns the sort key for closing waiting connections: longest wait first, and identified callers that send a
    /// body last.
    pub(super) fn eviction_rank(&self, phase: ConnectionPhase, since: u64) -> (bool, u64, u64) {
        (phase == ConnectionPhase::Receiving && self.caller_identified.load(Ordering::Relaxed), since, self.id)
    }

    /// `true` if the client exceeded [`HEAD_TIMEOUT`]. The timer of the HTTP/1.1 implementation is coarse and may start
    /// half a second earlier, so this allows 700 ms less.
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

    /// `true` if the last response may still be in transit.
    pub(super) fn may_be_sending(&self) -> bool {
        self.closable_since().is_none_or(|since| since + STUCK_TIMEOUT_MILLIS > self.now())
    }

    /// Sets the number of bytes that may be read for the body of the current request.
    pub(super) fn expect_body(&self, bytes: u64) {
        if self.readable_body.swap(bytes, Ordering::Relaxed) == 0 && bytes > 0 {
            self.wake();
        }
    }

    /// Returns how many bytes may be read for the body of the current request; `None` if no handler runs.
    pub(super) fn readable_body_bytes(&self) -> Option<u64> {
        matches!(self.phase_and_start().0, ConnectionPhase::Busy | ConnectionPhase::Receiving)
            .then(|| self.readable_body.load(Ordering::Relaxed))
    }

    /// Notes bytes that arrived while a handler runs, and returns how many of them lie beyond the request body.
    pub(super) fn count_received(&self, bytes: u64) -> u64 {
        let body = self.readable_body.load(Ordering::Relaxed);
        self.readable_body.store(body.saturating_sub(bytes), Ordering::Relaxed);
        self.request_wake();
        bytes.saturating_sub(body)
    }

    /// Wakes the connection's task when the current request completes. The HTTP/1.1 implementation does not resume by
    /// itself: it neither continues with pipelined requests that it has already read, nor retries a read that the
    /// stream left pending.
    pub(super) fn request_wake(&self) {
        self.wake_requested.store(true, Ordering::Relaxed);
    }

    fn wake_if_requested(&self) {
        if self.wake_requested.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Notes sent bytes after a blocked write. Extends the client's time by a millisecond per byte, so that a few bytes
    /// from time to time do not keep a response alive.
    pub(super) fn note_sent(&self, bytes: u64) {
        if let (ConnectionPhase::Idle, since) = self.phase_and_start() {
            self.set_phase(ConnectionPhase::Idle, since.saturating_add(bytes).min(self.now()));
        }
    }

    /// Asks the connection to close; [`Connection::wake`] makes its task notice.
    pub(super) fn request_close(&self, now: u64) {
        self.close_requested_at.store(now.max(1), Ordering::Release);
    }

    /// Notes that a response is ready. If the connection closes, the client gets the full time to receive it.
    pub(super) fn note_response(&self) {
        if self.close_requested_at().is_some() {
            self.request_close(self.now());
        }
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Registers the task that [`Connection::wake`] wakes.
    pub(super) fn register_task(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Returns the time at which the connection was asked to close, or at which it completed its last response after
    /// that.
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

    /// `true` if the stream must report end of file now. A response that is still being sent delays this, because
    /// HTTP/1.1 fetches no more of the body once the stream has ended.
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

/// A response body that HTTP/1.1 is sending; until it is dropped, a closing connection keeps its stream open.
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

/// A request in its handler; the connection is busy until it is dropped.
pub(super) struct BusyGuard(Arc<Connection>);

impl BusyGuard {
    /// Begins when the request head was read; `body` is the number of bytes that may be read for its body.
    pub(super) fn begin(connection: &Arc<Connection>, body: u64) -> Self {
        connection.set_phase(ConnectionPhase::Busy, 0);
        connection.readable_body.store(body, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }

    /// `true` if the connection closes after this request.
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
