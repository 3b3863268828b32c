//! HTTP/1.1 request bodies. While a handler waits for more of a body, the connection counts as waiting for its client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_http::Payload;
use actix_http::error::PayloadError;
use bytes::Bytes;
use futures_util::Stream;

use crate::server::connection::Connection;

/// Maximum number of bytes of a chunked body that are read before the handler asks for them.
pub(super) const CHUNKED_READ_AHEAD_BYTES: u64 = 64 << 10;

/// Wraps the body of the current request on a connection, so that waiting for it changes the phase of the connection.
pub(super) fn track_body_reads(payload: Payload, connection: &Arc<Connection>, is_chunked: bool) -> Payload {
    let awaited = TrackedRequestBody { payload, connection: Arc::clone(connection), is_chunked };
    Payload::Stream { payload: Box::pin(awaited) }
}

/// A request body that tells its connection when the handler begins and ends to wait for more data.
struct TrackedRequestBody {
    payload: Payload,
    connection: Arc<Connection>,
    /// `true` for a chunked body, whose length is known only at its end.
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
