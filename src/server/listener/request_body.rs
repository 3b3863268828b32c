//! HTTP/1.1 request bodies: while a handler waits for more of one, the connection counts as waiting for its client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_http::Payload;
use actix_http::error::PayloadError;
use bytes::Bytes;
use futures_util::Stream;

use crate::server::connection::Connection;

/// Bytes of a chunked body that are read ahead of the handler.
pub(super) const CHUNKED_READ_AHEAD_BYTES: u64 = 64 << 10;

/// Wraps the body of the current request on a connection.
pub(super) fn track_body_reads(payload: Payload, connection: &Arc<Connection>, is_chunked: bool) -> Payload {
    let awaited = TrackedRequestBody { payload, connection: Arc::clone(connection), is_chunked };
    Payload::Stream { payload: Box::pin(awaited) }
}

/// A body that reports when its reader waits.
struct TrackedRequestBody {
    payload: Payload,
    connection: Arc<Connection>,
    /// The length of a chunked body is known only at its end.
    is_chunked: bool,
}

impl Stream for TrackedRequestBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.payload).poll_next(cx);
        match &polled {
            Poll::Pending => self.connection.begin_body_wait(),
            Poll::Ready(piece) => {
                self.connection.end_body_wait();
                if self.is_chunked {
                    self.connection.expect_body(if matches!(piece, Some(Ok(_))) {
                        CHUNKED_READ_AHEAD_BYTES
                    } else {
                        0
                    });
                }
            }
        }
        polled
    }
}

impl Drop for TrackedRequestBody {
    fn drop(&mut self) {
        self.connection.end_body_wait();
    }
}
