//! CRLs: `crl…`, `issuer/:issuer_ref/crl…`, `cert/crl`, `cert/delta-crl`, their unified forms, `crl/rotate…`,
//! `config/crl`; and CRLs whose content is in the request.
//!
//! Reading a published CRL needs no token. The CRL is sent from memory, in pieces that all responses share. If there is
//! no CRL, paths that return DER or PEM respond with 204, and paths that return JSON with 404, as for an unknown
//! issuer.

mod caller_supplied;
mod config;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

pub(super) use self::caller_supplied::{RESIGN_FIELDS, SIGN_FIELDS, resign, sign as sign_list};
pub(super) use self::config::FIELDS as CONFIG_FIELDS;
use crate::error::{Error, Kind, Result};
use crate::http::secrets::handler_response::{
    BodyPieces, CacheValidators, HandlerResponse, MAX_AGE_SECONDS, ResponseBody,
};
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;
use crate::pki::crl::{CrlBuildRequest, PublishedCrl, has_crl_signer};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::x509::pem;

const DER_MEDIA_TYPE: &str = "application/pkix-crl";
const PEM_MEDIA_TYPE: &str = "application/x-pem-file";

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(config::to_json(&call.authority().await?.view().crl_config.value)))
}

pub(super) async fn write_config(mut call: Call) -> Result<HandlerResponse> {
    let fields = std::mem::take(&mut call.fields);
    let merge = move |stored: &CrlConfig| config::merged(stored, &fields);
    let warnings = changes::write_crl_config(&*call.authority().await?, merge).await?;
    Ok(read_config(call).await?.with_warnings(warnings))
}

pub(super) async fn rotate(call: Call) -> Result<HandlerResponse> {
    let warnings =
        call.authority().await?.build_crls(CrlBuildRequest { complete: true, ..CrlBuildRequest::DUE }).await?;
    Ok(HandlerResponse::data(json!({ "success": true })).with_warnings(warnings))
}

pub(super) async fn rotate_delta(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let answer = HandlerResponse::data(json!({ "success": true }));
    if !authority.view().crl_config.value.enable_delta {
        return Ok(answer.with_warnings([
            "delta CRLs: not enabled, so nothing was rotated; set enable_delta in config/crl".to_owned(),
        ]));
    }
    let warnings = authority.build_crls(CrlBuildRequest { delta: true, ..CrlBuildRequest::DUE }).await?;
    Ok(answer.with_warnings(warnings))
}

/// Returns the CRL of the path as DER or PEM.
pub(super) async fn read_raw(call: Call) -> Result<HandlerResponse> {
    let Some((now, list)) = find_requested_crl(&call).await? else { return Ok(HandlerResponse::empty()) };
    let (media_type, suffix, pieces) = match call.route.pattern.ends_with("/pem") {
        true => (PEM_MEDIA_TYPE, "-pem", pem_file(&list)),
        false => (DER_MEDIA_TYPE, "", BodyPieces { len: list.len, pieces: Box::new(list.pieces()) }),
    };
    let tag = Some(format!("{}{suffix}", list.tag));
    let validators = CacheValidators { tag, ..crl_validators(&list, now) };
    Ok(HandlerResponse::from(ResponseBody::RawPieces(media_type, pieces)).with_validators(validators))
}

/// Returns a CRL in JSON, with the members of a certificate (`cert/crl`).
pub(super) async fn read_as_certificate_json(call: Call) -> Result<HandlerResponse> {
    let (now, list) = find_requested_crl(&call).await?.ok_or_else(Error::not_found)?;
    let end = "\",\"revocation_time\":0,\"revocation_time_rfc3339\":\"\"}";
    let body = ResponseBody::RenderedPieces("{\"certificate\":\"".to_owned(), pem_pieces(&list, "\\n"), end.to_owned());
    Ok(HandlerResponse::from(body).with_validators(crl_validators(&list, now)))
}

/// Returns a CRL in JSON, in the member `crl` (`issuer/:issuer_ref/crl`).
pub(super) async fn read_as_crl_json(call: Call) -> Result<HandlerResponse> {
    let (now, list) = find_requested_crl(&call).await?.ok_or_else(Error::not_found)?;
    let body = ResponseBody::RenderedPieces("{\"crl\":\"".to_owned(), pem_pieces(&list, "\\n"), "\"}".to_owned());
    Ok(HandlerResponse::from(body).with_validators(crl_validators(&list, now)))
}

/// Returns the CRL of the path, and the current time in epoch seconds. `None` for an unknown issuer, an issuer without
/// CRL, and unified CRLs while they are disabled. All nodes of a database form one cluster, so the CRL of this cluster
/// also serves as the unified CRL of all clusters.
async fn find_requested_crl(call: &Call) -> Result<Option<(i64, Arc<PublishedCrl>)>> {
    let authority = call.authority().await?;
    let view = authority.view();
    let names = |word| call.route.pattern.contains(word);
    if names("unified") && !view.crl_config.value.unified_crl {
        return Ok(None);
    }
    let reference = call.optional_param("issuer_ref").unwrap_or("default");
    let Some(signer) = view.signer(reference) else { return Ok(None) };
    let Some(lists) = authority.crls(&signer.issuer.record.id).await? else { return Ok(None) };
    let now = authority.deps().clock.now().unix_timestamp();
    if now >= lists.complete.next_update && !has_crl_signer(&view, &signer.issuer) {
        return Err(Error::new(
            Kind::NotFound,
            format!(
                "crl: the CRL of issuer {} has expired and cannot be renewed; import the issuer's key, or enable the \
                 usage crl-signing",
                signer.issuer.record.id
            ),
        ));
    }
    let list = if names("delta") { lists.delta } else { Some(lists.complete) };
    Ok(list.map(|list| (now, list)))
}

fn pem_pieces(list: &PublishedCrl, newline: &'static str) -> BodyPieces {
    let (len, pieces) = pem::encode_pieces(pem::CRL_LABEL, list.len, list.pieces(), newline);
    BodyPieces { len, pieces: Box::new(pieces) }
}

/// Renders a CRL as a PEM file that ends with a newline.
fn pem_file(list: &PublishedCrl) -> BodyPieces {
    let BodyPieces { len, pieces } = pem_pieces(list, "\n");
    BodyPieces { len: len + 1, pieces: Box::new(pieces.chain([Bytes::from_static(b"\n")])) }
}

/// Returns validators of a JSON response, without entity tag because its envelope contains the request id.
fn crl_validators(list: &PublishedCrl, now: i64) -> CacheValidators {
    let left = u64::try_from(list.next_update - now).unwrap_or(0);
    CacheValidators { tag: None, modified: Some(list.made_at), max_age: left.min(MAX_AGE_SECONDS) }
}
