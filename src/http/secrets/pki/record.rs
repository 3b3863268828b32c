//! Stored data about a certificate: `cert-record/:serial`. It needs a token, because it reveals the requester, whereas
//! the certificate itself is public.

use serde_json::{Value, json};

use super::revoking::reason_name;
use crate::auth::requester::Requester;
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::x509::serial::Serial;

/// `GET cert-record/:serial`: requester, time, role and revocation of a certificate. A certificate that was stored only
/// when it was revoked has the caller of the revocation as its requester.
pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let serial = Serial::parse(call.param("serial")).map_err(|_| Error::not_found())?;
    let authority = call.authority().await?;
    let stored = authority.tools().store.certificate(authority.mount(), serial).await?.ok_or_else(Error::not_found)?;
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
