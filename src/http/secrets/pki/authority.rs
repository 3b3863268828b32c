//! Authority information for relying parties, open to all but the lists: CA certificates, chains,
//! CRLs, issued certificates.

use std::sync::Arc;

use serde_json::json;

use super::Page;
use super::issuers::{chain_lines, pem_line};
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::crl::Published;
use crate::pki::profile::certificate_pem as issuer_pem_text;
use crate::pki::store::StoredCertificate;
use crate::pki::view::Signer;
use crate::x509::pem;
use crate::x509::serial::Serial;

const DER: &str = "application/pkix-cert";
const PEM: &str = "application/pem-certificate-chain";
const CRL_DER: &str = "application/pkix-crl";
const CRL_PEM: &str = "application/x-pem-file";
/// Serials read from storage at a time.
const PAGE: u32 = 10_000;

fn signer(call: &Call, reference: &str) -> Result<Option<Arc<Signer>>> {
    Ok(call.authority()?.view().signer(reference).cloned())
}

/// A raw answer about the default issuer; 204 when there is none.
fn raw_default(call: &Call, media_type: &'static str, body: impl Fn(&Signer) -> Vec<u8>) -> Result<Answer> {
    Ok(signer(call, "default")?.map_or_else(Answer::empty, |s| Answer::raw(media_type, body(&s))))
}

fn der(signer: &Signer) -> Vec<u8> {
    signer.issuer.certificate.der().to_vec()
}

fn pem_text(signer: &Signer) -> Vec<u8> {
    issuer_pem_text(&signer.issuer).into_bytes()
}

fn chain_text(signer: &Signer) -> String {
    signer.chain.iter().map(|i| issuer_pem_text(i)).collect::<Vec<_>>().join("\n")
}

pub(super) async fn ca_der(call: Call) -> Result<Answer> {
    raw_default(&call, DER, der)
}

pub(super) async fn ca_pem(call: Call) -> Result<Answer> {
    raw_default(&call, PEM, pem_text)
}

pub(super) async fn ca_chain(call: Call) -> Result<Answer> {
    raw_default(&call, PEM, |s| chain_text(s).into_bytes())
}

pub(super) async fn ca_json(call: Call) -> Result<Answer> {
    let signer = signer(&call, "default")?.ok_or_else(Error::not_found)?;
    Ok(Answer::data(json!({
        "certificate": issuer_pem_text(&signer.issuer),
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    })))
}

pub(super) async fn ca_chain_json(call: Call) -> Result<Answer> {
    let signer = signer(&call, "default")?.ok_or_else(Error::not_found)?;
    let chain = chain_text(&signer);
    Ok(Answer::data(json!({
        "certificate": chain,
        "ca_chain": chain,
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    })))
}

pub(super) async fn issuer_json(call: Call) -> Result<Answer> {
    let signer = signer(&call, call.param("issuer_ref"))?.ok_or_else(Error::not_found)?;
    let record = &signer.issuer.record;
    Ok(Answer::data(json!({
        "certificate": pem_line(&signer.issuer),
        "ca_chain": chain_lines(&signer),
        "issuer_id": record.id,
        "issuer_name": record.name,
    })))
}

pub(super) async fn issuer_der(call: Call) -> Result<Answer> {
    let signer = signer(&call, call.param("issuer_ref"))?.ok_or_else(Error::not_found)?;
    Ok(Answer::raw(DER, der(&signer)))
}

pub(super) async fn issuer_pem(call: Call) -> Result<Answer> {
    let signer = signer(&call, call.param("issuer_ref"))?.ok_or_else(Error::not_found)?;
    Ok(Answer::raw(PEM, pem_text(&signer)))
}

/// The CRL of an issuer. `Err(NotFound)` for an unknown issuer, `Ok(None)` when it has no CRL.
fn crl(call: &Call, reference: &str) -> Result<Option<Arc<Published>>> {
    let authority = call.authority()?;
    let signer = authority.view().signer(reference).cloned().ok_or_else(Error::not_found)?;
    Ok(authority.crl(&signer.issuer.record.id))
}

/// The default issuer's CRL; none without a default issuer.
fn default_crl(call: &Call) -> Result<Option<Arc<Published>>> {
    match signer(call, "default")? {
        Some(_) => crl(call, "default"),
        None => Ok(None),
    }
}

