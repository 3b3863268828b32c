//! What one connection is doing, and whether it is to leave.
//!
//! A connection is *opening* (TLS, or the head of a request, is on its way), *idle*, *busy* with a request, or
//! with several over HTTP/2, or *receiving*: its handlers wait for octets of bodies, and the server does nothing for it.
//! The word that says so is stored a few times for each request and read when places are short. What it means to leave
//! is its stream's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use crate::caller_network::CallerNetwork;
use crate::http::body::Known;

/// How long the head of a request may take to arrive, TLS included.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the octets of a connection that leaves may be stuck, milliseconds.
pub(super) const GRACE: u64 = 2000;
/// How long a connection that leaves may still send, milliseconds, however its octets move: its place counts as
/// another's.
pub(super) const FAREWELL: u64 = 10_000;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// TLS is being agreed on, or the head of a request is on its way.
    Opening,
    /// Waits for the next request; the last answer may still be on its way.
    Idle,
    /// A request is with its handler.
    Busy,
    /// The same, and the handler waits for more of its body.
    Receiving,
}

/// A connection, for its stream, its requests and the table. Times are milliseconds since `began`.
pub(super) struct Connection {
    /// Grows from one to the next.
    pub(super) id: u64,
    /// The network that its address counts as.
    pub(super) source: CallerNetwork,
    began: Instant,
    /// The phase in the two lowest bits, above them since when.
    state: AtomicU64,
    /// When it was told to leave, or answered a request since; 0 when it was not told.
    left: AtomicU64,
    /// Whether it is to leave without what its handlers still wait for.
    given_up: AtomicBool,
    /// Whether it is known who asked for something on it.
    known: Arc<AtomicBool>,
    /// Whether HTTP/1.1 has not got all of an answer's body yet.
    sending: AtomicBool,
    /// Octets that may be read for the body of the request under way.
    body: AtomicU64,
    /// Whether its task is to look again at what has come when the request under way is answered.
    again: AtomicBool,
    waker: AtomicWaker,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(id: u64, source: CallerNetwork, began: Instant, now: u64) -> Self {
        let (left, sending, waker) = (AtomicU64::new(0), AtomicBool::new(false), AtomicWaker::new());
        let (state, body, again) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let (given_up, known) = (AtomicBool::new(false), Arc::default());
        let connection = Self { id, source, began, state, left, given_up, known, sending, body, again, waker };
        connection.set(Phase::Opening, now);
        connection
    }

    /// The time.
    pub(super) fn now(&self) -> u64 {
        elapsed(self.began)
    }

    /// What it is doing now, and since when.
    pub(super) fn set(&self, phase: Phase, since: u64) {
        self.state.store(since << 2 | phase as u64, Ordering::Relaxed);
    }

    /// The phase, and since when.
    fn state(&self) -> (Phase, u64) {
        let state = self.state.load(Ordering::Relaxed);
        let phase = match state & 3 {
            0 => Phase::Opening,
            1 => Phase::Idle,
            2 => Phase::Busy,
            _ => Phase::Receiving,
        };
        (phase, state >> 2)
    }

    /// Since when it waits for its client; nothing when the server is at work on a request.
    pub(super) fn waiting(&self) -> Option<(Phase, u64)> {
        Some(self.state()).filter(|(phase, _)| *phase != Phase::Busy)
    }

    /// Since when nothing keeps it from leaving. What a handler waits for does, until it is given up.
    fn resting(&self) -> Option<u64> {
        let (phase, since) = self.waiting()?;
        (phase != Phase::Receiving || self.is_given_up()).then_some(since)
    }

    /// A handler waits for more of a body: from now on, unless it does already.
    pub(super) fn receives(&self) {
        if self.state().0 == Phase::Busy {
            self.set(Phase::Receiving, self.now());
        }
    }

    /// What a handler waited for is there, or not waited for any more.
    pub(super) fn goes_on(&self) {
        if self.state().0 == Phase::Receiving {
            self.set(Phase::Busy, 0);
        }
    }

    /// What its handlers wait for is not worth its place any more.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether what its handlers wait for was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// What says that it is known who asks on it, for who finds out.
    pub(super) fn known(&self) -> Known {
        Known(Arc::clone(&self.known))
    }

    /// In which order those that wait leave: the longest wait first, and last who sends a body and is known.
    pub(super) fn rank(&self, phase: Phase, since: u64) -> (bool, u64, u64) {
        (phase == Phase::Receiving && self.known.load(Ordering::Relaxed), since, self.id)
    }

    /// Whether its client had its time for the head of a request, as the clock of HTTP goes: it may have begun half a
    /// second before. Not where it was told to leave.
    pub(super) fn is_late_head(&self) -> bool {
        let (phase, since) = self.state();
        let most = (HEAD_TIMEOUT - Duration::from_millis(700)).as_millis() as u64;
        phase == Phase::Opening && self.left().is_none() && since + most <= self.now()
    }

    /// Octets came.
    pub(super) fn heard(&self) {
        if self.state().0 == Phase::Idle {
            self.set(Phase::Opening, self.now());
        }
    }

