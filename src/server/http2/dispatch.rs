//! The task of an HTTP/2 connection: reads requests, runs them concurrently and closes the connection.
//!
//! All requests of the connection run in this task, so that they end with the connection.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::{Connection as Http2, SendResponse};
use h2::{Reason, RecvStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use super::allowance::TOKENS_PER_REQUEST;
use super::bounds::{GOAWAY_TIMEOUT, MAX_EXCESS_RESETS};
use super::exchange::{ExchangeEnd, IncomingRequest};
use super::time_slice::BYTES_PER_TIME_SLICE;
use super::transport::{HandlerGuard, Http2Activity, ObservedTransport};
use crate::server::connection::ConnectionPhase;
use crate::server::connections;

/// Maximum number of requests that begin or complete before the task yields.
const MAX_EVENTS_PER_SLICE: usize = 16;

/// The future that serves an HTTP/2 connection. `begin` creates the future that handles a request.
pub(super) struct Dispatch<F, R> {
    http2: Http2<ObservedTransport, Bytes>,
    begin: F,
    requests: FuturesUnordered<R>,
    request_permits: Arc<Semaphore>,
    activity: Rc<Http2Activity>,
    /// Number of requests that the client has reset, minus the number of completed requests, but at least 0.
    resets: usize,
    /// Time of the last progress of a request or response, in milliseconds; `None` before the first request.
    last_progress: Option<u64>,
    shutdown_begun: bool,
    /// Timer for sending the final GOAWAY frame; set once the connection ends.
    goaway_deadline: Option<Pin<Box<Sleep>>>,
}

impl<F, R> Dispatch<F, R>
where
    F: Fn(IncomingRequest) -> R,
    R: Future<Output = ExchangeEnd>,
{
    pub(super) fn new(
        http2: Http2<ObservedTransport, Bytes>,
        begin: F,
        request_permits: Arc<Semaphore>,
        activity: Rc<Http2Activity>,
    ) -> Self {
        let requests = FuturesUnordered::new();
        Self {
            http2,
            begin,
            requests,
            request_permits,
            activity,
            resets: 0,
            last_progress: None,
            shutdown_begun: false,
            goaway_deadline: None,
        }
    }

    /// Accepts and runs requests, up to the limits of a time slice. Ready when the connection has ended.
    fn make_progress(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut header_bytes_read = 0;
        for _ in 0..MAX_EVENTS_PER_SLICE {
            if self.goaway_deadline.is_some() {
                return self.close(cx);
            }
            let accepted = match self.http2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    header_bytes_read += header_bytes(&request);
                    self.accept(request, respond);
                    true
                }
                Poll::Ready(Some(Err(error))) => {
                    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                        connections::count_closed("flood", 1);
                    }
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => false,
            };
            if self.activity.allowance.is_spent() {
                self.close_after_flood();
                continue;
            }
            let ended = match self.requests.poll_next_unpin(cx) {
                Poll::Ready(Some(end)) => {
                    self.count_ended_request(end);
                    true
                }
                _ => false,
            };
            if !(accepted || ended || self.close_if_requested()) {
                return Poll::Pending;
            }
            if header_bytes_read >= BYTES_PER_TIME_SLICE {
                break;
            }
        }
        self.activity.time_slice.end(cx);
        Poll::Pending
    }

    /// Begins to handle a request. Rejects it if the connection is closing or no permit is free.
    fn accept(&mut self, request: http_types::Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let is_first = self.requests.is_empty();
        let permit = if is_first { None } else { Arc::clone(&self.request_permits).try_acquire_owned().ok() };
        let has_capacity = is_first || permit.is_some();
        if !has_capacity {
            connections::count_refused("requests");
        }
        if !has_capacity || self.activity.connection.close_requested_at().is_some() {
            // `REFUSED_STREAM` tells the client that the request was not processed and may be retried (RFC 9113, 8.7).
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        self.last_progress.get_or_insert(0);
        self.activity.note_progress();
        self.activity.allowance.add_tokens(TOKENS_PER_REQUEST);
        let handled = HandlerGuard::begin(&self.activity);
        self.requests.push((self.begin)(IncomingRequest { request, respond, handled, permit }));
    }

    /// Counts a completed or reset request. Ends the connection after too many resets, because each of them causes work
    /// for the server without a response (CVE-2023-44487).
    fn count_ended_request(&mut self, end: ExchangeEnd) {
        match end {
            ExchangeEnd::Answered => self.resets = self.resets.saturating_sub(1),
            ExchangeEnd::Reset => self.resets += 1,
        }
        if self.resets > MAX_EXCESS_RESETS {
            self.close_after_flood();
        }
    }

    fn close_after_flood(&mut self) {
        if self.goaway_deadline.is_none() {
            connections::count_closed("flood", 1);
            self.send_goaway(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Begins or completes the shutdown if the connection was asked to close. Returns `true` if this made progress.
    fn close_if_requested(&mut self) -> bool {
        if self.activity.connection.close_requested_at().is_none() {
            return false;
        }
        let done = self.requests.is_empty() && !self.http2.has_streams();
        let connection = &self.activity.connection;
        let receiving = self.activity.receiving();
        let is_given_up = connection.is_given_up() && receiving > 0 && receiving == self.requests.len();
        if done || is_given_up || connection.is_close_overdue() && !self.activity.is_busy() {
            self.send_goaway(Reason::NO_ERROR);
            return true;
        }
        if !self.shutdown_begun {
            self.http2.graceful_shutdown();
        }
        !std::mem::replace(&mut self.shutdown_begun, true)
    }

    fn send_goaway(&mut self, reason: Reason) {
        self.requests.clear();
        self.http2.abrupt_shutdown(reason);
        self.goaway_deadline = Some(Box::pin(sleep(GOAWAY_TIMEOUT)));
    }

    fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.http2.poll_closed(cx).is_ready() {
            return Poll::Ready(());
        }
        let Self { goaway_deadline: Some(late), activity, .. } = self else { return Poll::Pending };
        // If the connection was asked to close, the time limit restarts while the client still receives data.
        if activity.take_progress()
            && activity.connection.close_requested_at().is_some()
            && !activity.connection.is_close_overdue()
        {
            late.set(sleep(GOAWAY_TIMEOUT));
        }
        late.as_mut().poll(cx)
    }

    fn publish_activity(&mut self) {
        let activity = &*self.activity;
        let Some(idle) = &mut self.last_progress else { return };
        if activity.take_progress() {
            *idle = activity.connection.now();
        }
        let (phase, since) = match (activity.phase(), activity.partial_frame_since()) {
            (Some(phase), _) => (phase, *idle),
            // The client has the full time limit to complete a frame, counted from its last response.
            (None, Some(since)) => (ConnectionPhase::Opening, since.max(*idle)),
            (None, None) => (ConnectionPhase::Idle, *idle),
        };
        activity.connection.set_phase(phase, since);
    }
}

/// Returns the size of a request's decompressed header fields, in bytes.
fn header_bytes<B>(request: &http_types::Request<B>) -> usize {
    request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

impl<F, R> Future for Dispatch<F, R>
where
    F: Fn(IncomingRequest) -> R + Unpin,
    R: Future<Output = ExchangeEnd>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.activity.connection.register_task(cx);
        let mut progress = Poll::Pending;
        if this.activity.time_slice.begin(cx) {
            progress = this.make_progress(cx);
            this.publish_activity();
        }
        if this.activity.connection.is_stuck() { Poll::Ready(()) } else { progress }
    }
}
