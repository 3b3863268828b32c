//! An audit entry: a request, and the step that the entry records (intent, refusal or outcome).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::auth::mounts::Mount;
use crate::auth::token::TokenResponse;
use crate::auth::wrapping::WrapInfo;
use crate::clock::Time;
use crate::derived_values::DerivedValues;
use crate::error::{Kind, Result};
use crate::fields::Fields;

/// An audit entry for one step of a request.
pub struct AuditEntry<'e> {
    /// The time at which the entry was created.
    pub time: Time,
    /// The request.
    pub request: &'e AuditRequest<'e>,
    /// The step of the request that this entry records.
    pub step: AuditStep<'e>,
}

/// A recorded step of a request.
#[derive(Clone, Copy)]
pub enum AuditStep<'e> {
    /// The request passed all checks; its handler runs once this entry is recorded.
    Intent,
    /// The request was rejected; no handler runs.
    Refusal(&'e AuditRefusal<'e>),
    /// The response that is about to be sent.
    Outcome(&'e AuditOutcome<'e>),
}

/// A request, as far as it was parsed.
#[derive(Default)]
pub struct AuditRequest<'r> {
    /// The request id, which is also in the response.
    pub id: &'r str,
    /// The trace id of the request.
    pub trace_id: Option<&'r str>,
    /// The operation, such as `read`, `list` or `update`; else the HTTP method.
    pub operation: &'r str,
    /// The path as policies see it, without `/v1/` or `/api/v2/`. An invalid path is given as the client sent it.
    pub path: &'r str,
    /// The mount of the path. It determines which fields are not hashed.
    pub mount: Option<&'r Mount>,
    /// The address of the client.
    pub remote_address: Option<IpAddr>,
    /// The token as sent, valid or not.
    pub token: Option<&'r str>,
    /// The caller; `None` if it is not authenticated.
    pub caller: Option<AuditCaller<'r>>,
    /// The request body, if it was read.
    pub data: AuditData<'r>,
}

/// An authenticated caller.
#[derive(Default)]
pub struct AuditCaller<'r> {
    /// The display name of the caller.
    pub display_name: Cow<'r, str>,
    /// The accessor of the token; empty if it has none.
    pub accessor: &'r str,
    /// The entity of the token; empty if there is none.
    pub entity_id: &'r str,
    /// The policies of the token.
    pub policies: &'r [String],
    /// The policies of the entity.
    pub identity_policies: &'r [String],
    /// The metadata of the token.
    pub metadata: Option<&'r BTreeMap<String, String>>,
    /// The creation time of the token, if known.
    pub created_at: Option<Time>,
    /// The expiry of the token; `None` if there is none or it is unknown.
    pub expires_at: Option<Time>,
    /// A cache for the rendered form of this caller, stored together with the caller's token.
    pub derived: Option<&'r DerivedValues>,
}

impl<'r> AuditCaller<'r> {
    /// Creates a caller that has only a display name, without a token of the secrets service.
    pub fn named(name: impl Into<Cow<'r, str>>) -> Self {
        Self { display_name: name.into(), ..Self::default() }
    }
}

/// The reason for an error response.
pub struct AuditRefusal<'r> {
    /// The error kind.
    pub kind: Kind,
    /// The messages in the response.
    pub texts: Vec<&'r str>,
}

/// The outcome of a request.
pub struct AuditOutcome<'r> {
    /// The HTTP status.
    pub status: u16,
    /// The response, or the error.
    pub answer: Result<AuditResponse<'r>, AuditRefusal<'r>>,
}

/// A successful response.
#[derive(Default)]
pub struct AuditResponse<'r> {
    /// The response body.
    pub data: AuditData<'r>,
    /// The token in the response, if it contains one.
    pub auth: Option<&'r TokenResponse>,
    /// The lease id in the response, if it contains one.
    pub lease: Option<&'r str>,
    /// The wrapping information, if the response was wrapped. The wrapped response itself is not recorded.
    pub wrapping: Option<&'r WrapInfo>,
    /// The warnings in the response.
    pub warnings: &'r [String],
}

/// A request or response body.
#[derive(Clone, Copy, Default)]
pub enum AuditData<'r> {
    /// No body.
    #[default]
    None,
    /// The parsed fields of a request.
    Fields(&'r Fields),
    /// A parsed JSON value.
    Json(&'r Value),
    /// JSON that is not parsed, as text.
    JsonText(&'r [u8]),
    /// A body of the given media type that is not parsed.
    Raw {
        /// The media type.
        media_type: &'r str,
        /// The bytes of the body.
        bytes: &'r [u8],
    },
    /// A body that is generated while it is sent: CRLs, which are public, and long lists of names.
    Streamed {
        /// The media type.
        media_type: &'r str,
        /// The length in bytes, if known.
        bytes: Option<usize>,
    },
}
