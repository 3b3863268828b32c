//! Builds the audit records of projects API requests.
//!
//! A [`ProjectsRequestAudit`] follows a request from start to response, and gathers the fields of its audit entries
//! while an audit device is enabled. Nothing inside a session waits for a device, so the caller of an audited read is
//! identified before the session begins.

use std::net::IpAddr;
use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::http::Method;
use bytes::Bytes;

use super::render;
use super::render::RenderedResponse;
use crate::audit::{self, AuditData, AuditOutcome, AuditRecorder, AuditRefusal, AuditRequest, AuditResponse};
use crate::http::address::caller_address;
use crate::http::request_id::RequestId;
use crate::http::state::ServerState;
use crate::projects::caller::ProjectsCaller;
use crate::projects::rejection::ApiRejection;
use crate::secret::Secret;
use crate::telemetry::TraceContext;

pub(super) struct ProjectsRequestAudit<'a> {
    record: AuditRecorder<'a>,
    fields: Option<Box<ProjectsAuditFields<'a>>>,
    deadline: Instant,
}

struct ProjectsAuditFields<'a> {
    id: &'a RequestId,
    trace: Option<TraceContext>,
    operation: &'a str,
    path: &'a str,
    address: Option<IpAddr>,
    token: Option<Secret>,
    /// The caller's [`reference`](ProjectsCaller::reference), the form in which stored rows name their creators.
    caller: Option<String>,
    body: Bytes,
}

impl<'a> ProjectsRequestAudit<'a> {
    /// Starts the audit of a request. `raw_path` is its path below `/api/v2/`.
    pub(super) fn new(
        shared: &'a ServerState,
        request: &'a HttpRequest,
        raw_path: &'a str,
        id: &'a RequestId,
        trace: Option<TraceContext>,
    ) -> Self {
        let record = shared.audit.recorder();
        let fields = record.is_enabled().then(|| {
            let operation = operation_name(request.method());
            let address = caller_address(request, &shared.settings.trusted_proxies).ok().flatten();
            let token = None;
            let caller = None;
            let body = Bytes::new();
            Box::new(ProjectsAuditFields { id, trace, operation, path: raw_path, address, token, caller, body })
        });
        Self { record, fields, deadline: Instant::now() + shared.settings.max_duration }
    }

    /// Returns the time at which the request is aborted.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// `true` if an audit device is enabled.
    pub(super) fn is_enabled(&self) -> bool {
        self.record.is_enabled()
    }

    pub(super) fn skip(&mut self) {
        self.record.skip();
        self.fields = None;
    }

    pub(super) fn set_token(&mut self, token: Option<&Secret>) {
        if let Some(fields) = &mut self.fields {
            fields.token = token.cloned();
        }
    }

    pub(super) fn set_caller(&mut self, caller: Option<&ProjectsCaller>) {
        if let Some(fields) = &mut self.fields {
            fields.caller = caller.map(ProjectsCaller::reference);
        }
    }

    /// Stores the request body. The bytes own their memory reservation.
    pub(super) fn set_body(&mut self, body: &Bytes) {
        if let Some(fields) = &mut self.fields {
            fields.body = body.clone();
        }
    }

    /// Writes the request record to the audit devices before the handler runs. After an error, the handler must not
    /// run.
    pub(super) async fn record_intent(&mut self) -> Result<(), ApiRejection> {
        let Self { record, fields, deadline } = self;
        Ok(record.record_intent(|| fields.as_ref().map(|fields| fields.audit_request()), *deadline).await?)
    }

    /// Writes the response record to the audit devices. Returns `outcome`, or an error if the record cannot be written.
    pub(super) async fn record_outcome(
        &mut self,
        outcome: Result<RenderedResponse, ApiRejection>,
    ) -> Result<RenderedResponse, ApiRejection> {
        let Some(fields) = &self.fields else { return outcome };
        let recorded =
            self.record.record_outcome(&fields.audit_request(), &audit_outcome(&outcome), self.deadline).await;
        if let (Err(_), Err(refusal)) = (&recorded, &outcome) {
            render::log_refusal(refusal, fields.id);
        }
        recorded?;
        outcome
    }
}

impl ProjectsAuditFields<'_> {
    fn audit_request(&self) -> AuditRequest<'_> {
        let caller = self.caller.as_deref().map(audit::AuditCaller::named);
        let data = match &self.body[..] {
            [] => AuditData::None,
            bytes => AuditData::Raw { media_type: render::MEDIA_TYPE, bytes },
        };
        AuditRequest {
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

fn operation_name(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD => "read",
        Method::POST => "create",
        Method::PATCH => "update",
        Method::DELETE => "delete",
        _ => method.as_str(),
    }
}

fn audit_outcome(outcome: &Result<RenderedResponse, ApiRejection>) -> AuditOutcome<'_> {
    match outcome {
        Ok(RenderedResponse { status, body, .. }) => {
            let data = body.as_ref().map_or(AuditData::None, |body| AuditData::JsonText(body.as_bytes()));
            AuditOutcome { status: status.as_u16(), answer: Ok(AuditResponse { data, ..AuditResponse::default() }) }
        }
        Err(refusal) => {
            let texts = refusal.faults.iter().map(|fault| &*fault.detail).collect();
            let refused = AuditRefusal { kind: refusal.kind, texts };
            AuditOutcome { status: render::status(refusal.kind), answer: Err(refused) }
        }
    }
}
