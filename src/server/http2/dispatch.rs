//! The task of one connection: reads requests, runs them side by side, says farewell.
//!
//! All that a connection does is in here: whatever ends this task ends its requests.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::{Connection as Http2, SendResponse};
use h2::{Reason, RecvStream};
use tokio::time::{Sleep, sleep};

use super::allowance::REQUEST;
use super::bounds::{LINGER, RESETS};
use super::exchange::{End, Incoming};
use super::turn::SHARE;
use super::wire::{Activity, Handled, Wire};
use crate::server::capacity::Room;
use crate::server::connection::Phase;
use crate::server::connections;

/// How many requests begin or end before others have their turn.
const ROUND: usize = 16;

/// The task of a connection. `begin` makes the future of a request.
pub(super) struct Dispatch<F, R> {
    http2: Http2<Wire, Bytes>,
    begin: F,
    requests: FuturesUnordered<R>,
    room: Room,
    activity: Rc<Activity>,
    /// Requests that the client took back, less those that were answered.
    resets: usize,
    /// Since when nothing goes on; nothing before the first request.
    idle: Option<u64>,
    leaving: bool,
    /// Until when it is waited for the client to take the farewell.
    closing: Option<Pin<Box<Sleep>>>,
}

impl<F, R> Dispatch<F, R>
where
    F: Fn(Incoming) -> R,
    R: Future<Output = End>,
{
    /// The task of a connection that has said what it can.
    pub(super) fn new(http2: Http2<Wire, Bytes>, begin: F, room: Room, activity: Rc<Activity>) -> Self {
        let requests = FuturesUnordered::new();
        Self { http2, begin, requests, room, activity, resets: 0, idle: None, leaving: false, closing: None }
    }

    /// Does what there is to do, and not too much of it.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unpacked = 0;
        for _ in 0..ROUND {
            if self.closing.is_some() {
                return self.close(cx);
            }
            let accepted = match self.http2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    unpacked += size(&request);
                    self.accept(request, respond);
                    true
                }
                Poll::Ready(Some(Err(error))) => {
                    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                        connections::closed("flood", 1);
                    }
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => false,
            };
            if self.activity.allowance.is_spent() {
                self.calm();
                continue;
            }
            let ended = match self.requests.poll_next_unpin(cx) {
                Poll::Ready(Some(end)) => {
                    self.count(end);
                    true
                }
                _ => false,
            };
            if !(accepted || ended || self.leave()) {
                return Poll::Pending;
            }
            if unpacked >= SHARE {
                break;
            }
        }
        self.activity.turn.end(cx);
        Poll::Pending
    }

    /// Begins a request, unless the connection leaves or there are too many.
    fn accept(&mut self, request: http_types::Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let is_first = self.requests.is_empty();
        let taken = if is_first { None } else { self.room.take() };
        let has_room = is_first || taken.is_some();
        if !has_room {
            connections::refused("requests");
        }
        if !has_room || self.activity.connection.left().is_some() {
            // Its client knows that it was not looked at, and may send it again elsewhere (RFC 9113, 8.7).
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        self.idle.get_or_insert(0);
        self.activity.moves();
        self.activity.allowance.earn(REQUEST);
        let handled = Handled::begin(&self.activity);
        self.requests.push((self.begin)(Incoming { request, respond, handled, taken }));
    }

    /// Who takes requests back as soon as they are sent costs what they cost, and pays nothing.
    fn count(&mut self, end: End) {
        match end {
            End::Answered => self.resets = self.resets.saturating_sub(1),
            End::Reset => self.resets += 1,
        }
        if self.resets > RESETS {
            self.calm();
        }
    }

    /// Ends a connection that asks for more than it may.
    fn calm(&mut self) {
        if self.closing.is_none() {
            connections::closed("flood", 1);
            self.farewell(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Whether there was something to do about leaving.
    fn leave(&mut self) -> bool {
        if self.activity.connection.left().is_none() {
            return false;
        }
        let done = self.requests.is_empty() && !self.http2.has_streams();
        let connection = &self.activity.connection;
        let receiving = self.activity.receiving();
        let is_given_up = connection.is_given_up() && receiving > 0 && receiving == self.requests.len();
        if done || is_given_up || connection.is_late() && !self.activity.is_busy() {
            self.farewell(Reason::NO_ERROR);
            return true;
        }
        if !self.leaving {
            self.http2.graceful_shutdown();
        }
        !std::mem::replace(&mut self.leaving, true)
    }

    fn farewell(&mut self, reason: Reason) {
        self.requests.clear();
        self.http2.abrupt_shutdown(reason);
        self.closing = Some(Box::pin(sleep(LINGER)));
    }

    fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.http2.poll_closed(cx).is_ready() {
            return Poll::Ready(());
        }
        let Self { closing: Some(late), activity, .. } = self else { return Poll::Pending };
        // Who still takes what was sent to it has the time of those that leave.
        if activity.has_moved() && activity.connection.left().is_some() && !activity.connection.is_late() {
            late.set(sleep(LINGER));
        }
        late.as_mut().poll(cx)
    }

    /// Says what the connection is doing now.
    fn tell(&mut self) {
        let activity = &*self.activity;
        let Some(idle) = &mut self.idle else { return };
        if activity.has_moved() {
            *idle = activity.connection.now();
        }
        let (phase, since) = match (activity.phase(), activity.partial()) {
            (Some(phase), _) => (phase, *idle),
            // What ended meanwhile has its time, too.
            (None, Some(since)) => (Phase::Opening, since.max(*idle)),
            (None, None) => (Phase::Idle, *idle),
        };
        activity.connection.set(phase, since);
    }
}

/// Octets of a head as it was unpacked.
fn size<B>(request: &http_types::Request<B>) -> usize {
    request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

impl<F, R> Future for Dispatch<F, R>
where
    F: Fn(Incoming) -> R + Unpin,
    R: Future<Output = End>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.activity.connection.watch(cx);
        let mut turned = Poll::Pending;
        if this.activity.turn.begin(cx) {
            turned = this.turn(cx);
            this.tell();
        }
        if this.activity.connection.is_stuck() { Poll::Ready(()) } else { turned }
    }
}
