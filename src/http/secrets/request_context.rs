//! Collects the data of a request for its response, its access log entry and its audit records.

use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;

use super::audit::{self, AuditFields};
use super::cors::PageOrigin;
use super::handler_response::HandlerResponse;
use super::quota::QuotaResult;
use super::request::ParsedRequest;
use super::target::ResolvedRoute;
use super::warnings::FieldWarnings;
use super::{EntryPoint, PUBLIC_NOT_FOUND_ERROR, log_error};
use crate::audit::AuditRecorder;
use crate::error::{Error, Kind, Result};
use crate::http::access::AccessLogEntry;
use crate::http::address::caller_address;
use crate::http::state::WorkerState;

pub(super) struct RequestContext<'a> {
    pub(super) entry_point: EntryPoint,
    pub(super) method: &'a str,
    pub(super) raw_path: &'a str,
    pub(super) log_entry: AccessLogEntry,
    pub(super) field_warnings: FieldWarnings,
    /// Maximum size of the request body in bytes.
    pub(super) body_limit: usize,
    pub(super) compressible: bool,
    /// The origin of the web page that sent the request.
    pub(super) page_origin: PageOrigin,
    /// The result of counting the request against its rate limit quota; `None` if none was applied.
    pub(super) quota: Option<QuotaResult>,
    /// The methods that the path supports, if the requested method is not among them.
    pub(super) allowed_methods: Option<String>,
    record: AuditRecorder<'a>,
    /// The data for the audit record; `None` if no audit device is enabled, or the request is not audited.
    pub(super) audit_fields: Option<Box<AuditFields>>,
    /// The time at which the request is aborted.
    pub(super) deadline: Instant,
}

impl<'a> RequestContext<'a> {
    pub(super) fn new(
        entry_point: EntryPoint,
        state: &'a WorkerState,
        request: &'a HttpRequest,
        raw_path: &'a str,
        log_entry: AccessLogEntry,
    ) -> Self {
        let record = state.audit.recorder();
        let audit_fields = record.is_enabled().then(|| {
            let address = caller_address(request, &state.settings.trusted_proxies);
            Box::new(AuditFields::of_address(address.ok().flatten()))
        });
        Self {
            entry_point,
            log_entry,
            method: request.method().as_str(),
            raw_path,
            field_warnings: FieldWarnings::default(),
            body_limit: state.settings.max_body,
            compressible: false,
            page_origin: PageOrigin::None,
            quota: None,
            allowed_methods: None,
            audit_fields,
            record,
            deadline: Instant::now() + state.settings.max_duration,
        }
    }

    fn skip_audit(&mut self) {
        self.record.skip();
        self.audit_fields = None;
    }

    /// Returns the error for a path that the public listener does not serve. The request is not audited, because any
    /// client of that listener could fill the audit log.
    pub(super) fn reject_non_public(&mut self) -> Error {
        self.skip_audit();
        Error::new(Kind::NotFound, PUBLIC_NOT_FOUND_ERROR)
    }

    /// Handles CORS. Returns `true` for a preflight, which needs no handler. It is not audited, because it changes
    /// nothing and needs no token.
    pub(super) fn handle_cors(&mut self, state: &WorkerState, request: &HttpRequest) -> Result<bool> {
        if self.entry_point == EntryPoint::Public {
            return Ok(false);
        }
        let (page_origin, permitted) = PageOrigin::of(request, &state.auth.cors());
        self.page_origin = page_origin;
        if self.page_origin.is_preflight() {
            self.skip_audit();
        }
        permitted.map(|()| self.page_origin.is_preflight())
    }

    /// Stores the resolved route for the access log and the audit record.
    pub(super) fn set_route(&mut self, target: &ResolvedRoute, parsed: &ParsedRequest) {
        self.log_entry.mount.clone_from(&target.mount);
        if let Some(route) = target.meter(parsed.operation) {
            self.log_entry.route = route;
        }
        if !target.is_audited() {
            self.skip_audit();
        }
        if let Some(audit_fields) = &mut self.audit_fields {
            audit_fields.operation_and_path = Some((parsed.operation, parsed.path.clone()));
        }
    }

    /// Stores the quota result, and rejects the request if it exceeds the quota.
    pub(super) fn apply_quota(&mut self, quota: Option<QuotaResult>, parsed: &ParsedRequest) -> Result<()> {
        let Some(quota) = quota else { return Ok(()) };
        if quota.is_rejected_unaudited() {
            self.skip_audit();
        }
        self.quota.insert(quota).check(&parsed.path)
    }

    /// Writes the request record to the audit devices before the handler runs.
    pub(super) async fn audit_intent(&mut self) -> Result<()> {
        let Self { log_entry, method, raw_path, audit_fields, record, deadline, .. } = self;
        record
            .record_intent(
                || audit_fields.as_ref().map(|audit_fields| audit_fields.audit_request(log_entry, method, raw_path)),
                *deadline,
            )
            .await
    }

    /// Writes the response record to the audit devices. Returns `outcome`, or an error if the record cannot be written.
    pub(super) async fn audit_outcome(
        &mut self,
        outcome: Result<HandlerResponse>,
        conditions: Option<&HeaderMap>,
    ) -> Result<HandlerResponse> {
        let Some(audit_fields) = &self.audit_fields else { return outcome };
        let request = audit_fields.audit_request(&self.log_entry, self.method, self.raw_path);
        let audited =
            self.record.record_outcome(&request, &audit::audit_outcome(&outcome, conditions), self.deadline).await;
        match (&audited, &outcome) {
            (Err(_), Err(error)) => log_error(error, &self.log_entry.id),
            (Err(_), Ok(answer)) if audit_fields.is_write() => {
                let request = &self.log_entry.id;
                let serial_number = audit::serial_number(answer).unwrap_or_default();
                tracing::error!(
                    %request,
                    serial_number,
                    "the request succeeded but its audit record failed; the response was withheld"
                );
            }
            _ => {}
        }
        audited.and(outcome)
    }
}
