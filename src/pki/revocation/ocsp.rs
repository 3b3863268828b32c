//! The OCSP responder of a mount (RFC 6960, with the nonce of RFC 9654).
//!
//! A response is signed by the issuer of the first known certificate in the request, or else by the default issuer. It
//! covers only that issuer's certificates; all others are `unknown`. Serials never issued are `unknown` too, unless
//! `ocsp_unknown_serial` is `good`. Issuers sign directly, without responder certificates. If the issuer lacks a key,
//! the usage `ocsp-signing` or permission to use its managed key, the result is `unauthorized`. If the store or the
//! signer is unavailable or busy, the result is `tryLater`. After any other failure, the result is `internalError`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::keys::pool::CallerWatch;
use crate::pki::check::linted_tbs::LintedTbs;
use crate::pki::crl::list::this_update;
use crate::pki::engine::Authority;
use crate::pki::engine::ocsp_cache::{OcspCacheKey, OcspLookup, OcspTimes, SignedOcspResponse};
use crate::pki::mount::responders::{Responder, ResponderKey};
use crate::pki::mount::settings::crl::UnknownSerialStatus;
use crate::pki::mount::view::MountView;
use crate::telemetry;
use crate::x509::certificate::Certificate;
use crate::x509::ocsp::{self, CertId, OcspCertStatus, OcspRequest, ResponseData, SingleResponse};

/// Status of an OCSP response (OCSPResponseStatus, RFC 6960 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspOutcome {
    /// The response is signed.
    Successful = 0,
    /// The request cannot be parsed.
    MalformedRequest = 1,
    /// An internal error occurred.
    InternalError = 2,
    /// Storage or the signer is unavailable or busy.
    TryLater = 3,
    /// The mount has no issuer that may sign a response, or OCSP is disabled.
    Unauthorized = 6,
}

impl OcspOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Successful => "successful",
            Self::MalformedRequest => "malformed_request",
            Self::InternalError => "internal_error",
            Self::TryLater => "try_later",
            Self::Unauthorized => "unauthorized",
        }
    }
}

/// An OCSP response to send.
pub struct OcspReply {
    /// Status of the response.
    pub outcome: OcspOutcome,
    /// OCSPResponse, DER.
    pub der: Bytes,
    /// Times of a response that HTTP caches may store; `None` for a response with a nonce or an unknown status.
    pub cacheable_times: Option<OcspTimes>,
}

impl OcspReply {
    /// Creates an unsigned error response.
    pub fn failure(outcome: OcspOutcome) -> Self {
        Self { outcome, der: Bytes::copy_from_slice(&ocsp::encode_failure(outcome as u8)), cacheable_times: None }
    }

    /// Creates the response to a failure of storage or the signer. Logs the cause, except for exceeded limits.
    pub fn from_error(error: &Error) -> Self {
        let outcome = match error.kind() {
            Kind::Busy | Kind::Unavailable | Kind::Quota => OcspOutcome::TryLater,
            // The mount may not use the managed key at all, or not for OCSP responses.
            Kind::Invalid => OcspOutcome::Unauthorized,
            _ => OcspOutcome::InternalError,
        };
        let is_refusal = matches!(error.kind(), Kind::Busy | Kind::Quota);
        if let Some(why) = telemetry::outage::describe_for_log(error).filter(|_| !is_refusal) {
            tracing::error!("an OCSP request failed: {why}");
        }
        Self::failure(outcome)
    }
}

/// Counts an OCSP response in the metrics.
pub fn count_reply(answered: &OcspReply) {
    metrics::counter!(telemetry::PKI_OCSP_ANSWERS, "result" => answered.outcome.name()).increment(1);
}

/// Handles an OCSP request in DER.
pub async fn handle_request(authority: &Authority, request: &[u8]) -> OcspReply {
    let view = authority.view();
    if view.crl_config.value.ocsp_disable {
        return OcspReply::failure(OcspOutcome::Unauthorized);
    }
    match OcspRequest::parse(request) {
        Ok(request) => {
            build_reply(authority, &view, &request).await.unwrap_or_else(|error| OcspReply::from_error(&error))
        }
        Err(_) => OcspReply::failure(OcspOutcome::MalformedRequest),
    }
}

