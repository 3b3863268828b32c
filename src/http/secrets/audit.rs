//! Builds the audit records of secrets service requests.
//!
//! [`AuditFields`] is filled while a request passes through the pipeline, because the handler consumes the request
//! itself. It exists only while an audit device is enabled.

use std::net::IpAddr;

use actix_web::http::header::HeaderMap;
use serde_json::Value;

use super::handler_response::{HandlerResponse, ResponseBody};
use super::render;
use super::request::RequestToken;
use super::route::operation_name;
use super::target::ParsedBody;
use crate::audit::{self, AuditData, AuditOutcome, AuditRefusal, AuditRequest, AuditResponse};
use crate::auth::Caller;
use crate::auth::policy::Operation;
use crate::error::Error;
use crate::http::access::{AccessLogEntry, RequestCaller};
use crate::telemetry::TraceContext;

/// The fields of an audit record that are not in the [`AccessLogEntry`] of the request.
#[derive(Default)]
pub(super) struct AuditFields {
    pub(super) operation_and_path: Option<(Operation, String)>,
    address: Option<IpAddr>,
    pub(super) token: Option<RequestToken>,
    sent: Option<ParsedBody>,
}

impl AuditFields {
    pub(super) fn of_address(address: Option<IpAddr>) -> Self {
        Self { address, ..Self::default() }
    }

    /// `true` unless the request is a read or a list.
    pub(super) fn is_write(&self) -> bool {
        self.operation_and_path
            .as_ref()
            .is_some_and(|(operation, _)| !matches!(operation, Operation::Read | Operation::List))
    }

    /// Stores the parsed body, and takes over its memory reservation, because the audit record outlives the request.
    pub(super) fn store_body(&mut self, sent: &mut ParsedBody) {
        let reservation = std::mem::take(&mut sent.reservation);
        let fields = sent.fields.clone();
        let body = sent.body.clone();
        let media_type = sent.media_type.clone();
        self.sent = Some(ParsedBody { fields, body, media_type, reservation });
    }

    /// Builds the request part of the audit record. `method` and `raw_path` are used if the request could not be
    /// parsed.
    pub(super) fn audit_request<'r>(
        &'r self,
        log_entry: &'r AccessLogEntry,
        method: &'r str,
        raw_path: &'r str,
    ) -> AuditRequest<'r> {
        let (operation, path) = match &self.operation_and_path {
            Some((operation, path)) => (operation_name(*operation), &path[..]),
            None => (method, raw_path),
        };
        AuditRequest {
            id: log_entry.id.as_str(),
            trace_id: log_entry.trace.as_ref().map(TraceContext::trace_id),
            operation,
            path,
            mount: log_entry.mount.as_deref(),
            remote_address: self.address,
            token: self.token.as_ref().map(RequestToken::expose),
            caller: if let RequestCaller::Token(known) = &log_entry.caller { Some(audit_caller(known)) } else { None },
            data: self.sent.as_ref().map_or(AuditData::None, audit_data),
        }
    }
}

fn audit_data(sent: &ParsedBody) -> AuditData<'_> {
    match (sent.fields.is_empty(), sent.body.is_empty()) {
        (true, true) => AuditData::None,
        (true, false) => AuditData::Raw { media_type: &sent.media_type, bytes: &sent.body },
        (false, _) => AuditData::Fields(&sent.fields),
    }
}

fn audit_caller(caller: &Caller) -> audit::AuditCaller<'_> {
    audit::AuditCaller {
        display_name: caller.display_name.as_str().into(),
        accessor: &caller.accessor,
        entity_id: &caller.entity_id,
        policies: &caller.policies,
        identity_policies: caller.identity_policies(),
        metadata: Some(&caller.metadata),
        created_at: Some(caller.created_at),
        expires_at: caller.expires_at,
        derived: Some(&caller.derived),
    }
}

/// Builds the outcome part of the audit record. `conditions` are the headers of a GET or HEAD request, which may turn
/// the status into 304.
pub(super) fn audit_outcome<'r>(
    outcome: &'r Result<HandlerResponse, Error>,
    conditions: Option<&HeaderMap>,
) -> AuditOutcome<'r> {
    match outcome {
        Ok(answer) => {
            AuditOutcome { status: render::status_of(answer, conditions), answer: Ok(audit_response(answer)) }
        }
        Err(error) => {
            let texts = Some(error.text()).filter(|text| !text.is_empty()).into_iter().collect();
            AuditOutcome {
                status: render::status(error.kind()),
                answer: Err(AuditRefusal { kind: error.kind(), texts }),
            }
        }
    }
}

/// Returns the serial number of the certificate in a response, so that the audit identifies a certificate that was
/// issued but not delivered.
pub(super) fn serial_number(answer: &HandlerResponse) -> Option<String> {
    let of = |value: &Value| value["serial_number"].as_str().map(str::to_owned);
    match audit_response(answer).data {
        AuditData::Json(value) => of(value),
        AuditData::JsonText(text) => serde_json::from_slice(text).ok().as_ref().and_then(of),
        _ => None,
    }
}

fn audit_response(answer: &HandlerResponse) -> AuditResponse<'_> {
    let (data, auth) = match &answer.body {
        ResponseBody::Empty => (AuditData::None, None),
        ResponseBody::Data(value) | ResponseBody::DataAndTop(value) | ResponseBody::Plain(value) => {
            (AuditData::Json(value), None)
        }
        ResponseBody::Rendered(text) => (AuditData::JsonText(text.expose()), None),
        ResponseBody::Auth(given) => (AuditData::None, Some(&**given)),
        ResponseBody::Raw(media_type, bytes) => (AuditData::Raw { media_type, bytes }, None),
        ResponseBody::RawPieces(media_type, pieces) => {
            (AuditData::Streamed { media_type, bytes: Some(pieces.len) }, None)
        }
        ResponseBody::RenderedPieces(begin, pieces, end) => {
            let bytes = begin.len() + pieces.len + end.len();
            (AuditData::Streamed { media_type: render::JSON_MEDIA_TYPE, bytes: Some(bytes) }, None)
        }
        ResponseBody::Streamed(_) => (AuditData::Streamed { media_type: render::JSON_MEDIA_TYPE, bytes: None }, None),
        ResponseBody::Wrapped(_) => (AuditData::None, None),
        ResponseBody::Unwrapped(kept) if kept.media_type == render::JSON_MEDIA_TYPE => {
            (AuditData::JsonText(kept.body.expose()), None)
        }
        ResponseBody::Unwrapped(kept) => {
            (AuditData::Raw { media_type: &kept.media_type, bytes: kept.body.expose() }, None)
        }
    };
    let wrapping = if let ResponseBody::Wrapped(wrapping) = &answer.body { Some(&**wrapping) } else { None };
    let lease = answer.lease.as_ref().map(|lease| &lease.id[..]);
    AuditResponse { data, auth, lease, wrapping, warnings: &answer.warnings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_list_operations_change_nothing() {
        let changes = |operation| {
            AuditFields { operation_and_path: Some((operation, "pki/crl".to_owned())), ..AuditFields::default() }
                .is_write()
        };
        assert!([Operation::Read, Operation::List].map(changes) == [false; 2]);
        assert!([Operation::Create, Operation::Update, Operation::Patch, Operation::Delete].map(changes) == [true; 4]);
        assert!(!AuditFields::default().is_write());
    }
}
