//! A request of HTTP/2 as the app knows requests: with the fields that it would have over HTTP/1.1.

use std::net::SocketAddr;

use actix_http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use actix_http::{Method, Payload, Request, StatusCode, Uri, Version};
use http_types::request::Parts;

use super::body::Body;

/// Most fields of a request, as over HTTP/1.1.
const MOST_FIELDS: usize = 96;

/// The request of a stream.
///
/// # Errors
/// The status to refuse it with.
pub(super) fn request(parts: Parts, body: Option<Body>, peer: SocketAddr) -> Result<Request, StatusCode> {
    let malformed = |_| StatusCode::BAD_REQUEST;
    if parts.headers.len() > MOST_FIELDS {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let mut request = Request::new();
    if let Some(body) = body {
        *request.payload() = Payload::Stream { payload: Box::pin(body) };
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
