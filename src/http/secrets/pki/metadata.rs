//! Metadata that callers attached to certificates: `cert-metadata`, `cert-metadata/:serial`. It may be confidential, so
//! reading it needs a token.

use serde_json::json;

use super::lists;
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::issue::beside::Metadata;
use crate::x509::serial::Serial;

pub(super) async fn list(call: Call) -> Result<Answer> {
    lists::serials(&call, |store, mount, after, limit| store.metadata_serials(mount, after, limit), None).await
}

pub(super) async fn read(call: Call) -> Result<Answer> {
    let serial = Serial::parse(call.param("serial")).map_err(|_| Error::not_found())?;
    let authority = call.authority().await?;
    let row = authority.tools().store.metadata(authority.mount(), serial).await?.ok_or_else(Error::not_found)?;
    let Metadata { issuer, role, metadata } = Metadata::of(&row)?;
    let expiration = Time::from_unix_timestamp(row.not_after).map_err(Error::internal)?;
    Ok(Answer::data(json!({
        "issuer_id": issuer,
        "expiration": rfc3339(expiration),
        "cert_metadata": metadata,
        "role": role.unwrap_or_default(),
        "serial_number": serial.to_string(),
    })))
}
