//! What the audit is told of a request of this wire.
//!
//! A [`Trail`] goes with a request from its first line to its answer. While somebody listens it keeps what
//! entries tell, and nobody in a session waits for a device: a read finds out who asks before its session begins.

use std::net::IpAddr;
use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::http::Method;
use bytes::Bytes;

use super::render;
use super::render::Written;
use crate::audit::{self, Data, Outcome, Record, Refused, Request, Response};
use crate::http::address::caller_address;
use crate::http::request_id::RequestId;
use crate::http::state::Shared;
use crate::projects::caller::Caller;
use crate::projects::refusal::Refusal;
use crate::secret::Secret;
use crate::telemetry::TraceContext;

/// The record of one request, and what it is told.
pub(super) struct Trail<'a> {
    record: Record<'a>,
    seen: Option<Box<Seen<'a>>>,
    deadline: Instant,
}

/// What has been learnt of a request.
struct Seen<'a> {
    id: &'a RequestId,
    trace: Option<TraceContext>,
    operation: &'a str,
    path: &'a str,
    address: Option<IpAddr>,
    token: Option<Secret>,
    /// Who asks, as rows name them.
    caller: Option<String>,
    body: Bytes,
}

impl<'a> Trail<'a> {
    /// Of a request whose path below `/api/v2/` is `raw_path`.
    pub(super) fn new(
        shared: &'a Shared,
        request: &'a HttpRequest,
        raw_path: &'a str,
        id: &'a RequestId,
        trace: Option<TraceContext>,
    ) -> Self {
        let record = shared.audit.record();
        let seen = record.is_kept().then(|| {
            let operation = operation(request.method());
            let address = caller_address(request, &shared.settings.trusted_proxies).ok().flatten();
            let (token, caller, body) = (None, None, Bytes::new());
            Box::new(Seen { id, trace, operation, path: raw_path, address, token, caller, body })
        });
        Self { record, seen, deadline: Instant::now() + shared.settings.max_duration }
    }

    /// When the request has taken too long.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether somebody listens.
    pub(super) fn is_kept(&self) -> bool {
        self.record.is_kept()
    }

    /// Of this request nothing is recorded.
    pub(super) fn skip(&mut self) {
        self.record.skip();
        self.seen = None;
    }

    /// Takes note of the token that was sent.
    pub(super) fn shown(&mut self, token: Option<&Secret>) {
        if let Some(seen) = &mut self.seen {
            seen.token = token.cloned();
        }
    }

    /// Takes note of who asks.
    pub(super) fn known(&mut self, caller: Option<&Caller>) {
        if let Some(seen) = &mut self.seen {
            seen.caller = caller.map(Caller::reference);
        }
    }

    /// Takes note of what was sent. The bytes hold their room themselves.
    pub(super) fn sent(&mut self, body: &Bytes) {
        if let Some(seen) = &mut self.seen {
            seen.body = body.clone();
        }
    }

    /// Before a handler runs, which it must not do after a refusal.
    pub(super) async fn intent(&mut self) -> Result<(), Refusal> {
        let Self { record, seen, deadline } = self;
        Ok(record.intent(|| seen.as_ref().map(|seen| seen.request()), *deadline).await?)
    }

    /// The outcome, once it is recorded; else why it cannot be.
    pub(super) async fn recorded(&mut self, outcome: Result<Written, Refusal>) -> Result<Written, Refusal> {
        let Some(seen) = &self.seen else { return outcome };
        let told = self.record.outcome(&seen.request(), &of(&outcome), self.deadline).await;
        if let (Err(_), Err(refusal)) = (&told, &outcome) {
            render::log(refusal, seen.id);
        }
        told?;
        outcome
    }
}

impl Seen<'_> {
    fn request(&self) -> Request<'_> {
        let caller = self.caller.as_deref().map(audit::Caller::named);
        let data = match &self.body[..] {
            [] => Data::None,
            bytes => Data::Raw { media_type: render::MEDIA_TYPE, bytes },
        };
        Request {
            id: self.id.as_str(),
            trace_id: self.trace.as_ref().map(TraceContext::trace_id),
            operation: self.operation,
            path: self.path,
            mount: None,
            remote_address: self.address,
            token: self.token.as_ref().and_then(Secret::expose_text),
            caller,
            data,
        }
    }
}

/// The word of what a method does; the method itself where it does nothing here.
fn operation(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD => "read",
        Method::POST => "create",
        Method::PATCH => "update",
        Method::DELETE => "delete",
        _ => method.as_str(),
    }
}

/// What a request leads to.
fn of(outcome: &Result<Written, Refusal>) -> Outcome<'_> {
    match outcome {
        Ok(Written { status, body, .. }) => {
            let data = body.as_ref().map_or(Data::None, |body| Data::JsonText(body.as_bytes()));
            Outcome { status: status.as_u16(), answer: Ok(Response { data, ..Response::default() }) }
        }
        Err(refusal) => {
            let texts = refusal.faults.iter().map(|fault| &*fault.detail).collect();
            let refused = Refused { kind: refusal.kind, texts };
            Outcome { status: render::status(refusal.kind), answer: Err(refused) }
        }
    }
}
