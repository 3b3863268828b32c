//! What a device is told: one request, and how far it has come.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::auth::mounts::Mount;
use crate::auth::token::Given;
use crate::auth::wrapping::Wrapping;
use crate::clock::Time;
use crate::derived::Derived;
use crate::error::{Kind, Result};
use crate::fields::Fields;

/// One line of the record.
pub struct Entry<'e> {
    /// When it was made.
    pub time: Time,
    /// What was asked.
    pub request: &'e Request<'e>,
    /// How far that has come.
    pub step: Step<'e>,
}

/// How far a request has come.
#[derive(Clone, Copy)]
pub enum Step<'e> {
    /// Its handler runs once this is kept.
    Intent,
    /// No handler runs.
    Refusal(&'e Refused<'e>),
    /// What its sender is about to get.
    Outcome(&'e Outcome<'e>),
}

/// What was asked, as far as it was understood.
pub struct Request<'r> {
    /// The request's id, which its answer shows too.
    pub id: &'r str,
    /// The id of the trace that the request belongs to.
    pub trace_id: Option<&'r str>,
    /// `read`, `list`, `update` …; the method, as sent, of what is no operation.
    pub operation: &'r str,
    /// The path as policies see it, without `/v1/`, or the one below `/api/v2/`; as sent when it does not read.
    pub path: &'r str,
    /// The mount that the path leads to: its path, type and accessor, and which fields are written in clear.
    pub mount: Option<&'r Mount>,
    /// Where the caller is.
    pub remote_address: Option<IpAddr>,
    /// The token as it was sent, whether it is known or not.
    pub token: Option<&'r str>,
    /// Who asks; `None` of a stranger.
    pub caller: Option<Caller<'r>>,
    /// What was sent along, when anybody read it.
    pub data: Data<'r>,
}

/// Who asks.
pub struct Caller<'r> {
    /// The name for people.
    pub display_name: Cow<'r, str>,
    /// The token's handle, with which it can be ended; empty where tokens have none.
    pub accessor: &'r str,
    /// The entity behind the token; empty for none.
    pub entity_id: &'r str,
    /// Names of its own policies.
    pub policies: &'r [String],
    /// Names of the policies that it has by its entity.
    pub identity_policies: &'r [String],
    /// What the token's maker attached to it.
    pub metadata: Option<&'r BTreeMap<String, String>>,
    /// When the token was made, where that is known.
    pub created_at: Option<Time>,
    /// When it ends; `None` never, or not known.
    pub expires_at: Option<Time>,
    /// Where is kept what devices make of all this and of the token, whose caller is nobody else.
    pub derived: Option<&'r Derived>,
}

impl<'r> Caller<'r> {
    /// One of whom there is a name and nothing else: no token of the secrets service.
    pub fn named(name: impl Into<Cow<'r, str>>) -> Self {
        Self {
            display_name: name.into(),
            accessor: "",
            entity_id: "",
            policies: &[],
            identity_policies: &[],
            metadata: None,
            created_at: None,
            expires_at: None,
            derived: None,
        }
    }
}

/// Why there is no answer but an error.
pub struct Refused<'r> {
    /// The kind.
    pub kind: Kind,
    /// What its sender is told.
    pub texts: Vec<&'r str>,
}

/// What a request leads to.
pub struct Outcome<'r> {
    /// The status of HTTP.
    pub status: u16,
    /// The answer, or the error.
    pub answer: Result<Response<'r>, Refused<'r>>,
}

/// What is answered.
#[derive(Default)]
pub struct Response<'r> {
    /// The body.
    pub data: Data<'r>,
    /// A token that is handed out.
    pub auth: Option<&'r Given>,
    /// The lease that the caller gets with it.
    pub lease: Option<&'r str>,
    /// What is told in the place of an answer that was put away; of that one nothing is told.
    pub wrapping: Option<&'r Wrapping>,
    /// Warnings.
    pub warnings: &'r [String],
}

/// What is in a body.
#[derive(Clone, Copy, Default)]
pub enum Data<'r> {
    /// Nothing.
    #[default]
    None,
    /// The members that a request was read as.
    Fields(&'r Fields),
    /// JSON.
    Json(&'r Value),
    /// JSON that is text already.
    JsonText(&'r [u8]),
    /// Bytes of another kind.
    Raw {
        /// The media type.
        media_type: &'r str,
        /// The bytes.
        bytes: &'r [u8],
    },
    /// Bytes that are made while they are sent: lists of revoked certificates, which are public, and lists of names that
    /// are too long to be kept.
    Streamed {
        /// The media type.
        media_type: &'r str,
        /// How many; `None` where nobody knows before the last of them is sent.
        octets: Option<usize>,
    },
}
