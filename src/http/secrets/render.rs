//! Renders responses: envelope, error body, status, headers.

pub(super) mod conditional;
mod pieces;

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::None as NoBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::Value;

use self::pieces::{SizedBody, StreamedBody};
use super::handler_response::{BodyPieces, HandlerResponse, PieceStream, ResponseBody, ResponseLease};
use super::json_object::JsonObjectBuilder;
use crate::auth::token::TokenResponse;
use crate::auth::wrapping::WrapInfo;
use crate::clock::format_rfc3339;
use crate::error::{Error, Kind, Result, Warnings};
use crate::http::request_id::RequestId;
use crate::secret::{PartlySecret, Secret};

/// The media type of all responses but raw ones. Clients compare it byte for byte, so it has no parameters.
pub const JSON_MEDIA_TYPE: &str = "application/json";

static REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Maps an error kind to the HTTP status of the secrets service.
pub fn status(kind: Kind) -> u16 {
    match kind {
        Kind::Malformed | Kind::Invalid | Kind::Conflict => 400,
        Kind::Unauthenticated | Kind::Forbidden => 403,
        Kind::NotFound => 404,
        Kind::UnsupportedMethod => 405,
        Kind::Precondition => 412,
        Kind::TooLarge => 413,
        Kind::UnsupportedMedia => 415,
        Kind::Quota => 429,
        Kind::HeadersTooLarge => 431,
        Kind::Internal => 500,
        Kind::BadGateway => 502,
        Kind::Busy | Kind::Unavailable => 503,
    }
}

/// Request data that the pipeline adds to a response.
#[derive(Default)]
pub struct RenderContext<'a> {
    /// The type of the mount in the path.
    pub mount_type: &'a str,
    /// Warnings about the request's fields. They are added if the response has an envelope; a response without an
    /// envelope does not get one. (If a write ignored a field, the handler's response already contains the warnings.)
    pub field_warnings: Warnings,
    /// The request's headers, if it is a GET or HEAD request and may be conditional.
    pub headers: Option<&'a HeaderMap>,
    /// `true` for a HEAD request.
    pub head: bool,
    /// The current time in epoch seconds.
    pub now: i64,
}

