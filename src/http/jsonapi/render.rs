//! Renders HTTP responses: documents, errors, common headers.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::reply::RenderedResult;
use crate::error::Kind;
use crate::http::entity_tag::EntityTags;
use crate::http::rate::RemainingRate;
use crate::http::request_id::RequestId;
use crate::http::sender::SenderReservation;
use crate::projects::rejection::{ApiRejection, Fault, FaultSource};

/// The API version that responses report; known clients require at least 2.5.
const API_VERSION: &str = "2.6";

/// The media type of JSON:API.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.api+json";
/// `Retry-After` of 429 and 503 responses.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A rendered response without its common headers.
#[derive(Default)]
pub(super) struct RenderedResponse {
    pub(super) status: StatusCode,
    pub(super) body: Option<String>,
    pub(super) tag: Option<String>,
    location: Option<String>,
    /// The reservation in the response memory budget, held until the response is sent.
    pub(super) reservation: SenderReservation,
}

impl RenderedResponse {
    pub(super) fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::default() }
    }

    pub(super) fn of(reply: RenderedResult) -> Self {
        let (status, document, location) = match reply {
            RenderedResult::Empty => return Self::empty(),
            RenderedResult::Document(document) => (StatusCode::OK, document, None),
            RenderedResult::Created { document, location } => (StatusCode::CREATED, document, location),
        };
        let body = document.value().to_string();
        Self { status, tag: Some(entity_tag(body.as_bytes())), body: Some(body), location, ..Self::default() }
    }

    pub(super) fn byte_len(&self) -> usize {
        self.body.as_ref().map_or(0, String::len)
    }
}

fn entity_tag(body: &[u8]) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest(&SHA256, body).as_ref()[..18]))
}

pub(super) fn build_response(written: RenderedResponse, id: &RequestId, rate: Option<RemainingRate>) -> HttpResponse {
    let RenderedResponse { status, body, tag, location, .. } = written;
    let mut response = match body {
        Some(body) => HttpResponse::build(status).content_type(MEDIA_TYPE).body(body),
        None => HttpResponse::build(status).finish(),
    };
    let headers = response.headers_mut();
    if let Some(tag) = tag {
        set_header(headers, ETAG, &tag);
    }
    if let Some(location) = location {
        set_header(headers, LOCATION, &location);
    }
    set_common_headers(headers, id, rate);
    response
}

/// Renders a 304 response if the client has the current document (RFC 9110, 13.1.2 and 15.4.5).
pub(super) fn not_modified(
    written: &RenderedResponse,
    request_headers: &HeaderMap,
    id: &RequestId,
    rate: Option<RemainingRate>,
) -> Option<HttpResponse> {
    let sent = EntityTags::of(request_headers, IF_NONE_MATCH)?;
    let known = sent.matching_tag(written.tag.as_deref()?)?;
    let mut response = HttpResponse::NotModified().finish();
    let headers = response.headers_mut();
    set_header(headers, ETAG, known);
    set_common_headers(headers, id, rate);
    Some(response)
}

pub(super) fn build_refusal(refusal: &ApiRejection, id: &RequestId, rate: Option<RemainingRate>) -> HttpResponse {
    let status = status(refusal.kind);
    let internal = [Fault { title: None, detail: format!("internal error, request {id}").into(), source: None }];
    let faults = if refusal.kind == Kind::Internal { &internal[..] } else { &refusal.faults };
    let errors: Vec<Value> = faults.iter().map(|fault| error_object(refusal.kind, status, fault)).collect();
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(code).content_type(MEDIA_TYPE).body(json!({ "errors": errors }).to_string());
    let headers = response.headers_mut();
    if status == 401 {
        // A 401 response must contain this header (RFC 9110, 15.5.2, and RFC 6750, 3).
        set_header(headers, WWW_AUTHENTICATE, "Bearer");
    }
    if matches!(status, 429 | 503) {
        set_header(headers, RETRY_AFTER, &DEFAULT_RETRY_AFTER.as_secs().to_string());
    }
    if let Some(seconds) = refusal.retry_after {
        set_header(headers, RETRY_AFTER, &seconds.ceil().to_string());
    }
    set_common_headers(headers, id, rate);
    response
}

