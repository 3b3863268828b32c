//! The result of a handler in the secrets service, which the pipeline renders as the response.

use std::pin::Pin;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::Stream;
use serde_json::Value;

use crate::auth::token::TokenResponse;
use crate::auth::wrapping::{WrapInfo, WrappedResponse};
use crate::error::Warnings;
use crate::http::sender::SenderReservation;
use crate::secret::PartlySecret;

/// Seconds for which clients may cache certificates and lists. The time is short, because these objects may change at
/// any time, and revalidation is cheap.
pub const MAX_AGE_SECONDS: u64 = 60;

/// The result of a handler in the secrets service.
#[derive(Default)]
pub struct HandlerResponse {
    /// HTTP status. With 0, it is 200 if there is a body and 204 otherwise.
    pub status: u16,
    /// The response body.
    pub body: ResponseBody,
    /// Warnings of the handler. They change a 204 without a body to a 200 with `data` null.
    pub warnings: Warnings,
    /// Additional headers. A `cache-control` header replaces the default `no-store`.
    pub headers: Vec<(&'static str, String)>,
    /// The lease that the response grants to the caller.
    pub lease: Option<ResponseLease>,
    /// Validators for conditional requests (RFC 9110, 13).
    pub validators: Option<CacheValidators>,
    /// The reservation in the response memory budget, held until the response is sent.
    pub reservation: SenderReservation,
}

/// Validators of a resource for conditional requests (RFC 9110, 8.8).
pub struct CacheValidators {
    /// The strong entity tag, without quotes; `None` if each response to the same request has a different body.
    pub tag: Option<String>,
    /// Time of the last change in epoch seconds; `None` if two states of the resource may have the same time.
    pub modified: Option<i64>,
    /// Time in seconds for which clients may cache the response.
    pub max_age: u64,
}

impl CacheValidators {
    /// Creates the validators of a body that is the same for all callers. Its entity tag is the SHA-256 of the body.
    pub fn of(body: &[u8], modified: Option<i64>, max_age: u64) -> Self {
        let tag = digest(&SHA256, body).as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        Self { tag: Some(tag), modified, max_age }
    }
}

/// The lease members of a response envelope.
pub struct ResponseLease {
    /// The lease id, `<path>/<random>`.
    pub id: String,
    /// Remaining time of the lease in whole seconds.
    pub seconds: u64,
    /// `true` if the lease can be renewed.
    pub renewable: bool,
}

/// The body of a response.
#[derive(Default)]
pub enum ResponseBody {
    /// No body: 204.
    #[default]
    Empty,
    /// `data` of the envelope.
    Data(Value),
    /// `data` of the envelope as JSON text, for frequent responses and for those with a private key.
    Rendered(PartlySecret),
    /// `data` of the envelope, repeated at the top level (some `sys/` responses).
    DataAndTop(Value),
    /// `auth` of the envelope.
    Auth(Box<TokenResponse>),
    /// JSON without an envelope (`sys/health`).
    Plain(Value),
    /// Bytes with a media type, without an envelope (certificates).
    Raw(&'static str, bytes::Bytes),
    /// As [`ResponseBody::Raw`], in pieces (CRLs).
    RawPieces(&'static str, BodyPieces),
    /// `data` of the envelope as JSON text: a beginning, a value in pieces and an end.
    RenderedPieces(String, BodyPieces, String),
    /// `data` of the envelope as JSON text that is read from storage while it is sent (long lists).
    Streamed(PieceStream),
    /// `wrap_info` of the envelope: the wrapping token that replaces a wrapped response.
    Wrapped(Box<WrapInfo>),
    /// A stored wrapped response, for the caller that unwraps it.
    Unwrapped(WrappedResponse),
}

impl ResponseBody {
    /// Returns the approximate number of bytes of memory that the body occupies while it is sent.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Empty | Self::Auth(_) | Self::Wrapped(_) => 0,
            Self::Data(value) | Self::Plain(value) => estimate_json_len(value),
            Self::DataAndTop(value) => 2 * estimate_json_len(value),
            Self::Rendered(text) => text.len(),
            Self::Raw(_, bytes) => bytes.len(),
            Self::Unwrapped(kept) => kept.body.expose().len(),
            // Bodies that are produced while they are sent have separate limits.
            Self::RawPieces(..) | Self::RenderedPieces(..) | Self::Streamed(_) => 0,
        }
    }
}

/// Returns the approximate length of the JSON text of a value.
fn estimate_json_len(value: &Value) -> usize {
    /// The quotes around a text, and a comma or a colon.
    const DELIMITER_BYTES: usize = 4;
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(estimate_json_len).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + DELIMITER_BYTES + estimate_json_len(value)).sum()
        }
    };
    within + DELIMITER_BYTES
}

/// A body in pieces that are produced while it is sent, or shared with other responses.
pub struct BodyPieces {
    /// Total length of the pieces in bytes.
    pub len: usize,
    /// The pieces, in order.
    pub pieces: Box<dyn Iterator<Item = bytes::Bytes> + Send>,
}

/// A body of unknown length that is read while it is sent. The first error ends the response, which is then incomplete.
pub type PieceStream = Pin<Box<dyn Stream<Item = crate::error::Result<bytes::Bytes>> + Send>>;

impl HandlerResponse {
    /// Creates a 204 response.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Creates a 200 response with `data`.
    pub fn data(value: Value) -> Self {
        ResponseBody::Data(value).into()
    }

    /// Creates a 200 response with `data` as JSON text.
    pub fn rendered(json: impl Into<PartlySecret>) -> Self {
        ResponseBody::Rendered(json.into()).into()
    }

    /// Creates a 200 response with `auth`.
    pub fn auth(given: TokenResponse) -> Self {
        ResponseBody::Auth(Box::new(given)).into()
    }

    /// Creates a 200 response with raw bytes.
    pub fn raw(media_type: &'static str, bytes: impl Into<bytes::Bytes>) -> Self {
        ResponseBody::Raw(media_type, bytes.into()).into()
    }

    /// Creates a 200 response with raw bytes and validators for conditional requests.
    pub fn cacheable(media_type: &'static str, bytes: impl Into<bytes::Bytes>, modified: i64) -> Self {
        let bytes = bytes.into();
        let validators = CacheValidators::of(&bytes, Some(modified), MAX_AGE_SECONDS);
        Self::raw(media_type, bytes).with_validators(validators)
    }

    /// Creates the response of a list of keys. An empty list is a 404 with an empty list of errors, as clients expect.
    pub fn keys(keys: Vec<String>, key_info: Option<Value>) -> crate::error::Result<Self> {
        if keys.is_empty() {
            return Err(crate::error::Error::not_found());
        }
        let mut data = serde_json::json!({ "keys": keys });
        if let Some(info) = key_info {
            data["key_info"] = info;
        }
        Ok(Self::data(data))
    }

    /// Sets the validators for conditional requests.
    #[must_use]
    pub fn with_validators(mut self, validators: CacheValidators) -> Self {
        self.validators = Some(validators);
        self
    }

    /// Adds warnings.
    #[must_use]
    pub fn with_warnings(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

impl From<ResponseBody> for HandlerResponse {
    fn from(body: ResponseBody) -> Self {
        Self { body, ..Self::default() }
    }
}

impl From<()> for HandlerResponse {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

/// Creates a 204 response, or a 200 response if there are warnings.
impl From<Warnings> for HandlerResponse {
    fn from(warnings: Warnings) -> Self {
        Self { warnings, ..Self::default() }
    }
}
