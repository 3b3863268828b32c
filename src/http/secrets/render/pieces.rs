//! Bodies that are sent piece by piece: each is taken, or read, when the connection has room for it.

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

use crate::error::{Error, Kind};
use crate::http::request_id::RequestId;
use crate::http::secrets::answer::{Pieces, Reading};
use crate::telemetry::{self, outage};

/// The pieces of a body. Its length is known, so it is not sent in chunks of HTTP.
pub(super) struct InPieces {
    len: u64,
    pieces: Option<Box<dyn Iterator<Item = Bytes> + Send>>,
}

impl InPieces {
    /// For a `head` the length alone is of interest: no piece is made.
    pub(super) fn new(pieces: Pieces, head: bool) -> Self {
        Self { len: pieces.len as u64, pieces: (!head).then_some(pieces.pieces) }
    }
}

impl MessageBody for InPieces {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.len)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        // An empty piece would be taken for the end.
        let pieces = self.get_mut().pieces.as_mut();
        Poll::Ready(pieces.and_then(|pieces| pieces.find(|piece| !piece.is_empty())).map(Ok))
    }
}

/// A body that is read while it is sent. Nobody knows its length: it is sent in chunks of HTTP, and when it cannot be
/// read to its end, the last one of them never comes.
pub(super) struct Read {
    pieces: Option<Reading>,
    id: RequestId,
}

impl Read {
    /// The body of the answer to a request.
    pub(super) fn new(pieces: Reading, id: RequestId) -> Self {
        Self { pieces: Some(pieces), id }
    }

    /// What the client gets in the place of the rest.
    fn broken_off(&mut self, error: &Error) -> BrokenOff {
        self.pieces = None;
        let is_trouble = matches!(error.kind(), Kind::Internal | Kind::Unavailable | Kind::BadGateway);
        match outage::told(error) {
            Some(why) if is_trouble => tracing::error!(request = %self.id, "an answer was broken off: {why}"),
            Some(why) => tracing::info!(request = %self.id, "an answer was broken off: {why}"),
            None => {}
        }
        BrokenOff
    }
}

impl MessageBody for Read {
    type Error = BrokenOff;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let this = self.get_mut();
        loop {
            let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
            // A panic would end the connection, over HTTP/2 with all of its requests.
            let polled = catch_unwind(AssertUnwindSafe(|| pieces.as_mut().poll_next(cx))).unwrap_or_else(|_| {
                metrics::counter!(telemetry::PANICS).increment(1);
                Poll::Ready(Some(Err(Error::internal("a list panicked"))))
            });
            return match polled {
                // It would be taken for the end.
                Poll::Ready(Some(Ok(piece))) if piece.is_empty() => continue,
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.broken_off(&error)))),
                Poll::Ready(Some(Ok(piece))) => Poll::Ready(Some(Ok(piece))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

/// What stands in the place of the rest of a body: its connection, or its stream of HTTP/2, ends without it. By its name
/// the log leaves out that the HTTP library tells of it, too.
#[derive(Debug)]
pub(super) struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rest of the answer cannot be read")
    }
}

impl std::error::Error for BrokenOff {}
