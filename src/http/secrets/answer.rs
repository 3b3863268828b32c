//! What a handler answers; the pipeline renders it.

use std::pin::Pin;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::Stream;
use serde_json::Value;

use crate::auth::token::Given;
use crate::auth::wrapping::{Wrapped, Wrapping};
use crate::error::Warnings;
use crate::http::budget::Room;
use crate::secret::PartlySecret;

/// Seconds for which certificates and lists may be kept without asking again: others may come at any time,
/// and asking costs next to nothing.
pub const MAX_AGE: u64 = 60;

/// The answer of a handler.
#[derive(Default)]
pub struct Answer {
    /// HTTP status; 0 lets the body decide (200 with one, 204 without).
    pub status: u16,
    /// The body.
    pub body: Body,
    /// Warnings of the endpoint itself. They turn an empty 204 into a 200 with `data` null.
    pub warnings: Warnings,
    /// Further headers; a `cache-control` here replaces the default `no-store`.
    pub headers: Vec<(&'static str, String)>,
    /// The lease that the caller got with the answer.
    pub lease: Option<Lease>,
    /// What a conditional request is held against (RFC 9110 13).
    pub validators: Option<Validators>,
    /// What it takes of the memory until its client has it.
    pub room: Room,
}

/// What tells one state of a resource from another.
pub struct Validators {
    /// The strong entity tag, without quotes; none for bodies that differ with every request.
    pub tag: Option<String>,
    /// When the resource changed last, epoch seconds; none where a date does not tell its states apart.
    pub modified: Option<i64>,
    /// How long it may be kept without asking again, seconds.
    pub max_age: u64,
}

impl Validators {
    /// Of a resource whose body is a whole and the same for everyone: tagged with its SHA-256.
    pub fn of(body: &[u8], modified: Option<i64>, max_age: u64) -> Self {
        let tag = digest(&SHA256, body).as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        Self { tag: Some(tag), modified, max_age }
    }
}

/// A lease, as the envelope shows it.
pub struct Lease {
    /// `<path>/<random>`.
    pub id: String,
    /// Whole seconds that are left.
    pub seconds: u64,
    /// Whether it can be renewed.
    pub renewable: bool,
}

/// The body of an answer.
#[derive(Default)]
pub enum Body {
    /// Nothing: 204.
    #[default]
    Empty,
    /// `data` of the envelope.
    Data(Value),
    /// `data` of the envelope, already JSON text (the hot path, and whatever holds a private key).
    Rendered(PartlySecret),
    /// `data` of the envelope, repeated at the top level (some `sys/` answers).
    DataAndTop(Value),
    /// `auth` of the envelope.
    Auth(Box<Given>),
    /// JSON without an envelope (`sys/health`).
    Plain(Value),
    /// Bytes with a media type, without an envelope (certificates).
    Raw(&'static str, bytes::Bytes),
    /// As `Raw`, in pieces (CRLs).
    RawPieces(&'static str, Pieces),
    /// `data` of the envelope, JSON text in three parts, the second in pieces.
    RenderedPieces(String, Pieces, String),
    /// `data` of the envelope, JSON text that is read from storage while it is sent (long lists).
    Listed(Reading),
    /// `wrap_info` of the envelope: what is given in the place of an answer that was put away.
    Wrapped(Box<Wrapping>),
    /// An answer that was put away, as it would have been sent then.
    Unwrapped(Wrapped),
}

impl Body {
    /// Octets of it that are in the memory while it is sent, about.
    pub fn octets(&self) -> usize {
        match self {
            Self::Empty | Self::Auth(_) | Self::Wrapped(_) => 0,
            Self::Data(value) | Self::Plain(value) => octets(value),
            Self::DataAndTop(value) => 2 * octets(value),
            Self::Rendered(text) => text.len(),
            Self::Raw(_, bytes) => bytes.len(),
            Self::Unwrapped(kept) => kept.body.expose().len(),
            // Whoever makes them while they are sent bounds them.
            Self::RawPieces(..) | Self::RenderedPieces(..) | Self::Listed(_) => 0,
        }
    }
}

/// About how long the text of a value is.
fn octets(value: &Value) -> usize {
    /// Of quotes, a comma or a colon.
    const BESIDE: usize = 4;
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(octets).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + BESIDE + octets(value)).sum(),
    };
    within + BESIDE
}

/// Bytes that are made, or taken from where they are shared, while they are sent.
pub struct Pieces {
    /// Octets of all of them.
    pub len: usize,
    /// The pieces, in order.
    pub pieces: Box<dyn Iterator<Item = bytes::Bytes> + Send>,
}

/// Bytes that are read while they are sent: nobody knows how many there will be. After an error there are no more, and
/// what was sent is no answer.
pub type Reading = Pin<Box<dyn Stream<Item = crate::error::Result<bytes::Bytes>> + Send>>;

impl Answer {
    /// 204.
    pub fn empty() -> Self {
        Self::default()
    }

    /// 200 with `data`.
    pub fn data(value: Value) -> Self {
        Body::Data(value).into()
    }

    /// 200 with `data` that is JSON text already.
    pub fn rendered(json: impl Into<PartlySecret>) -> Self {
        Body::Rendered(json.into()).into()
    }

    /// 200 with `auth`.
    pub fn auth(given: Given) -> Self {
        Body::Auth(Box::new(given)).into()
    }

    /// 200 with raw bytes.
    pub fn raw(media_type: &'static str, bytes: impl Into<bytes::Bytes>) -> Self {
        Body::Raw(media_type, bytes.into()).into()
    }

    /// 200 with raw bytes that may be asked for with conditions; `modified` as in [`Validators`].
    pub fn kept(media_type: &'static str, bytes: impl Into<bytes::Bytes>, modified: i64) -> Self {
        let bytes = bytes.into();
        let validators = Validators::of(&bytes, Some(modified), MAX_AGE);
        Self::raw(media_type, bytes).with_validators(validators)
    }

    /// The keys of a list: 404 with an empty error list when there are none (the wire's convention).
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

    /// Lets callers ask whether it changed.
    #[must_use]
    pub fn with_validators(mut self, validators: Validators) -> Self {
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

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        Self { body, ..Self::default() }
    }
}
