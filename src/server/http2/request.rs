//! A request of HTTP/2 as the app knows requests: with the fields that it would have over HTTP/1.1.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use actix_http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use actix_http::{Method, Payload, Request, StatusCode, Uri, Version};
use bytes::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use http_types::request::Parts;

/// Most fields of a request, as over HTTP/1.1.
const MOST_FIELDS: usize = 96;

/// The request of a stream.
///
/// # Errors
/// The status to refuse it with.
pub(super) fn request(parts: Parts, body: RecvStream, peer: SocketAddr) -> Result<Request, StatusCode> {
    let malformed = |_| StatusCode::BAD_REQUEST;
    if parts.headers.len() > MOST_FIELDS {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let mut request = Request::new();
    if !body.is_end_stream() {
        *request.payload() = Payload::Stream { payload: Box::pin(Body(body)) };
    }
    let head = request.head_mut();
    head.version = Version::HTTP_2;
    head.peer_addr = Some(peer);
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    head.uri = match (parts.uri.path_and_query(), parts.uri.authority()) {
        (Some(path), _) => Uri::try_from(path.as_str()).map_err(malformed)?,
        (None, Some(authority)) => Uri::try_from(authority.as_str()).map_err(malformed)?,
        (None, None) => return Err(StatusCode::BAD_REQUEST),
    };
    fields(&parts, &mut head.headers).ok_or(StatusCode::BAD_REQUEST)?;
    Ok(request)
}

/// The fields; the authority is the host (RFC 9113, 8.3.1).
fn fields(parts: &Parts, headers: &mut HeaderMap) -> Option<()> {
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    if let Some(authority) = parts.uri.authority() {
        headers.insert(HOST, HeaderValue::from_str(authority.as_str()).ok()?);
    }
    Some(())
}

/// The body of a request. Its sender may send more when some of it is read, not before.
struct Body(RecvStream);

impl Stream for Body {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let early = |_| PayloadError::Incomplete(None);
        loop {
            let Some(read) = ready!(self.0.poll_data(cx)) else { return Poll::Ready(None) };
            let chunk = read.map_err(early)?;
            self.0.flow_control().release_capacity(chunk.len()).map_err(early)?;
            // The last frame is often an empty one.
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(chunk)));
            }
        }
    }
}
