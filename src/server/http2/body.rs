//! HTTP/2 request bodies, and the handling of the part that the handler has not read.
//!
//! The server may complete the response before the client has sent the whole request body, and then reset the stream
//! without an error (RFC 9113, 8.1). Some clients lose the response if the reset arrives while they are sending. So the
//! server reads and discards a short unread rest, during the response and for [`DISCARD_TIMEOUT`] after it, and the
//! stream ends normally. If the rest is longer than [`MAX_DISCARDED_BODY_BYTES`], the stream is reset.

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

use super::bounds::{DISCARD_TIMEOUT, MAX_DISCARDED_BODY_BYTES};
use super::transport::{BodyWaitGuard, Http2Activity};

/// A cell that receives the stream of a request body when the body is dropped before its end.
type UnreadStreamCell = Rc<Cell<Option<RecvStream>>>;

/// A request body. The client may send more (flow control) only as the handler reads.
pub(super) struct Http2RequestBody {
    stream: Option<RecvStream>,
    activity: Rc<Http2Activity>,
    /// Set while the handler waits for more of the body.
    receiving: Option<BodyWaitGuard>,
    /// The cell that receives the stream when the body is dropped. `None` if the declared length exceeds
    /// [`MAX_DISCARDED_BODY_BYTES`].
    unread_cell: Option<UnreadStreamCell>,
}

/// The unread rest of a request body, which is discarded after the handler has dropped the body.
pub(super) struct UnreadBodyRest {
    unread_cell: UnreadStreamCell,
    stream: Option<RecvStream>,
    /// Number of bytes that may still be discarded before the stream is reset.
    discardable: usize,
}

/// Returns the body of a request, if it has one, and the handle for discarding the unread rest.
pub(super) fn split_body(
    fields: &HeaderMap,
    stream: RecvStream,
    activity: &Rc<Http2Activity>,
) -> (Option<Http2RequestBody>, UnreadBodyRest) {
    let rest = UnreadBodyRest {
        unread_cell: UnreadStreamCell::default(),
        stream: None,
        discardable: MAX_DISCARDED_BODY_BYTES,
    };
    if stream.is_end_stream() {
        return (None, rest);
    }
    let declared = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let is_long = declared.is_some_and(|length| length > MAX_DISCARDED_BODY_BYTES as u64);
    let unread_cell = (!is_long).then(|| Rc::clone(&rest.unread_cell));
    (Some(Http2RequestBody { stream: Some(stream), activity: Rc::clone(activity), receiving: None, unread_cell }), rest)
}

impl Stream for Http2RequestBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Self { stream: Some(stream), activity, receiving, .. } = &mut *self else { return Poll::Ready(None) };
            let Poll::Ready(read) = poll_chunk(stream, cx) else {
                receiving.get_or_insert_with(|| BodyWaitGuard::begin(activity));
                return Poll::Pending;
            };
            *receiving = None;
            match read {
                // An empty chunk is skipped: the last DATA frame is often empty.
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

impl Drop for Http2RequestBody {
    fn drop(&mut self) {
        if let (Some(stream), Some(unread_cell)) = (self.stream.take(), &self.unread_cell) {
            unread_cell.set(Some(stream));
        }
    }
}

impl UnreadBodyRest {
    /// Discards the bytes that have arrived, if the handler has dropped the body. Ready at the end of the body, or when
    /// more than [`MAX_DISCARDED_BODY_BYTES`] arrived and the stream was reset.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(stream) = self.unread_stream() {
            match ready!(poll_chunk(stream, cx)) {
                Some(Ok(chunk)) if chunk.len() <= self.discardable => self.discardable -= chunk.len(),
                _ => self.stream = None,
            }
        }
        Poll::Ready(())
    }

    /// Discards the unread rest of the body, for at most [`DISCARD_TIMEOUT`].
    pub(super) async fn discard_rest(mut self) {
        if self.unread_stream().is_some() {
            let _ = timeout(DISCARD_TIMEOUT, poll_fn(|cx| self.poll(cx))).await;
        }
    }

    /// Returns the stream of the unread rest; `None` if the handler still has the body, or nothing is left.
    fn unread_stream(&mut self) -> Option<&mut RecvStream> {
        if let Some(stream) = self.unread_cell.take() {
            self.stream = Some(stream);
        }
        self.stream.as_mut()
    }
}

/// Reads the next chunk of a request body, and enlarges the flow control window by its length.
fn poll_chunk(stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let read = ready!(stream.poll_data(cx));
    Poll::Ready(read.map(|read| {
        let chunk = read?;
        stream.flow_control().release_capacity(chunk.len())?;
        Ok(chunk)
    }))
}
