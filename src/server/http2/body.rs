//! The body of a request: what its reader gets, and what becomes of the rest.
//!
//! An answer may be whole before the body of its request is; the stream is reset then, without an error (RFC 9113,
//! 8.1). There are clients that lose the answer when that meets them in the middle of their sending. So a short
//! rest is read and thrown away, beside the answer and for a little while after it, and the stream ends by itself.
//! How short and how long is in `bounds`; of what is longer the stream is reset.

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

/// Where a reader leaves what it did not read.
type Left = Rc<Cell<Option<RecvStream>>>;

/// A body for its reader. Its sender may send more when some of it is read, not before.
pub(super) struct Body {
    stream: Option<RecvStream>,
    activity: Rc<Activity>,
    /// While its reader waits for more.
    receiving: Option<Receiving>,
    /// Nowhere when the body is known to be long.
    left: Option<Left>,
}

/// What is left of a body when its reader has gone.
pub(super) struct Rest {
    left: Left,
    stream: Option<RecvStream>,
    /// How much may still come.
    most: usize,
}

/// The body of a request with these fields, if it has one, and what will be left of it.
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
                // The last frame is often an empty one.
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
    /// Throws away what has come. Ready when nothing is left, or more than is waited for: that is the stream's to
    /// refuse.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(stream) = self.found() {
            match ready!(next(stream, cx)) {
                Some(Ok(chunk)) if chunk.len() <= self.most => self.most -= chunk.len(),
                _ => self.stream = None,
            }
        }
        Poll::Ready(())
    }

    /// Waits until nothing is left, not for long.
    pub(super) async fn ended(mut self) {
        if self.found().is_some() {
            let _ = timeout(PATIENCE, poll_fn(|cx| self.poll(cx))).await;
        }
    }

    /// The stream, once its reader has gone.
    fn found(&mut self) -> Option<&mut RecvStream> {
        if let Some(stream) = self.left.take() {
            self.stream = Some(stream);
        }
        self.stream.as_mut()
    }
}

/// The next piece of a body; as much may come after it.
fn next(stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let read = ready!(stream.poll_data(cx));
    Poll::Ready(read.map(|read| {
        let chunk = read?;
        stream.flow_control().release_capacity(chunk.len())?;
        Ok(chunk)
    }))
}
