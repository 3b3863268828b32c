//! The result of a handler, which the pipeline renders.

use std::pin::Pin;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::Stream;
use serde_json::Value;

use crate::auth::token::TokenResponse;
use crate::auth::wrapping::{WrapInfo, WrappedResponse};
use crate::error::Warnings;
use crate::http::sender::SenderReservation;
use crate::secret::PartlySecret;

/// Seconds for which clients may cache certificates and lists. Short, because they may change at any time and
/// revalidation is cheap.
pub const MAX_AGE_SECONDS: u64 = 60;

/// The result of a handler.
#[derive(Default)]
pub struct HandlerResponse {
    /// HTTP status; 0 selects it by the body (200 with a body, 204 without).
    pub status: u16,
    /// The body.
    pub body: ResponseBody,
    /// Warnings of the endpoint. They change an empty 204 to a 200 with `data` null.
    pub warnings: Warnings,
    /// Additional headers. A `cache-control` header replaces the default `no-store`.
    pub headers: Vec<(&'static str, String)>,
    /// The lease that the response grants to the caller.
    pub lease: Option<ResponseLease>,
    /// Validators for conditional requests (RFC 9110, 13).
    pub validators: Option<CacheValidators>,
    /// The memory that is reserved for the response until it is sent.
    pub reservation: SenderReservation,
}

/// Validators of a resource.
pub struct CacheValidators {
    /// The strong entity tag, without quotes; `None` for bodies that differ with each request.
    pub tag: Option<String>,
    /// Time of the last change in epoch seconds; `None` if the resource has states that no date distinguishes.
    pub modified: Option<i64>,
    /// Time in seconds for which clients may cache the response.
    pub max_age: u64,
}

impl CacheValidators {
    /// Validators of a body that is the same for all callers. The entity tag is its SHA-256.
    pub fn of(body: &[u8], modified: Option<i64>, max_age: u64) -> Self {
        let tag = digest(&SHA256, body).as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        Self { tag: Some(tag), modified, max_age }
    }
}

/// A lease, as the envelope shows it.
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
    /// `data` of the envelope as JSON text, for frequent responses and for responses with a private key.
    Rendered(PartlySecret),
    /// `data` of the envelope, repeated at the top level (some `sys/` responses).
    DataAndTop(Value),
    /// `auth` of the envelope.
    Auth(Box<TokenResponse>),
    /// JSON without an envelope (`sys/health`).
    Plain(Value),
    /// Bytes with a media type, without an envelope (certificates).
    Raw(&'static str, bytes::Bytes),
    /// As `Raw`, in pieces (CRLs).
    RawPieces(&'static str, BodyPieces),
    /// `data` of the envelope as JSON text in three parts, the second in pieces.
    RenderedPieces(String, BodyPieces, String),
    /// `data` of the envelope as JSON text that is read from storage while it is sent (long lists).
    Streamed(PieceStream),
    /// `wrap_info` of the envelope, the replacement for a wrapped response.
    Wrapped(Box<WrapInfo>),
    /// An unwrapped response, as it was stored.
    Unwrapped(WrappedResponse),
}

impl ResponseBody {
    /// Returns the approximate memory in bytes that the body occupies while it is sent.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Empty | Self::Auth(_) | Self::Wrapped(_) => 0,
            Self::Data(value) | Self::Plain(value) => estimate_json_len(value),
            Self::DataAndTop(value) => 2 * estimate_json_len(value),
            Self::Rendered(text) => text.len(),
            Self::Raw(_, bytes) => bytes.len(),
            Self::Unwrapped(kept) => kept.body.expose().len(),
            // Bodies that are produced while they are sent have limits of their own.
            Self::RawPieces(..) | Self::RenderedPieces(..) | Self::Streamed(_) => 0,
        }
    }
}

/// Returns the approximate length of the JSON text of a value.
fn estimate_json_len(value: &Value) -> usize {
    /// Quotes and a comma or a colon.
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

/// A body whose pieces are produced, or shared, while they are sent.
pub struct BodyPieces {
    /// Total length in bytes.
    pub len: usize,
    /// The pieces, in order.
    pub pieces: Box<dyn Iterator<Item = bytes::Bytes> + Send>,
}

/// A body of unknown length that is read while it is sent. It ends with the first error, and the response is then
/// incomplete.
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

    /// Creates the response of a list of keys. An empty list is a 404 with an empty error list, as clients expect.
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

/// A 204 response, or a 200 response if there are warnings.
impl From<Warnings> for HandlerResponse {
    fn from(warnings: Warnings) -> Self {
        Self { warnings, ..Self::default() }
    }
}