pub(super) fn log_refusal(refusal: &ApiRejection, id: &RequestId) {
    match refusal.kind {
        Kind::Internal | Kind::Unavailable | Kind::BadGateway => {
            if let Some(why) = refusal.log_text() {
                tracing::error!(request = %id, "{why}");
            }
        }
        kind => tracing::debug!(request = %id, "refused: {}", kind.description()),
    }
}

/// Renders an error object. The status is a string: known clients discard errors with a numeric status.
fn error_object(kind: Kind, status: u16, fault: &Fault) -> Value {
    let mut object = Map::new();
    object.insert("status".to_owned(), status.to_string().into());
    object.insert("title".to_owned(), fault.title.unwrap_or_else(|| error_title(kind, fault)).into());
    object.insert("detail".to_owned(), (*fault.detail).into());
    match &fault.source {
        Some(FaultSource::Pointer(pointer)) => object.insert("source".to_owned(), json!({ "pointer": pointer })),
        Some(FaultSource::Parameter(name)) => object.insert("source".to_owned(), json!({ "parameter": name })),
        None => None,
    };
    object.into()
}

pub(super) fn status(kind: Kind) -> u16 {
    status_and_title(kind).0
}

/// Maps an error kind to the status and the title of the projects API.
fn status_and_title(kind: Kind) -> (u16, &'static str) {
    match kind {
        Kind::Malformed => (400, "bad request"),
        Kind::Invalid => (422, "unprocessable entity"),
        Kind::Unauthenticated => (401, "unauthorized"),
        Kind::Forbidden => (403, "forbidden"),
        Kind::NotFound => (404, "not found"),
        Kind::UnsupportedMethod => (405, "method not allowed"),
        Kind::Conflict => (409, "conflict"),
        Kind::Precondition => (412, "precondition failed"),
        Kind::TooLarge => (413, "payload too large"),
        Kind::UnsupportedMedia => (415, "unsupported media type"),
        Kind::Quota => (429, "Too many requests"),
        Kind::HeadersTooLarge => (431, "request header fields too large"),
        Kind::BadGateway => (502, "bad gateway"),
        Kind::Busy | Kind::Unavailable => (503, "service unavailable"),
        Kind::Internal => (500, "internal server error"),
    }
}

fn error_title(kind: Kind, fault: &Fault) -> &'static str {
    let of_attribute = |source: &FaultSource| matches!(source, FaultSource::Pointer(pointer) if pointer.starts_with("/data/attributes/") || pointer.starts_with("/data/relationships/"));
    match kind {
        Kind::Invalid if fault.source.as_ref().is_some_and(of_attribute) => "invalid attribute",
        kind => status_and_title(kind).1,
    }
}

fn set_common_headers(headers: &mut HeaderMap, id: &RequestId, rate: Option<RemainingRate>) {
    set_header(headers, CACHE_CONTROL, "no-cache, private");
    set_header(headers, HeaderName::from_static("tfp-api-version"), API_VERSION);
    set_header(headers, HeaderName::from_static("x-request-id"), id.as_str());
    if let Some(left) = rate {
        set_header(headers, HeaderName::from_static("x-ratelimit-limit"), &left.limit.to_string());
        set_header(headers, HeaderName::from_static("x-ratelimit-remaining"), &left.remaining.to_string());
        set_header(headers, HeaderName::from_static("x-ratelimit-reset"), &format!("{:.3}", left.reset));
    }
}

pub(super) fn set_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::MessageBody as _;

    #[test]
    fn error_status_is_text_and_internal_causes_are_hidden() {
        let cause = crate::error::Error::internal("the secret cause");
        let response = super::build_refusal(&cause.into(), &RequestId::random(), None);
        let body = response.into_body().try_into_bytes().ok().unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["errors"][0]["status"], "500");
        assert!(!body.to_string().contains("secret"));
    }
}
