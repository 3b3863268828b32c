//! Builds the audit records of projects API requests.
//!
//! A [`Trail`] follows a request from start to response, and gathers the fields of its audit entries while an audit
//! device is enabled. Nothing inside a session waits for a device, so an audited read identifies its caller before its
//! session begins.

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

pub(super) struct Trail<'a> {
    record: Record<'a>,
    seen: Option<Box<Seen<'a>>>,
    deadline: Instant,
}

struct Seen<'a> {
    id: &'a RequestId,
    trace: Option<TraceContext>,
    operation: &'a str,
    path: &'a str,
    address: Option<IpAddr>,
    token: Option<Secret>,
    /// The caller, in the form in which rows refer to callers.
    caller: Option<String>,
    body: Bytes,
}

impl<'a> Trail<'a> {
    /// `raw_path` is the path below `/api/v2/`.
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

    /// The time at which the request is aborted.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// `true` if an audit device is enabled.
    pub(super) fn is_kept(&self) -> bool {
        self.record.is_kept()
    }

    pub(super) fn skip(&mut self) {
        self.record.skip();
        self.seen = None;
    }

    pub(super) fn shown(&mut self, token: Option<&Secret>) {
        if let Some(seen) = &mut self.seen {
            seen.token = token.cloned();
        }
    }

    pub(super) fn known(&mut self, caller: Option<&Caller>) {
        if let Some(seen) = &mut self.seen {
            seen.caller = caller.map(Caller::reference);
        }
    }

    /// Stores the body. The bytes own their memory reservation.
    pub(super) fn sent(&mut self, body: &Bytes) {
        if let Some(seen) = &mut self.seen {
            seen.body = body.clone();
        }
    }

    /// Records the request before its handler runs. After an error, the handler must not run.
    pub(super) async fn intent(&mut self) -> Result<(), Refusal> {
        let Self { record, seen, deadline } = self;
        Ok(record.intent(|| seen.as_ref().map(|seen| seen.request()), *deadline).await?)
    }

    /// Records the outcome and returns it, or the error if it cannot be recorded.
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

fn operation(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD => "read",
        Method::POST => "create",
        Method::PATCH => "update",
        Method::DELETE => "delete",
        _ => method.as_str(),
    }
}

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