fn raw_der(crl: Option<Arc<Published>>) -> Answer {
    crl.map_or_else(Answer::empty, |crl| Answer::raw(CRL_DER, crl.der.clone()))
}

fn raw_pem(crl: Option<Arc<Published>>) -> Answer {
    crl.map_or_else(Answer::empty, |crl| Answer::raw(CRL_PEM, crl.pem.clone()))
}

fn crl_text(crl: &Published) -> String {
    String::from_utf8_lossy(&crl.pem).into_owned()
}

pub(super) async fn crl_der(call: Call) -> Result<Answer> {
    Ok(raw_der(default_crl(&call)?))
}

pub(super) async fn crl_pem(call: Call) -> Result<Answer> {
    Ok(raw_pem(default_crl(&call)?))
}

pub(super) async fn crl_json(call: Call) -> Result<Answer> {
    let crl = default_crl(&call)?.ok_or_else(Error::not_found)?;
    Ok(Answer::data(json!({
        "certificate": crl_text(&crl),
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    })))
}

pub(super) async fn issuer_crl_json(call: Call) -> Result<Answer> {
    let crl = crl(&call, call.param("issuer_ref"))?.ok_or_else(Error::not_found)?;
    Ok(Answer::data(json!({ "crl": crl_text(&crl) })))
}

pub(super) async fn issuer_crl_der(call: Call) -> Result<Answer> {
    Ok(raw_der(crl(&call, call.param("issuer_ref"))?))
}

pub(super) async fn issuer_crl_pem(call: Call) -> Result<Answer> {
    Ok(raw_pem(crl(&call, call.param("issuer_ref"))?))
}

async fn stored(call: &Call) -> Result<Option<StoredCertificate>> {
    // What is no serial cannot be stored: the same answer as for an unknown one.
    let Ok(serial) = Serial::parse(call.param("serial")) else { return Ok(None) };
    let authority = call.authority()?;
    authority.tools().store.certificate(authority.mount(), serial).await
}

pub(super) async fn certificate(call: Call) -> Result<Answer> {
    let stored = stored(&call).await?.ok_or_else(Error::not_found)?;
    let revoked_at = stored.revocation.as_ref().map(|r| r.row.revoked_at);
    let mut data = json!({
        "certificate": pem::encode("CERTIFICATE", &stored.row.der),
        "revocation_time": revoked_at.map_or(0, |at| at.unix_timestamp()),
        "revocation_time_rfc3339": revoked_at.map(rfc3339).unwrap_or_default(),
    });
    if let Some(revocation) = stored.revocation.filter(|r| !r.row.issuer.is_empty()) {
        data["issuer_id"] = revocation.row.issuer.into();
    }
    Ok(Answer::data(data))
}

pub(super) async fn certificate_der(call: Call) -> Result<Answer> {
    Ok(stored(&call).await?.map_or_else(Answer::empty, |c| Answer::raw(DER, c.row.der)))
}

pub(super) async fn certificate_pem(call: Call) -> Result<Answer> {
    Ok(stored(&call)
        .await?
        .map_or_else(Answer::empty, |c| Answer::raw(PEM, pem::encode("CERTIFICATE", &c.row.der).into_bytes())))
}

pub(super) async fn certificates(call: Call) -> Result<Answer> {
    serials(&call, false).await
}

pub(super) async fn revoked(call: Call) -> Result<Answer> {
    serials(&call, true).await
}

async fn serials(call: &Call, revoked: bool) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    let authority = call.authority()?;
    let (store, mount) = (&authority.tools().store, authority.mount());
    let mut after = match page.after.as_str() {
        "" => None,
        text => Some(Serial::parse(text).map_err(|_| Error::invalid("after: must be a serial number"))?),
    };
    let mut keys = Vec::new();
    loop {
        let left = page.limit.map_or(PAGE as usize, |limit| limit - keys.len()).min(PAGE as usize) as u32;
        let found = if revoked {
            store.revoked_serials(mount, after, left).await?
        } else {
            store.serials(mount, after, left).await?
        };
        keys.extend(found.iter().map(Serial::to_string));
        after = found.last().copied();
        if found.len() < left as usize || page.limit == Some(keys.len()) {
            return Answer::keys(keys, None);
        }
    }
}
