//! Request bodies over HTTP/2, and their unread rest.
//!
//! A response may be complete before the request body is; the stream is then reset without an error (RFC 9113,
//! 8.1). Some clients lose the response if the reset arrives while they are sending. So a short rest is read
//! and discarded, during the response and for [`PATIENCE`] after it, and the stream ends normally. A rest
//! longer than [`REST`] is reset.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use bytes::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use http_types::HeaderMap;
use http_types::header::CONTENT_LENGTH;
use tokio::time::timeout;

use super::bounds::{PATIENCE, REST};
use super::wire::{Activity, Receiving};

/// The cell into which a dropped body puts its stream.
type Left = Rc<Cell<Option<RecvStream>>>;

/// A request body. The flow control window opens only as the handler reads.
pub(super) struct Body {
    stream: Option<RecvStream>,
    activity: Rc<Activity>,
    /// Set while the reader waits for more.
    receiving: Option<Receiving>,
    /// `None` if the body is known to be longer than [`REST`].
    left: Option<Left>,
}

/// The unread rest of a body after its reader was dropped.
pub(super) struct Rest {
    left: Left,
    stream: Option<RecvStream>,
    /// Bytes that may still be discarded.
    most: usize,
}

/// Splits a request stream into the body, if there is one, and the handle for its unread rest.
pub(super) fn parted(fields: &HeaderMap, stream: RecvStream, activity: &Rc<Activity>) -> (Option<Body>, Rest) {
    let rest = Rest { left: Left::default(), stream: None, most: REST };
    if stream.is_end_stream() {
        return (None, rest);
    }
    let declared = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let is_long = declared.is_some_and(|length| length > REST as u64);
    let left = (!is_long).then(|| Rc::clone(&rest.left));
    (Some(Body { stream: Some(stream), activity: Rc::clone(activity), receiving: None, left }), rest)
}

impl Stream for Body {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Self { stream: Some(stream), activity, receiving, .. } = &mut *self else { return Poll::Ready(None) };
            let Poll::Ready(read) = next(stream, cx) else {
                receiving.get_or_insert_with(|| Receiving::begin(activity));
                return Poll::Pending;
            };
            *receiving = None;
            match read {
                // The last DATA frame is often empty.
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                end => {
                    self.stream = None;
                    return Poll::Ready(end.map(|_| Err(PayloadError::Incomplete(None))));
                }
            }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let (Some(stream), Some(left)) = (self.stream.take(), &self.left) {
            left.set(Some(stream));
        }
    }
}

impl Rest {
    /// Discards what has arrived. Ready when nothing is left, or when it was more than [`REST`];
    /// the stream is then reset.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(stream) = self.found() {
            match ready!(next(stream, cx)) {
                Some(Ok(chunk)) if chunk.len() <= self.most => self.most -= chunk.len(),
                _ => self.stream = None,
            }
        }
        Poll::Ready(())
    }

    /// Waits until nothing is left, for at most [`PATIENCE`].
    pub(super) async fn ended(mut self) {
        if self.found().is_some() {
            let _ = timeout(PATIENCE, poll_fn(|cx| self.poll(cx))).await;
        }
    }

    /// The stream, once the reader was dropped.
    fn found(&mut self) -> Option<&mut RecvStream> {
        if let Some(stream) = self.left.take() {
            self.stream = Some(stream);
        }
        self.stream.as_mut()
    }
}

/// Reads the next piece of a body and opens the window by its length.
fn next(stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let read = ready!(stream.poll_data(cx));
    Poll::Ready(read.map(|read| {
        let chunk = read?;
        stream.flow_control().release_capacity(chunk.len())?;
        Ok(chunk)
    }))
}