async fn build_reply(authority: &Authority, view: &Arc<MountView>, request: &OcspRequest<'_>) -> Result<OcspReply> {
    if let (None, [id]) = (request.nonce, &request.certificates[..]) {
        return reply_for_single(authority, view, id).await;
    }
    let Some((responder, signing)) = find_responder(view, &request.certificates) else {
        return Ok(OcspReply::failure(OcspOutcome::Unauthorized));
    };
    let mut responses = Vec::with_capacity(request.certificates.len());
    for id in &request.certificates {
        let status = certificate_status(authority, view, responder, id).await?;
        responses.push((*id, status));
    }
    let (der, times) = sign_response(authority, view, responder, signing, &responses, request.nonce).await?;
    let is_cacheable =
        request.nonce.is_none() && responses.iter().all(|(_, status)| *status != OcspCertStatus::Unknown);
    Ok(OcspReply { outcome: OcspOutcome::Successful, der, cacheable_times: is_cacheable.then_some(times) })
}

/// Handles a request for one certificate without a nonce, the usual kind, from the cache if possible.
async fn reply_for_single(authority: &Authority, view: &Arc<MountView>, id: &CertId<'_>) -> Result<OcspReply> {
    let deps = authority.deps();
    let ocsp_cache = authority.ocsp_cache();
    let key = OcspCacheKey::new(view.mount, id.raw);
    let read = ocsp_cache.begin_row_read(deps.clock.now());
    let earlier = match ocsp_cache.find(&key, view, read) {
        OcspLookup::Fresh(signed) => return Ok(reuse_response(signed)),
        OcspLookup::Stale(signed) => Some(signed),
        OcspLookup::Miss => None,
    };
    let Some((responder, signing)) = find_responder(view, std::slice::from_ref(id)) else {
        return Ok(OcspReply::failure(OcspOutcome::Unauthorized));
    };
    let status = certificate_status(authority, view, responder, id).await?;
    if let Some(signed) = earlier.filter(|signed| signed.status == status) {
        ocsp_cache.insert(key, signed.clone(), view, read);
        return Ok(reuse_response(signed));
    }
    metrics::counter!(telemetry::PKI_OCSP_KEPT, "result" => "miss").increment(1);
    let (der, times) = sign_response(authority, view, responder, signing, &[(*id, status)], None).await?;
    let known = status != OcspCertStatus::Unknown;
    if known {
        ocsp_cache.insert(key, SignedOcspResponse { der: der.clone(), status, times }, view, read);
    }
    Ok(OcspReply { outcome: OcspOutcome::Successful, der, cacheable_times: known.then_some(times) })
}

fn reuse_response(signed: SignedOcspResponse) -> OcspReply {
    metrics::counter!(telemetry::PKI_OCSP_KEPT, "result" => "hit").increment(1);
    OcspReply { outcome: OcspOutcome::Successful, der: signed.der, cacheable_times: Some(signed.times) }
}

/// Returns the responder for the first certificate with a known issuer, or else that of the default issuer. Returns
/// `None` if the responder may not sign.
fn find_responder<'a>(view: &'a MountView, ids: &[CertId<'_>]) -> Option<(&'a Responder, &'a ResponderKey)> {
    let responders = view.responders();
    let meant = ids.iter().find_map(|id| responders.find(id));
    let responder = meant.or_else(|| responders.of(view.signer("default")?))?;
    Some((responder, responder.signing.as_ref()?))
}

