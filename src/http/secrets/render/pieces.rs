//! A body that is sent piece by piece: each is taken when the connection has room for it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

use crate::http::secrets::answer::Pieces;

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
