//! Bodies that are sent in pieces. Each piece is produced when the connection can send it.

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

use crate::error::{Error, Kind};
use crate::http::request_id::RequestId;
use crate::http::secrets::handler_response::{BodyPieces, PieceStream};
use crate::telemetry::{self, outage};

/// A body in pieces of known total length, sent with `Content-Length`.
pub(super) struct SizedBody {
    len: u64,
    pieces: Option<Box<dyn Iterator<Item = Bytes> + Send>>,
}

impl SizedBody {
    /// Creates a body. A response to HEAD (`head`) uses only its length.
    pub(super) fn new(pieces: BodyPieces, head: bool) -> Self {
        Self { len: pieces.len as u64, pieces: (!head).then_some(pieces.pieces) }
    }
}

impl MessageBody for SizedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.len)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        // The HTTP library takes an empty piece for the end of the body.
        let pieces = self.get_mut().pieces.as_mut();
        Poll::Ready(pieces.and_then(|pieces| pieces.find(|piece| !piece.is_empty())).map(Ok))
    }
}

/// A body of unknown length, which is read while it is sent with chunked encoding. After an error the last chunk is not
/// sent, so that the client detects that the body is incomplete.
pub(super) struct StreamedBody {
    pieces: Option<PieceStream>,
    id: RequestId,
}

impl StreamedBody {
    pub(super) fn new(pieces: PieceStream, id: RequestId) -> Self {
        Self { pieces: Some(pieces), id }
    }

    /// Ends the body and logs `error`, the reason.
    fn abort(&mut self, error: &Error) -> AbortedBody {
        self.pieces = None;
        let is_trouble = matches!(error.kind(), Kind::Internal | Kind::Unavailable | Kind::BadGateway);
        match outage::describe_for_log(error) {
            Some(why) if is_trouble => tracing::error!(request = %self.id, "response aborted: {why}"),
            Some(why) => tracing::info!(request = %self.id, "response aborted: {why}"),
            None => {}
        }
        AbortedBody
    }
}

impl MessageBody for StreamedBody {
    type Error = AbortedBody;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AbortedBody>>> {
        let this = self.get_mut();
        loop {
            let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
            // A panic would end the connection, and over HTTP/2 all requests on it.
            let polled = catch_unwind(AssertUnwindSafe(|| pieces.as_mut().poll_next(cx))).unwrap_or_else(|_| {
                metrics::counter!(telemetry::HANDLER_PANICS).increment(1);
                Poll::Ready(Some(Err(Error::internal("the source of a streamed list panicked"))))
            });
            return match polled {
                // The HTTP library takes an empty piece for the end of the body.
                Poll::Ready(Some(Ok(piece))) if piece.is_empty() => continue,
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.abort(&error)))),
                Poll::Ready(Some(Ok(piece))) => Poll::Ready(Some(Ok(piece))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

/// The error that aborts the connection or HTTP/2 stream. The log filter recognizes this type by name, and drops the
/// HTTP library's message about it.
#[derive(Debug)]
pub(super) struct AbortedBody;

impl fmt::Display for AbortedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server aborted the response")
    }
}

impl std::error::Error for AbortedBody {}
