//! Metadata that callers attached to certificates: `cert-metadata`, `cert-metadata/:serial`. It may be confidential, so
//! reading it needs a token.

use serde_json::json;

use super::lists;
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::issue::side_effects::CertificateMetadata;
use crate::x509::serial::Serial;

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    lists::list_serials(&call, |store, mount, after, limit| store.metadata_serials(mount, after, limit), None).await
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let serial = Serial::parse(call.param("serial")).map_err(|_| Error::not_found())?;
    let authority = call.authority().await?;
    let row = authority.tools().store.metadata(authority.mount(), serial).await?.ok_or_else(Error::not_found)?;
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
