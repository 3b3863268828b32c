//! Converts an HTTP/2 request to an actix request, with the same contents as over HTTP/1.1.

use std::net::SocketAddr;

use actix_http::body::BoxBody;
use actix_http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use actix_http::{Method, Payload, Request, Response, StatusCode, Uri, Version};
use http_types::request::Parts;

use super::body::Http2RequestBody;
use crate::server::connections;

/// Maximum number of header fields of a request, as over HTTP/1.1.
const MAX_HEADER_FIELDS: usize = 96;
const MALFORMED_METHOD: Http2Rejection = Http2Rejection::Malformed(":method: invalid");
const MALFORMED_PATH: Http2Rejection = Http2Rejection::Malformed(":path: invalid");

/// Converts the request of an HTTP/2 stream to an actix request.
///
/// # Errors
/// When the request is malformed or has more than [`MAX_HEADER_FIELDS`] header fields.
pub(super) fn convert_request(
    parts: Parts,
    body: Option<Http2RequestBody>,
    peer: SocketAddr,
) -> Result<Request, Http2Rejection> {
    if parts.headers.len() > MAX_HEADER_FIELDS {
        return Err(Http2Rejection::TooLarge);
    }
    let mut request = Request::new();
    if let Some(body) = body {
        *request.payload() = Payload::Stream { payload: Box::pin(body) };
    }
    let head = request.head_mut();
    head.version = Version::HTTP_2;
    head.peer_addr = Some(peer);
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).map_err(|_| MALFORMED_METHOD)?;
    head.uri = match (parts.uri.path_and_query(), parts.uri.authority()) {
        (Some(path), _) => Uri::try_from(path.as_str()).map_err(|_| MALFORMED_PATH)?,
        (None, Some(authority)) => Uri::try_from(authority.as_str()).map_err(|_| MALFORMED_PATH)?,
        (None, None) => return Err(MALFORMED_PATH),
    };
    copy_headers(&parts, &mut head.headers).ok_or(Http2Rejection::Malformed("invalid header field"))?;
    if let Some(authority) = parts.uri.authority() {
        let authority = authority.as_str();
        // If a request has both `:authority` and `host`, they must be equal.
        if head.headers.get_all(HOST).any(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes())) {
            return Err(Http2Rejection::Malformed("host: differs from :authority"));
        }
        head.headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| MALFORMED_PATH)?);
    }
    Ok(request)
}

fn copy_headers(parts: &Parts, headers: &mut HeaderMap) -> Option<()> {
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    Some(())
}

/// The reason why the server rejects an HTTP/2 request without calling the app.
pub(super) enum Http2Rejection {
    TooLarge,
    /// The request is malformed. The text for the client describes the problem.
    Malformed(&'static str),
}

impl Http2Rejection {
    /// Renders the response to a rejected request. Counts the request in the metrics, because the app, which counts all
    /// others, does not see it.
    pub(super) fn into_response(self) -> Response<BoxBody> {
        let (status_label, status, text) = match self {
            Self::TooLarge => {
                let text = format!("request head: more than {MAX_HEADER_FIELDS} header fields");
                ("431", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
            }
            Self::Malformed(text) => ("400", StatusCode::BAD_REQUEST, text.to_owned()),
        };
        connections::count_rejected_request(status_label);
        let body = serde_json::json!({ "errors": [text] }).to_string();
        Response::build(status).insert_header((CONTENT_TYPE, "application/json")).body(body).map_into_boxed_body()
    }
}
