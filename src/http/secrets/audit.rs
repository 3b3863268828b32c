//! Builds the audit records of secrets service requests.
//!
//! [`Seen`] is filled while a request passes through the pipeline, because the handler consumes the request itself. It
//! exists only while an audit device is enabled.

use std::net::IpAddr;

use actix_web::http::header::HeaderMap;
use serde_json::Value;

use super::answer::{Answer, Body};
use super::render;
use super::request::Token;
use super::route::operation_word;
use super::target::Sent;
use crate::audit::{self, Data, Outcome, Refused, Request, Response};
use crate::auth::Caller;
use crate::auth::policy::Operation;
use crate::error::Error;
use crate::http::access::{Line, Who};
use crate::telemetry::TraceContext;

/// The fields of an audit record that are not in the [`Line`] of the request.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) asked: Option<(Operation, String)>,
    address: Option<IpAddr>,
    pub(super) token: Option<Token>,
    sent: Option<Sent>,
}

impl Seen {
    pub(super) fn from(address: Option<IpAddr>) -> Self {
        Self { address, ..Self::default() }
    }

    /// `true` if the request may change something.
    pub(super) fn changes_something(&self) -> bool {
        self.asked.as_ref().is_some_and(|(operation, _)| !matches!(operation, Operation::Read | Operation::List))
    }

    /// Stores the fields or the body, and takes over their memory reservation, because the record outlives the request.
    pub(super) fn what(&mut self, sent: &mut Sent) {
        let room = std::mem::take(&mut sent.room);
        let (fields, body, media_type) = (sent.fields.clone(), sent.body.clone(), sent.media_type.clone());
        self.sent = Some(Sent { fields, body, media_type, room });
    }

    /// Builds the audit record. `method` and `raw_path` are used if the request was not parsed.
    pub(super) fn request<'r>(&'r self, line: &'r Line, method: &'r str, raw_path: &'r str) -> Request<'r> {
        let (operation, path) = match &self.asked {
            Some((operation, path)) => (operation_word(*operation), &path[..]),
            None => (method, raw_path),
        };
        Request {
            id: line.id.as_str(),
            trace_id: line.trace.as_ref().map(TraceContext::trace_id),
            operation,
            path,
            mount: line.mount.as_deref(),
            remote_address: self.address,
            token: self.token.as_ref().map(Token::expose),
            caller: if let Who::Token(known) = &line.who { Some(caller(known)) } else { None },
            data: self.sent.as_ref().map_or(Data::None, data),
        }
    }
}

fn data(sent: &Sent) -> Data<'_> {
    match (sent.fields.is_empty(), sent.body.is_empty()) {
        (true, true) => Data::None,
        (true, false) => Data::Raw { media_type: &sent.media_type, bytes: &sent.body },
        (false, _) => Data::Fields(&sent.fields),
    }
}

fn caller(caller: &Caller) -> audit::Caller<'_> {
    audit::Caller {
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

/// Builds the audit outcome. `conditions` are the request's headers, if its conditions apply.
pub(super) fn outcome<'r>(outcome: &'r Result<Answer, Error>, conditions: Option<&HeaderMap>) -> Outcome<'r> {
    match outcome {
        Ok(answer) => Outcome { status: render::status_of(answer, conditions), answer: Ok(response(answer)) },
        Err(error) => {
            let texts = Some(error.text()).filter(|text| !text.is_empty()).into_iter().collect();
            Outcome { status: render::status(error.kind()), answer: Err(Refused { kind: error.kind(), texts }) }
        }
    }
}

/// Returns the serial number of the certificate in a response. It is public, and identifies an undelivered certificate.
pub(super) fn serial_number(answer: &Answer) -> Option<String> {
    let of = |value: &Value| value["serial_number"].as_str().map(str::to_owned);
    match response(answer).data {
        Data::Json(value) => of(value),
        Data::JsonText(text) => serde_json::from_slice(text).ok().as_ref().and_then(of),
        _ => None,
    }
}

fn response(answer: &Answer) -> Response<'_> {
    let (data, auth) = match &answer.body {
        Body::Empty => (Data::None, None),
        Body::Data(value) | Body::DataAndTop(value) | Body::Plain(value) => (Data::Json(value), None),
        Body::Rendered(text) => (Data::JsonText(text.expose()), None),
        Body::Auth(given) => (Data::None, Some(&**given)),
        Body::Raw(media_type, bytes) => (Data::Raw { media_type, bytes }, None),
        Body::RawPieces(media_type, pieces) => (Data::Streamed { media_type, octets: Some(pieces.len) }, None),
        Body::RenderedPieces(begin, pieces, end) => {
            let octets = begin.len() + pieces.len + end.len();
            (Data::Streamed { media_type: render::JSON, octets: Some(octets) }, None)
        }
        Body::Listed(_) => (Data::Streamed { media_type: render::JSON, octets: None }, None),
        Body::Wrapped(_) => (Data::None, None),
        Body::Unwrapped(kept) if kept.media_type == render::JSON => (Data::JsonText(kept.body.expose()), None),
        Body::Unwrapped(kept) => (Data::Raw { media_type: &kept.media_type, bytes: kept.body.expose() }, None),
    };
    let wrapping = if let Body::Wrapped(wrapping) = &answer.body { Some(&**wrapping) } else { None };
    let lease = answer.lease.as_ref().map(|lease| &lease.id[..]);
    Response { data, auth, lease, wrapping, warnings: &answer.warnings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_reads_changes_nothing() {
        let changes =
            |operation| Seen { asked: Some((operation, "pki/crl".to_owned())), ..Seen::default() }.changes_something();
        assert!([Operation::Read, Operation::List].map(changes) == [false; 2]);
        assert!([Operation::Create, Operation::Update, Operation::Patch, Operation::Delete].map(changes) == [true; 4]);
        assert!(!Seen::default().changes_something());
    }
}
