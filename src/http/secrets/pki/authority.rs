//! Authority information for relying parties, open to all: CA certificates, chains, issued certificates.
//! Lists of certificates ([`super::lists`]) and CRLs ([`super::crl`]) are next door.
//!
//! A raw path answers 204 when there is nothing (no default issuer, no CRL, unknown serial). When
//! storage fails it answers 503 like every other path: an empty 2xx would overwrite a good copy. Whoever
//! has a copy may ask whether it is still good (304).

use std::sync::Arc;

use serde_json::{Value, json};

use super::issuers::{chain_lines, pem_line};
use super::rendering::colon_hex;
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::http::secrets::answer::{Answer, MAX_AGE, Validators};
use crate::http::secrets::route::Call;
use crate::pki::mount::profile::certificate_pem as issuer_pem_text;
use crate::pki::mount::signer::Signer;
use crate::pki::store::StoredCertificate;
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::serial::Serial;

const DER: &str = "application/pkix-cert";
const PEM: &str = "application/pem-certificate-chain";

/// An issuer, as it is served at a time.
struct Shown {
    signer: Arc<Signer>,
    /// The time, epoch seconds.
    now: i64,
    /// When what this mount says of issuers last changed, epoch seconds.
    changed_at: i64,
}

async fn shown(call: &Call, reference: &str) -> Result<Option<Shown>> {
    let authority = call.authority().await?;
    let (view, now) = (authority.view(), authority.tools().clock.now().unix_timestamp());
    Ok(view.signer(reference).map(|signer| {
        let changed_at = view.issuers_changed_at().max(signer.paths.changed_at(now));
        Shown { signer: Arc::clone(signer), now, changed_at }
    }))
}

/// A raw answer about the default issuer; 204 when there is none.
async fn raw_default(call: &Call, media_type: &'static str, body: impl Fn(&Shown) -> Vec<u8>) -> Result<Answer> {
    let shown = shown(call, "default").await?;
    Ok(shown.map_or_else(Answer::empty, |shown| Answer::kept(media_type, body(&shown), shown.changed_at)))
}

/// A raw answer about the issuer that the path names.
async fn raw_issuer(call: &Call, media_type: &'static str, body: impl Fn(&Shown) -> Vec<u8>) -> Result<Answer> {
    let shown = shown(call, call.param("issuer_ref")).await?.ok_or_else(Error::not_found)?;
    Ok(Answer::kept(media_type, body(&shown), shown.changed_at))
}

/// An answer in an envelope, about an issuer. Without a tag: an envelope has the id of its request.
fn enveloped(data: Value, changed_at: i64) -> Answer {
    Answer::data(data).with_validators(Validators { tag: None, modified: Some(changed_at), max_age: MAX_AGE })
}

fn der(shown: &Shown) -> Vec<u8> {
    shown.signer.issuer.certificate.der().to_vec()
}

fn pem_text(shown: &Shown) -> Vec<u8> {
    (issuer_pem_text(&shown.signer.issuer) + "\n").into_bytes()
}

fn chain_text(shown: &Shown) -> String {
    shown.signer.chain(shown.now).iter().map(|i| issuer_pem_text(i)).collect::<Vec<_>>().join("\n")
}

pub(super) async fn ca_der(call: Call) -> Result<Answer> {
    raw_default(&call, DER, der).await
}

pub(super) async fn ca_pem(call: Call) -> Result<Answer> {
    raw_default(&call, PEM, pem_text).await
}

pub(super) async fn ca_chain(call: Call) -> Result<Answer> {
    raw_default(&call, PEM, |s| (chain_text(s) + "\n").into_bytes()).await
}

pub(super) async fn ca_json(call: Call) -> Result<Answer> {
    let Shown { signer, changed_at, .. } = shown(&call, "default").await?.ok_or_else(Error::not_found)?;
    let data = json!({
        "certificate": issuer_pem_text(&signer.issuer),
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    });
    Ok(enveloped(data, changed_at))
}

pub(super) async fn ca_chain_json(call: Call) -> Result<Answer> {
    let shown = shown(&call, "default").await?.ok_or_else(Error::not_found)?;
    let chain = chain_text(&shown);
    let data = json!({
        "certificate": chain,
        "ca_chain": chain,
        "revocation_time": 0,
        "revocation_time_rfc3339": "",
    });
    Ok(enveloped(data, shown.changed_at))
}

pub(super) async fn issuer_json(call: Call) -> Result<Answer> {
    let shown = shown(&call, call.param("issuer_ref")).await?.ok_or_else(Error::not_found)?;
    let Shown { signer, now, changed_at } = shown;
    let record = &signer.issuer.record;
    let data = json!({
        "certificate": pem_line(&signer.issuer),
        "ca_chain": chain_lines(&signer, now),
        "issuer_id": record.id,
        "issuer_name": record.name,
    });
    Ok(enveloped(data, changed_at))
}

pub(super) async fn issuer_der(call: Call) -> Result<Answer> {
    raw_issuer(&call, DER, der).await
}

pub(super) async fn issuer_pem(call: Call) -> Result<Answer> {
    raw_issuer(&call, PEM, pem_text).await
}

async fn stored(call: &Call) -> Result<Option<StoredCertificate>> {
    // What is no serial cannot be stored: the same answer as for an unknown one.
    let Ok(serial) = Serial::parse(call.param("serial")) else { return Ok(None) };
    let authority = call.authority().await?;
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
    if let Some(key_id) = Certificate::parse(&stored.row.der).ok().and_then(|c| c.authority_key_id()) {
        data["authority_key_id"] = colon_hex(&key_id).into();
    }
    if let Some(revocation) = stored.revocation.filter(|r| !r.row.issuer.is_empty()) {
        data["issuer_id"] = revocation.row.issuer.into();
    }
    Ok(Answer::data(data))
}

pub(super) async fn certificate_der(call: Call) -> Result<Answer> {
    raw_certificate(&call, DER, |der| der).await
}

pub(super) async fn certificate_pem(call: Call) -> Result<Answer> {
    raw_certificate(&call, PEM, |der| pem::encode_file("CERTIFICATE", &der).into_bytes()).await
}

/// A raw answer about the certificate that the path names, which never changes; 204 when there is none.
async fn raw_certificate(call: &Call, media_type: &'static str, body: fn(Vec<u8>) -> Vec<u8>) -> Result<Answer> {
    let stored = stored(call).await?;
    Ok(stored.map_or_else(Answer::empty, |c| Answer::kept(media_type, body(c.row.der), c.row.issued_at)))
}