/// Renders the HTTP response from the result of a handler.
pub fn render_response(answer: HandlerResponse, id: &RequestId, context: RenderContext<'_>) -> HttpResponse {
    let status = status_of(&answer, context.headers);
    let HandlerResponse { body, warnings, headers, lease, validators, .. } = answer;
    let bodiless = matches!(status, 204 | 304);
    let head = context.head;
    let now = context.now;
    let request_headers = context.headers;
    let (media_type, parts) = match body {
        _ if status == 304 => (JSON_MEDIA_TYPE.into(), None),
        ResponseBody::Raw(media_type, bytes) => (media_type.into(), Some(RenderedBody::Whole(bytes))),
        ResponseBody::RawPieces(media_type, pieces) => (media_type.into(), Some(RenderedBody::Pieces(pieces))),
        ResponseBody::Plain(value) => (JSON_MEDIA_TYPE.into(), Some(RenderedBody::Whole(json_bytes(&value)))),
        ResponseBody::Unwrapped(kept) => (Cow::Owned(kept.media_type), Some(RenderedBody::Whole(bytes_of(&kept.body)))),
        ResponseBody::Empty if warnings.is_empty() || bodiless => (JSON_MEDIA_TYPE.into(), None),
        body => (JSON_MEDIA_TYPE.into(), Some(envelope(body, lease.as_ref(), warnings, id, context).into())),
    };
    let mut response = HttpResponse::new(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    if let Some(parts) = parts {
        set_text(&mut response, CONTENT_TYPE, &media_type);
        response = match parts {
            RenderedBody::Whole(bytes) => response.set_body(bytes).map_into_boxed_body(),
            RenderedBody::Pieces(pieces) => response.set_body(SizedBody::new(pieces, head)).map_into_boxed_body(),
            // For HEAD, the rows are not read from the store, so the length is unknown.
            RenderedBody::Read(_) if head => response.set_body(NoBody::new()).map_into_boxed_body(),
            RenderedBody::Read(reading) => response.set_body(StreamedBody::new(reading, *id)).map_into_boxed_body(),
        };
    }
    set_common_headers(&mut response, id);
    if let Some(validators) = &validators {
        conditional::write_validators(&mut response, validators, now, request_headers);
    }
    for (name, value) in headers {
        set_text(&mut response, HeaderName::from_static(name), &value);
    }
    response
}

/// Returns the status of a response. `headers` are those of a GET or HEAD request, whose conditions may turn the status
/// into 304.
pub(super) fn status_of(answer: &HandlerResponse, headers: Option<&HeaderMap>) -> u16 {
    let validators = answer.validators.as_ref().zip(headers);
    match answer.status {
        _ if validators.is_some_and(|(validators, headers)| conditional::is_not_modified(validators, headers)) => 304,
        0 if matches!(answer.body, ResponseBody::Empty) && answer.warnings.is_empty() => 204,
        0 => 200,
        given => given,
    }
}

enum RenderedBody {
    Whole(Bytes),
    Pieces(BodyPieces),
    Read(PieceStream),
}

/// The value of `data` in an envelope, if `data` is produced while the response is sent.
enum EnvelopeMiddle {
    Pieces(BodyPieces),
    Read(PieceStream),
}

/// An envelope as text. If `data` is produced while the response is sent, the first element is the text before `data`.
/// The second element is `data` and the text after it.
type Envelope = (PartlySecret, Option<(EnvelopeMiddle, PartlySecret)>);

impl From<Envelope> for RenderedBody {
    fn from((begin, rest): Envelope) -> Self {
        let begin = Bytes::from(begin.into_bytes());
        let Some((middle, end)) = rest else { return Self::Whole(begin) };
        let end = Bytes::from(end.into_bytes());
        match middle {
            EnvelopeMiddle::Pieces(BodyPieces { len, pieces }) => {
                let len = begin.len() + len + end.len();
                let pieces = [begin].into_iter().chain(pieces).chain([end]);
                Self::Pieces(BodyPieces { len, pieces: Box::new(pieces) })
            }
            EnvelopeMiddle::Read(reading) => {
                let one = |piece| stream::iter([Ok(piece)]);
                Self::Read(Box::pin(one(begin).chain(reading).chain(one(end))))
            }
        }
    }
}

/// Renders the body of a response into memory, and returns it with its media type.
///
/// # Errors
/// `Invalid` when the body is longer than `max_bytes` bytes; errors while the body is read.
pub(super) async fn render_into_memory(
    answer: HandlerResponse,
    id: &RequestId,
    context: RenderContext<'_>,
    max_bytes: usize,
) -> Result<(String, PartlySecret)> {
    let HandlerResponse { body, warnings, lease, .. } = answer;
    let secret = |bytes: &[u8]| {
        let mut text = PartlySecret::with_capacity(bytes.len());
        text.push_secret(bytes);
        text
    };
    let (media_type, (mut begin, rest)) = match body {
        ResponseBody::Raw(media_type, bytes) => (media_type.to_owned(), (secret(&bytes), None)),
        ResponseBody::RawPieces(media_type, pieces) => (
            media_type.to_owned(),
            (PartlySecret::default(), Some((EnvelopeMiddle::Pieces(pieces), PartlySecret::default()))),
        ),
        ResponseBody::Plain(value) => (JSON_MEDIA_TYPE.to_owned(), (secret(&json_bytes(&value)), None)),
        ResponseBody::Unwrapped(kept) => (kept.media_type, (secret(kept.body.expose()), None)),
        body => (JSON_MEDIA_TYPE.to_owned(), envelope(body, lease.as_ref(), warnings, id, context)),
    };
    let fits = |bytes: usize| match bytes > max_bytes {
        true => {
            Err(Error::invalid(format!("wrap-ttl: the response exceeds the limit of {max_bytes} bytes for wrapping")))
        }
        false => Ok(()),
    };
    fits(begin.len())?;
    if let Some((middle, end)) = rest {
        match middle {
            EnvelopeMiddle::Pieces(pieces) => {
                fits(begin.len() + pieces.len + end.len())?;
                pieces.pieces.for_each(|piece| begin.push(&piece));
            }
            EnvelopeMiddle::Read(mut reading) => {
                while let Some(piece) = reading.next().await {
                    let piece = piece?;
                    fits(begin.len() + piece.len() + end.len())?;
                    begin.push(&piece);
                }
            }
        }
        begin.append(&end);
    }
    Ok((media_type, begin))
}

fn bytes_of(secret: &Secret) -> Bytes {
    Bytes::copy_from_slice(secret.expose())
}

/// Maximum `Retry-After`. A client that waits for longer appears to hang.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Renders an error: `{"errors":["…"]}`, with an empty list if the error has no text, and with `warnings` if there are
/// any. Known clients read only `errors`.
pub fn render_error(error: &Error, id: &RequestId, warnings: &[String]) -> HttpResponse {
    let status = status(error.kind());
    let body = match (error.kind(), error.text()) {
        (Kind::Internal, _) => json_bytes(&ErrorBody { errors: &[&format!("internal error, request {id}")], warnings }),
        (_, "") => json_bytes(&ErrorBody { errors: &[], warnings }),
        (_, words) => json_bytes(&ErrorBody { errors: &[words], warnings }),
    };
    let mut response = HttpResponse::new(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .set_body(body)
        .map_into_boxed_body();
    set_header(&mut response, CONTENT_TYPE, HeaderValue::from_static(JSON_MEDIA_TYPE));
    if matches!(status, 429 | 503) {
        set_header(&mut response, RETRY_AFTER, HeaderValue::from(retry_after_seconds(error)));
    }
    set_common_headers(&mut response, id);
    response
}

/// Returns the `Retry-After` value of an error in whole seconds, from 1 to [`MAX_RETRY_AFTER`].
pub(crate) fn retry_after_seconds(error: &Error) -> u64 {
    let pause = error.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
    pause.as_millis().div_ceil(1000).try_into().unwrap_or(1).max(1)
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    errors: &'a [&'a str],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

fn set_common_headers(response: &mut HttpResponse, id: &RequestId) {
    set_header(response, CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        set_header(response, REQUEST_ID_HEADER.clone(), value);
    }
}

pub(super) fn set_text(response: &mut HttpResponse, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        set_header(response, name, value);
    }
}

fn set_header(response: &mut HttpResponse, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}

/// The members of the envelope. If the members of `data` are repeated at the top level, they must not replace these.
const ENVELOPE_MEMBERS: [&str; 9] =
    ["request_id", "lease_id", "renewable", "lease_duration", "data", "wrap_info", "warnings", "auth", "mount_type"];

fn envelope(
    body: ResponseBody,
    lease: Option<&ResponseLease>,
    mut warnings: Warnings,
    id: &RequestId,
    context: RenderContext<'_>,
) -> Envelope {
    warnings.extend(context.field_warnings);
    // Private keys and tokens are copied only into this buffer, which overwrites them when it is dropped.
    let mut members = JsonObjectBuilder::with_capacity(256 + rendered_len(&body));
    // A response with a wrapping token has no request id: the wrapped response contains it.
    members.add("request_id", if matches!(body, ResponseBody::Wrapped(_)) { "" } else { id.as_str() });
    members.add("lease_id", lease.map_or("", |l| l.id.as_str()));
    members.add("renewable", &lease.is_some_and(|l| l.renewable));
    members.add("lease_duration", &lease.map_or(0, |l| l.seconds));
    let mut before = None;
    match &body {
        ResponseBody::Rendered(json) => members.add_rendered("data", json),
        ResponseBody::Data(value) | ResponseBody::DataAndTop(value) => members.add("data", value),
        ResponseBody::RenderedPieces(start, _, end) => before = Some(members.split_for_insertion("data", start, end)),
        ResponseBody::Streamed(_) => before = Some(members.split_for_insertion("data", "", "")),
        _ => members.add("data", &Value::Null),
    }
    match &body {
        ResponseBody::Wrapped(wrapping) => members.add_object("wrap_info", |info| add_wrapping(info, wrapping)),
        _ => members.add("wrap_info", &Value::Null),
    }
    members.add("warnings", &(!warnings.is_empty()).then_some(&*warnings));
    match &body {
        ResponseBody::Auth(given) => members.add_object("auth", |auth| add_auth(auth, given)),
        _ => members.add("auth", &Value::Null),
    }
    members.add("mount_type", context.mount_type);
    if let ResponseBody::DataAndTop(Value::Object(top)) = &body {
        for (name, value) in top.iter().filter(|(name, _)| !ENVELOPE_MEMBERS.contains(&name.as_str())) {
            members.add(name, value);
        }
    }
    let mut out = members.finish();
    out.push(b"\n");
    match (body, before) {
        (ResponseBody::RenderedPieces(_, pieces, _), Some(before)) => {
            (before, Some((EnvelopeMiddle::Pieces(pieces), out)))
        }
        (ResponseBody::Streamed(reading), Some(before)) => (before, Some((EnvelopeMiddle::Read(reading), out))),
        _ => (out, None),
    }
}

fn rendered_len(body: &ResponseBody) -> usize {
    match body {
        ResponseBody::Rendered(json) => json.len(),
        _ => 256,
    }
}

fn add_auth(members: &mut JsonObjectBuilder, given: &TokenResponse) {
    members.add_secret_text("client_token", given.token.expose_text().unwrap_or_default());
    members.add("accessor", &given.accessor);
    members.add_members(&given.members_json());
}

fn add_wrapping(members: &mut JsonObjectBuilder, wrapping: &WrapInfo) {
    members.add_secret_text("token", wrapping.token.expose_text().unwrap_or_default());
    members.add("accessor", &wrapping.accessor);
    members.add("ttl", &wrapping.ttl.as_secs());
    members.add("creation_time", &format_rfc3339(wrapping.creation_time));
    members.add("creation_path", &wrapping.creation_path);
    if let Some(accessor) = &wrapping.wrapped_accessor {
        members.add("wrapped_accessor", accessor);
    }
}

/// Renders `value` as JSON. It cannot fail, because all map keys are text.
fn json_bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::MessageBody;
    use serde_json::json;

    fn shown(given: HandlerResponse, field_warnings: &[&str]) -> (u16, Value) {
        let context = RenderContext {
            mount_type: "pki",
            field_warnings: field_warnings.iter().map(|s| (*s).to_owned()).collect(),
            ..RenderContext::default()
        };
        let response = render_response(given, &RequestId::random(), context);
        let status = response.status().as_u16();
        let bytes = response.into_body().try_into_bytes().unwrap_or_default();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    #[test]
    fn envelope_always_has_all_members() {
        for body in [
            ResponseBody::Data(json!({"a": 1})),
            ResponseBody::Rendered("{\"a\":1}".to_owned().into()),
            ResponseBody::Auth(Box::default()),
        ] {
            let (status, shown) = shown(body.into(), &[]);
            assert_eq!(status, 200);
            for name in ENVELOPE_MEMBERS {
                assert!(shown.get(name).is_some(), "{name}");
            }
            assert_eq!((&shown["lease_id"], &shown["warnings"]), (&json!(""), &Value::Null));
            assert_eq!(shown["lease_duration"], json!(0));
        }
        assert_eq!(shown(HandlerResponse::rendered("{\"a\":[1]}".to_owned()), &[]).1["data"], json!({"a": [1]}));
    }

    #[test]
    fn token_response_has_all_members_with_the_token_first() {
        let given =
            TokenResponse { token: Secret::new("s.hunter2"), accessor: "a".to_owned(), ..TokenResponse::default() };
        let response = render_response(HandlerResponse::auth(given), &RequestId::random(), RenderContext::default());
        let bytes = response.into_body().try_into_bytes().unwrap_or_default();
        let auth = r#""auth":{"client_token":"s.hunter2","accessor":"a","entity_id":"","lease_duration":0,"#;
        assert!(String::from_utf8_lossy(&bytes).contains(auth));
        let auth = &serde_json::from_slice::<Value>(&bytes).unwrap()["auth"];
        assert_eq!((&auth["metadata"], &auth["token_policies"]), (&Value::Null, &json!([])));
        assert_eq!((&auth["mfa_requirement"], auth.get("identity_policies")), (&Value::Null, None));
    }

    #[test]
    fn optional_warnings_never_change_a_204_to_a_200() {
        assert_eq!(shown(HandlerResponse::empty(), &["bogus"]), (204, Value::Null));
        let (status, with_own) = shown(HandlerResponse::empty().with_warnings(["folded".to_owned()]), &["bogus"]);
        assert_eq!((status, &with_own["data"]), (200, &Value::Null));
        assert_eq!(with_own["warnings"], json!(["folded", "bogus"]));
    }

    #[test]
    fn data_repeated_at_top_level_shadows_no_envelope_key() {
        let (_, shown) = shown(ResponseBody::DataAndTop(json!({"pki/": {"type": "pki"}, "auth": 1})).into(), &[]);
        assert_eq!(shown["pki/"], shown["data"]["pki/"]);
        assert_eq!((&shown["auth"], &shown["data"]["auth"]), (&Value::Null, &json!(1)));
    }

    #[test]
    fn envelope_renders_the_lease() {
        let lease = Some(ResponseLease { id: "pki/issue/web/x".into(), seconds: 60, renewable: false });
        let (_, shown) = shown(HandlerResponse { lease, ..HandlerResponse::data(json!({})) }, &[]);
        assert_eq!((&shown["lease_id"], &shown["lease_duration"]), (&json!("pki/issue/web/x"), &json!(60)));
    }

    #[test]
    fn error_body_is_a_list_and_hides_internal_causes() {
        let body = |error: Error| {
            let response = super::render_error(&error, &RequestId::random(), &[]);
            assert_eq!(response.headers().get(CONTENT_TYPE).unwrap(), JSON_MEDIA_TYPE);
            let status = response.status().as_u16();
            (status, String::from_utf8(response.into_body().try_into_bytes().unwrap_or_default().to_vec()).unwrap())
        };
        assert_eq!(body(Error::not_found()), (404, "{\"errors\":[]}".into()));
        assert_eq!(body(Error::forbidden()), (403, "{\"errors\":[\"permission denied\"]}".into()));
        let (status, text) = body(Error::internal("the secret cause"));
        assert!(status == 500 && text.starts_with("{\"errors\":[\"internal error, request "), "{text}");
        let busy = super::render_error(&Error::new(Kind::Busy, "queue full"), &RequestId::random(), &[]);
        assert_eq!((busy.status().as_u16(), busy.headers().get(RETRY_AFTER).unwrap().as_bytes()), (503, &b"1"[..]));
    }
}
