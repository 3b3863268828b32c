//! Issuing and revoking: `issue`, the four kinds of signing, `revoke`, `revoke-with-key`.

use serde_json::json;

use crate::clock::rfc3339;
use crate::error::Result;
use crate::http::secrets::answer::{Answer, Lease};
use crate::http::secrets::dialect::Dialect;
use crate::http::secrets::route::Call;
use crate::pki::actor::Operation;
use crate::pki::issue::{Issued, Request, Requester};
use crate::pki::revocation::{self, Outcome};
use crate::pki::validity::Limits;

pub(super) async fn issue(call: Call) -> Result<Answer> {
    run(call, Operation::Issue).await
}

pub(super) async fn sign(call: Call) -> Result<Answer> {
    run(call, Operation::Sign).await
}

pub(super) async fn sign_verbatim(call: Call) -> Result<Answer> {
    run(call, Operation::SignVerbatim).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<Answer> {
    run(call, Operation::SignIntermediate).await
}

pub(super) async fn sign_self_issued(call: Call) -> Result<Answer> {
    run(call, Operation::SignSelfIssued).await
}

async fn run(call: Call, operation: Operation) -> Result<Answer> {
    let (replica, dialect) = (call.replica().await?, call.dialect);
    replica.run(operation, request(call)).await.map(|issued| answer(issued, dialect))
}

fn request(call: Call) -> Request {
    Request {
        role: call.param("name").to_owned(),
        issuer_ref: issuer_of_path(&call),
        limits: limits(&call),
        requester: requester(&call),
        fields: call.fields,
        path: call.full_path,
    }
}

/// Who asks.
pub(super) fn requester(call: &Call) -> Requester {
    call.caller.as_deref().map_or_else(Requester::default, |caller| Requester {
        recorded_as: caller.recorded_as.clone(),
        display_name: caller.display_name.clone(),
        token: caller.token_hash(),
        last_use: caller.uses_left() == Some(0),
        ..Requester::default()
    })
}

/// The issuer that the path names.
pub(super) fn issuer_of_path(call: &Call) -> Option<String> {
    Some(call.param("issuer_ref")).filter(|r| !r.is_empty()).map(str::to_owned)
}

/// The mount's lifetimes.
pub(super) fn limits(call: &Call) -> Limits {
    Limits { mount_default: call.mount.default_ttl(), mount_max: call.mount.max_ttl() }
}

pub(super) fn answer(issued: Issued, dialect: Dialect) -> Answer {
    let json = match issued.dates {
        Some(dates) => dialect.with_dates(issued.json, dates),
        None => issued.json,
    };
    let lease = issued.lease.map(|lease| Lease { id: lease.id, seconds: lease.seconds, renewable: false });
    Answer { lease, ..Answer::rendered(json) }.with_warnings(issued.warnings)
}

pub(super) async fn revoke(call: Call) -> Result<Answer> {
    let requester = call.caller.as_deref().map(|c| c.recorded_as.as_str()).unwrap_or_default();
    revocation::revoke(&call.authority().await?, &call.fields, requester).await.map(revoked)
}

pub(super) async fn revoke_with_key(call: Call) -> Result<Answer> {
    let authority = call.authority().await?;
    let requester = call.caller.as_deref().map(|c| c.recorded_as.as_str()).unwrap_or_default();
    revocation::revoke_with_key(&authority, call.fields, requester).await.map(revoked)
}

fn revoked(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Revoked { at, warnings } => Answer::data(json!({
            "revocation_time": at.unix_timestamp(),
            "revocation_time_rfc3339": rfc3339(at),
            "state": "revoked",
        }))
        .with_warnings(warnings),
        Outcome::Expired => {
            Answer::empty().with_warnings(["certificate already expired; not added to the CRL".to_owned()])
        }
    }
}