    /// Whether its last answer may still be on its way.
    pub(super) fn is_recent(&self) -> bool {
        self.resting().is_none_or(|since| since + GRACE > self.now())
    }

    /// From now on so many octets may be read for the body of the request under way.
    pub(super) fn expect_body(&self, octets: u64) {
        if self.body.swap(octets, Ordering::Relaxed) == 0 && octets > 0 {
            self.wake();
        }
    }

    /// Whether a request is with its handler; then how many octets may be read for its body.
    pub(super) fn body(&self) -> Option<u64> {
        matches!(self.state().0, Phase::Busy | Phase::Receiving).then(|| self.body.load(Ordering::Relaxed))
    }

    /// So many octets came while a request is with its handler; how many of them do not belong to it.
    pub(super) fn took(&self, octets: u64) -> u64 {
        let body = self.body.load(Ordering::Relaxed);
        self.body.store(body.saturating_sub(octets), Ordering::Relaxed);
        self.look_again();
        octets.saturating_sub(body)
    }

    /// When the request under way is answered, its task looks again: HTTP does not go on with what it has of later
    /// requests by itself, nor read what it was not given.
    pub(super) fn look_again(&self) {
        self.again.store(true, Ordering::Relaxed);
    }

    /// The request is answered, or its answer was sent.
    fn over(&self) {
        if self.again.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// So many octets left, some of which could not leave before: its client has time for the others, a millisecond for
    /// each one that it took, so that a few of them from time to time keep no answer.
    pub(super) fn sent(&self, octets: u64) {
        if let (Phase::Idle, since) = self.state() {
            self.set(Phase::Idle, since.saturating_add(octets).min(self.now()));
        }
    }

    /// Makes it leave; [`Connection::wake`] lets it know.
    pub(super) fn leave(&self, now: u64) {
        self.left.store(now.max(1), Ordering::Release);
    }

    /// A request has its answer: where its connection leaves, that has its time to be taken.
    pub(super) fn answered(&self) {
        if self.left().is_some() {
            self.leave(self.now());
        }
    }

    /// Lets its task look at what it was told.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Makes this task the one that [`Connection::wake`] wakes.
    pub(super) fn watch(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// When it was told to leave, or had its last answer since.
    pub(super) fn left(&self) -> Option<u64> {
        Some(self.left.load(Ordering::Acquire)).filter(|left| *left != 0)
    }

    /// Waits until it is told to leave.
    pub(super) async fn told(&self) {
        std::future::poll_fn(|cx| {
            self.watch(cx);
            if self.left().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether its stream ends now. HTTP would not ask for the rest of a body any more.
    pub(super) fn ends(&self) -> bool {
        let sends = self.sending.load(Ordering::Relaxed);
        self.left().is_some() && self.resting().is_some() && (!sends || self.is_late())
    }

    /// Whether it was told to leave so long ago that nothing is waited for but requests with their handlers.
    pub(super) fn is_late(&self) -> bool {
        self.left().is_some_and(|left| left + FAREWELL <= self.now()) && self.resting().is_some()
    }

    /// Whether it was told to leave and still has octets that nobody takes.
    pub(super) fn is_stuck(&self) -> bool {
        let now = self.now();
        let long = |since: u64| since + GRACE <= now;
        self.left().is_some_and(long) && self.resting().is_some_and(long)
    }
}

/// A body on its way to HTTP/1.1; until it is dropped the stream does not end because its connection leaves.
pub(super) struct Sending(Arc<Connection>);

impl Sending {
    /// Begins with the head of the answer.
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.sending.store(true, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    /// Its connection.
    pub(super) fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.sending.store(false, Ordering::Relaxed);
        self.0.over();
        if self.0.left().is_some() {
            self.0.wake();
        }
    }
}

/// Milliseconds since `began`.
pub(super) fn elapsed(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A request with its handler; until it is dropped the connection is busy.
pub(super) struct Exchange(Arc<Connection>);

impl Exchange {
    /// Begins when the head of a request was read; so many octets may be read for its body.
    pub(super) fn begin(connection: &Arc<Connection>, body: u64) -> Self {
        connection.set(Phase::Busy, 0);
        connection.body.store(body, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    /// Its connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }

    /// Whether the connection closes after it.
    pub(super) fn is_last(&self) -> bool {
        self.0.left().is_some()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.set(Phase::Idle, self.0.now());
        self.0.answered();
        self.0.over();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_takes_a_little_of_an_answer_has_little_time_for_the_rest() {
        let began = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        let connection = Connection::new(1, CallerNetwork::of(Ipv4Addr::LOCALHOST.into()), began, 0);
        connection.set(Phase::Idle, 0);
        connection.sent(1);
        assert_eq!(connection.waiting(), Some((Phase::Idle, 1)));
        connection.sent(64 << 10);
        assert_eq!(connection.waiting(), Some((Phase::Idle, 1 + (64 << 10))));
        connection.sent(64 << 10);
        let (_, since) = connection.waiting().unwrap();
        assert!((100_000..101_000).contains(&since), "it waits from now on: {since}");
    }
}