async fn certificate_status(
    authority: &Authority,
    view: &MountView,
    responder: &Responder,
    id: &CertId<'_>,
) -> Result<OcspCertStatus> {
    if !responder.matches_cert_id(id) {
        return Ok(OcspCertStatus::Unknown);
    }
    let stored = authority.deps().store.serial_status(authority.mount(), id.serial).await?;
    let gone = |issuer: &str| !view.signers().any(|signer| signer.issuer.record.id == issuer);
    // A revocation under a deleted issuer applies to the responder with that issuer's name and key, and to every
    // responder if that name and key are unknown.
    let was = |issuer: &str| {
        gone(issuer) && view.authority_id_of(issuer).is_none_or(|authority| responder.is_authority(&authority))
    };
    if let Some(revocation) =
        stored.revocation.map(|r| r.row).filter(|row| responder.has_issuer(&row.issuer) || was(&row.issuer))
    {
        return Ok(OcspCertStatus::Revoked { at: revocation.revoked_at.unix_timestamp(), reason: revocation.reason });
    }
    // Imported issuers are not among the stored certificates.
    if let Some(revoked_at) = responder.find_certified_issuer(&id.serial) {
        return Ok(revoked_at.map_or(OcspCertStatus::Good, |at| OcspCertStatus::Revoked { at, reason: None }));
    }
    let known = match stored.issuer {
        Some(issuer) if responder.has_issuer(&issuer) => true,
        Some(issuer) if gone(&issuer) => was_signed_by(authority, responder, id).await?,
        Some(_) => false,
        None => view.crl_config.value.ocsp_unknown_serial == UnknownSerialStatus::Good,
    };
    Ok(if known { OcspCertStatus::Good } else { OcspCertStatus::Unknown })
}

/// Returns `true` if this responder's key signed the stored certificate. Called for a certificate whose issuer was
/// deleted; the issuer may have been imported again under another id.
async fn was_signed_by(authority: &Authority, responder: &Responder, id: &CertId<'_>) -> Result<bool> {
    let Some(stored) = authority.deps().store.certificate(authority.mount(), id.serial).await? else {
        return Ok(false);
    };
    Ok(Certificate::parse(&stored.row.der).is_ok_and(|certificate| responder.has_signed(&certificate)))
}

async fn sign_response(
    authority: &Authority,
    view: &MountView,
    responder: &Responder,
    signing: &ResponderKey,
    statuses: &[(CertId<'_>, OcspCertStatus)],
    nonce: Option<&[u8]>,
) -> Result<(Bytes, OcspTimes)> {
    let started = Instant::now();
    let made_at = authority.deps().clock.synchronized_now()?.unix_timestamp();
    let latest = statuses.iter().filter_map(|(_, status)| match status {
        OcspCertStatus::Revoked { at, .. } => Some(*at),
        OcspCertStatus::Good | OcspCertStatus::Unknown => None,
    });
    let this_update = this_update(made_at, latest.max());
    let lifetime = view.crl_config.value.ocsp_expiry().as_secs();
    let next_update = i64::try_from(lifetime)
        .ok()
        .filter(|&lifetime| lifetime > 0)
        .map(|lifetime| made_at.max(this_update) + lifetime);
    let name = responder.name(statuses.iter().map(|(id, _)| id));
    let responses: Vec<_> =
        statuses.iter().map(|(id, status)| SingleResponse { cert_id: id.raw, status: *status }).collect();
    let data =
        ResponseData { responder: name, produced_at: this_update, next_update, responses: &responses, nonce }.encode();
    let prepared = LintedTbs::for_ocsp_response(data, responder.hashes(), signing.algorithm, &signing.key)
        // The server itself built the response, so a violated rule is an internal error.
        .map_err(Error::internal)?;
    let basic = prepared.sign(&*authority.deps().signers, &CallerWatch::ALWAYS).await?.der();
    metrics::histogram!(telemetry::PKI_OCSP_SIGN_SECONDS).record(started.elapsed().as_secs_f64());
    for (_, status) in statuses {
        let word = match status {
            OcspCertStatus::Good => "good",
            OcspCertStatus::Revoked { .. } => "revoked",
            OcspCertStatus::Unknown => "unknown",
        };
        metrics::counter!(telemetry::PKI_OCSP_SIGNED, "result" => word).increment(1);
    }
    Ok((Bytes::from(ocsp::encode_successful(&basic)), OcspTimes { made_at, this_update, next_update }))
}
