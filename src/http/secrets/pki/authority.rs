//! CA information for relying parties, without authentication: CA certificates, chains, issued certificates. Lists of
//! certificates are in [`super::lists`], CRLs in [`super::crl`].
//!
//! Paths that return DER or PEM respond with 204 if the object is missing (no default issuer, no CRL, unknown serial
//! number), and with 503 if the storage fails: an empty 200 would overwrite a client's valid copy. Conditional requests
//! are supported.

use std::sync::Arc;

use serde_json::{Value, json};

use super::issuers::{chain_pems, pem_with_newline};
use super::rendering::colon_hex;
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::{CacheValidators, HandlerResponse, MAX_AGE_SECONDS};
use crate::http::secrets::route::Call;
use crate::pki::mount::profile::certificate_pem as issuer_pem_text;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::store::StoredCertificate;
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::serial::Serial;

const DER_MEDIA_TYPE: &str = "application/pkix-cert";
const PEM_MEDIA_TYPE: &str = "application/pem-certificate-chain";

/// An issuer with its validators at the time `now`.
struct ServedIssuer {
    signer: Arc<IssuerSigner>,
    /// The time of the request in epoch seconds.
    now: i64,
    /// Time of the latest change to the mount's issuers or to this issuer's served chain, in epoch seconds.
    changed_at: i64,
}

/// Returns the issuer in the path, or the default issuer on paths without one; `None` if it does not exist.
async fn find_served_issuer(call: &Call) -> Result<Option<ServedIssuer>> {
    let authority = call.authority().await?;
    let view = authority.view();
    let reference = call.optional_param("issuer_ref").unwrap_or("default");
    let now = authority.deps().clock.now().unix_timestamp();
    Ok(view.signer(reference).map(|signer| {
        let changed_at = view.issuers_changed_at().max(signer.paths.served_path_changed_at(now));
        ServedIssuer { signer: Arc::clone(signer), now, changed_at }
    }))
}

/// Builds a DER or PEM response about an issuer; 204 if there is no default issuer.
async fn build_raw_issuer_response(
    call: &Call,
    media_type: &'static str,
    body: impl Fn(&ServedIssuer) -> Vec<u8>,
) -> Result<HandlerResponse> {
    match find_served_issuer(call).await? {
        Some(shown) => Ok(HandlerResponse::cacheable(media_type, body(&shown), shown.changed_at)),
        None if call.param("issuer_ref").is_empty() => Ok(HandlerResponse::empty()),
        None => Err(Error::not_found()),
    }
}

/// Builds a JSON response with `data`. It has no entity tag, because its envelope contains the request id.
fn cacheable_json(data: Value, changed_at: i64) -> HandlerResponse {
    HandlerResponse::data(data).with_validators(CacheValidators {
        tag: None,
        modified: Some(changed_at),
        max_age: MAX_AGE_SECONDS,
    })
}

fn chain_text(shown: &ServedIssuer) -> String {
    shown.signer.chain(shown.now).iter().map(|i| issuer_pem_text(i)).collect::<Vec<_>>().join("\n")
}

pub(super) async fn issuer_der(call: Call) -> Result<HandlerResponse> {
    build_raw_issuer_response(&call, DER_MEDIA_TYPE, |s| s.signer.issuer.certificate.der().to_vec()).await
}

pub(super) async fn issuer_pem(call: Call) -> Result<HandlerResponse> {
    build_raw_issuer_response(&call, PEM_MEDIA_TYPE, |s| pem_with_newline(&s.signer.issuer).into_bytes()).await
}

pub(super) async fn ca_chain(call: Call) -> Result<HandlerResponse> {
    build_raw_issuer_response(&call, PEM_MEDIA_TYPE, |s| (chain_text(s) + "\n").into_bytes()).await
}

pub(super) async fn ca_json(call: Call) -> Result<HandlerResponse> {
    let ServedIssuer { signer, changed_at, .. } = find_served_issuer(&call).await?.ok_or_else(Error::not_found)?;
    let data = json!({
        "certificate": issuer_pem_text(&signer.issuer),
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    });
    Ok(cacheable_json(data, changed_at))
}

pub(super) async fn ca_chain_json(call: Call) -> Result<HandlerResponse> {
    let shown = find_served_issuer(&call).await?.ok_or_else(Error::not_found)?;
    let chain = chain_text(&shown);
    let data = json!({
        "certificate": chain,
        "ca_chain": chain,
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    });
    Ok(cacheable_json(data, shown.changed_at))
}

pub(super) async fn issuer_json(call: Call) -> Result<HandlerResponse> {
    let shown = find_served_issuer(&call).await?.ok_or_else(Error::not_found)?;
    let ServedIssuer { signer, now, changed_at } = shown;
    let record = &signer.issuer.record;
    let data = json!({
        "certificate": pem_with_newline(&signer.issuer),
        "ca_chain": chain_pems(&signer, now),
        "issuer_id": record.id,
        "issuer_name": record.name,
    });
    Ok(cacheable_json(data, changed_at))
}

async fn find_certificate(call: &Call) -> Result<Option<StoredCertificate>> {
    // An invalid serial number gets the same response as an unknown one.
    let Ok(serial) = Serial::parse(call.param("serial")) else { return Ok(None) };
    let authority = call.authority().await?;
    authority.deps().store.certificate(authority.mount(), serial).await
}

pub(super) async fn certificate(call: Call) -> Result<HandlerResponse> {
    let stored = find_certificate(&call).await?.ok_or_else(Error::not_found)?;
    let revoked_at = stored.revocation.as_ref().map(|r| r.row.revoked_at);
    let mut data = json!({
        "certificate": pem::encode("CERTIFICATE", &stored.row.der),
        "revocation_time": revoked_at.map_or(0, |at| at.unix_timestamp()),
        "revocation_time_rfc3339": revoked_at.map(format_rfc3339).unwrap_or_default(),
    });
    if let Some(key_id) = Certificate::parse(&stored.row.der).ok().and_then(|c| c.authority_key_id()) {
        data["authority_key_id"] = colon_hex(&key_id).into();
    }
    if let Some(revocation) = stored.revocation.filter(|r| !r.row.issuer.is_empty()) {
        data["issuer_id"] = revocation.row.issuer.into();
    }
    Ok(HandlerResponse::data(data))
}

pub(super) async fn certificate_der(call: Call) -> Result<HandlerResponse> {
    build_raw_certificate_response(&call, DER_MEDIA_TYPE, |der| der).await
}

pub(super) async fn certificate_pem(call: Call) -> Result<HandlerResponse> {
    build_raw_certificate_response(&call, PEM_MEDIA_TYPE, |der| pem::encode_file("CERTIFICATE", &der).into_bytes())
        .await
}

/// Builds a DER or PEM response with the certificate in the path; 204 if it does not exist. A certificate never
/// changes.
async fn build_raw_certificate_response(
    call: &Call,
    media_type: &'static str,
    body: fn(Vec<u8>) -> Vec<u8>,
) -> Result<HandlerResponse> {
    let stored = find_certificate(call).await?;
    Ok(stored.map_or_else(HandlerResponse::empty, |c| {
        HandlerResponse::cacheable(media_type, body(c.row.der), c.row.issued_at)
    }))
}
