//! Stored data about certificates: `cert-record/:serial`, and the metadata that callers attached to certificates
//! (`cert-metadata`). Reading it needs a token: records reveal the requester, and metadata may be confidential, whereas
//! the certificates themselves are public.

use serde_json::{Value, json};

use super::lists;
use super::revoking::reason_name;
use crate::auth::requester::Requester;
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::issue::side_effects::CertificateMetadata;
use crate::x509::serial::Serial;

/// `GET cert-record/:serial`: requester, time, role and revocation of a certificate. If the certificate was first
/// stored when it was revoked, the caller who revoked it is the requester.
pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let serial = serial_in_path(&call)?;
    let authority = call.authority().await?;
    let stored = authority.deps().store.certificate(authority.mount(), serial).await?.ok_or_else(Error::not_found)?;
    let row = stored.row;
    let view = authority.view();
    let issuer = view.signer(&row.issuer).map(|signer| signer.issuer.record.name.clone());
    let who = Requester::of_record(&row.requester);
    let time = |seconds| Time::from_unix_timestamp(seconds).map(format_rfc3339).unwrap_or_default();
    let revocation = stored.revocation.map(|revocation| revocation.row);
    Ok(HandlerResponse::data(json!({
        "serial_number": serial.to_string(),
        "common_name": row.common_name.unwrap_or_default(),
        "issuer_id": row.issuer,
        "issuer_name": issuer.unwrap_or_default(),
        "role": row.role.unwrap_or_default(),
        "not_before": time(row.not_before),
        "not_after": time(row.not_after),
        "recorded_at": time(row.issued_at),
        "requester": {
            "display_name": who.display_name,
            "entity_id": who.entity_id,
            "accessor_hash": who.accessor_hash,
        },
        "revocation_time": revocation.as_ref().map_or(Value::Null, |r| format_rfc3339(r.revoked_at).into()),
        "revocation_reason": revocation.map_or(Value::Null, |r| reason_name(r.reason).into()),
    })))
}

pub(super) async fn list_metadata(call: Call) -> Result<HandlerResponse> {
    lists::list_serials(&call, |store, mount, after, limit| store.metadata_serials(mount, after, limit), None).await
}

/// `GET cert-metadata/:serial`: the metadata that the caller of `issue` or `sign` attached to a certificate.
pub(super) async fn read_metadata(call: Call) -> Result<HandlerResponse> {
    let serial = serial_in_path(&call)?;
    let authority = call.authority().await?;
    let row = authority.deps().store.metadata(authority.mount(), serial).await?.ok_or_else(Error::not_found)?;
    let CertificateMetadata { issuer, role, metadata } = CertificateMetadata::of(&row)?;
    let expiration = Time::from_unix_timestamp(row.not_after).map_err(Error::internal)?;
    Ok(HandlerResponse::data(json!({
        "issuer_id": issuer,
        "expiration": format_rfc3339(expiration),
        "cert_metadata": metadata,
        "role": role.unwrap_or_default(),
        "serial_number": serial.to_string(),
    })))
}

fn serial_in_path(call: &Call) -> Result<Serial> {
    Serial::parse(call.param("serial")).map_err(|_| Error::not_found())
}
