//! The OCSP responder of a mount (RFC 6960, with the nonce of RFC 9654).
//!
//! A response is signed by the issuer of the first known certificate in the request, or else by the default issuer. It
//! covers only that issuer's certificates; others are `unknown`, as are serials never issued unless
//! `ocsp_unknown_serial` is `good`. Issuers sign directly, without responder certificates. Without a key, the usage
//! `ocsp-signing` or permission the result is `unauthorized`; when the store or signer is unavailable or busy it is
//! `tryLater`, for other failures `internalError`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::keys::pool::Watch;
use crate::pki::check::prepared::Prepared;
use crate::pki::crl::list::this_update;
use crate::pki::engine::Authority;
use crate::pki::engine::answers::{Found, Question, Signed, Times};
use crate::pki::mount::responders::{Responder, Signing};
use crate::pki::mount::settings::crl::UnknownSerial;
use crate::pki::mount::view::View;
use crate::telemetry;
use crate::x509::certificate::Certificate;
use crate::x509::ocsp::{self, CertId, Request, ResponseData, SingleResponse, Status};

/// Result of a request (OCSPResponseStatus, RFC 6960 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Signed response.
    Successful = 0,
    /// The request cannot be parsed.
    MalformedRequest = 1,
    /// Internal failure.
    InternalError = 2,
    /// Storage or the signer is unavailable.
    TryLater = 3,
    /// No issuer may sign a response.
    Unauthorized = 6,
}

impl Outcome {
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

/// A response to send.
pub struct Answered {
    /// Result of the request.
    pub outcome: Outcome,
    /// OCSPResponse, DER.
    pub der: Bytes,
    /// Times of a response that caches may store: it has no nonce and no unknown status.
    pub lasting: Option<Times>,
}

impl Answered {
    /// Creates an unsigned error response.
    pub fn failure(outcome: Outcome) -> Self {
        Self { outcome, der: Bytes::copy_from_slice(&ocsp::failure(outcome as u8)), lasting: None }
    }

    /// Creates the response to a failure of storage or signer. Logs the cause, except for exceeded limits.
    pub fn failed(error: &Error) -> Self {
        let outcome = match error.kind() {
            Kind::Busy | Kind::Unavailable | Kind::Quota => Outcome::TryLater,
            // The mount may not use the key, or not for this.
            Kind::Invalid => Outcome::Unauthorized,
            _ => Outcome::InternalError,
        };
        let is_refusal = matches!(error.kind(), Kind::Busy | Kind::Quota);
        if let Some(why) = telemetry::outage::told(error).filter(|_| !is_refusal) {
            tracing::error!("an OCSP answer failed: {why}");
        }
        Self::failure(outcome)
    }
}

/// Counts a response in the metrics.
pub fn count(answered: &Answered) {
    metrics::counter!(telemetry::PKI_OCSP_ANSWERS, "result" => answered.outcome.name()).increment(1);
}

/// Handles an OCSP request in DER.
pub async fn answer(authority: &Authority, request: &[u8]) -> Answered {
    let view = authority.view();
    if view.crl_config.value.ocsp_disable {
        return Answered::failure(Outcome::Unauthorized);
    }
    match Request::parse(request) {
        Ok(request) => respond(authority, &view, &request).await.unwrap_or_else(|error| Answered::failed(&error)),
        Err(_) => Answered::failure(Outcome::MalformedRequest),
    }
}

async fn respond(authority: &Authority, view: &Arc<View>, request: &Request<'_>) -> Result<Answered> {
    if let (None, [id]) = (request.nonce, &request.certificates[..]) {
        return single(authority, view, id).await;
    }
    let Some((responder, signing)) = responder(view, &request.certificates) else {
        return Ok(Answered::failure(Outcome::Unauthorized));
    };
    let mut responses = Vec::with_capacity(request.certificates.len());
    for id in &request.certificates {
        let status = status(authority, view, responder, id).await?;
        responses.push((*id, status));
    }
    let (der, times) = sign(authority, view, responder, signing, &responses, request.nonce).await?;
    let lasting = request.nonce.is_none() && responses.iter().all(|(_, status)| *status != Status::Unknown);
    Ok(Answered { outcome: Outcome::Successful, der, lasting: lasting.then_some(times) })
}

/// Handles the usual request, for one certificate without a nonce, from the cache if possible.
async fn single(authority: &Authority, view: &Arc<View>, id: &CertId<'_>) -> Result<Answered> {
    let (tools, answers) = (authority.tools(), authority.answers());
    let (question, read) = (Question::new(view.mount, id.raw), answers.reading(tools.clock.now()));
    let earlier = match answers.find(&question, view, read) {
        Found::Fresh(signed) => return Ok(again(signed)),
        Found::Signed(signed) => Some(signed),
        Found::Nothing => None,
    };
    let Some((responder, signing)) = responder(view, std::slice::from_ref(id)) else {
        return Ok(Answered::failure(Outcome::Unauthorized));
    };
    let status = status(authority, view, responder, id).await?;
    if let Some(signed) = earlier.filter(|signed| signed.status == status) {
        answers.keep(question, signed.clone(), view, read);
        return Ok(again(signed));
    }
    metrics::counter!(telemetry::PKI_OCSP_KEPT, "result" => "miss").increment(1);
    let (der, times) = sign(authority, view, responder, signing, &[(*id, status)], None).await?;
    let known = status != Status::Unknown;
    if known {
        answers.keep(question, Signed { der: der.clone(), status, times }, view, read);
    }
    Ok(Answered { outcome: Outcome::Successful, der, lasting: known.then_some(times) })
}

fn again(signed: Signed) -> Answered {
    metrics::counter!(telemetry::PKI_OCSP_KEPT, "result" => "hit").increment(1);
    Answered { outcome: Outcome::Successful, der: signed.der, lasting: Some(signed.times) }
}

/// Returns the responder of the first known certificate or else of the default issuer; `None` if it may not sign.
fn responder<'a>(view: &'a View, ids: &[CertId<'_>]) -> Option<(&'a Responder, &'a Signing)> {
    let responders = view.responders();
    let meant = ids.iter().find_map(|id| responders.meant(id));
    let responder = meant.or_else(|| responders.of(view.signer("default")?))?;
    Some((responder, responder.signing.as_ref()?))
}

async fn status(authority: &Authority, view: &View, responder: &Responder, id: &CertId<'_>) -> Result<Status> {
    if !responder.is_meant(id) {
        return Ok(Status::Unknown);
    }
    let stored = authority.tools().store.status(authority.mount(), id.serial).await?;
    let gone = |issuer: &str| !view.signers().any(|signer| signer.issuer.record.id == issuer);
    // A deleted issuer's revocation applies to responders with its name and key, or to all if these are unknown.
    let was = |issuer: &str| {
        gone(issuer) && view.authority_of(issuer).is_none_or(|authority| responder.is_authority(&authority))
    };
    if let Some(revocation) =
        stored.revocation.map(|r| r.row).filter(|row| responder.has(&row.issuer) || was(&row.issuer))
    {
        return Ok(Status::Revoked { at: revocation.revoked_at.unix_timestamp(), reason: revocation.reason });
    }
    // Imported issuers are not among the stored certificates.
    if let Some(revoked_at) = responder.certified(&id.serial) {
        return Ok(revoked_at.map_or(Status::Good, |at| Status::Revoked { at, reason: None }));
    }
    let known = match stored.issuer {
        Some(issuer) if responder.has(&issuer) => true,
        Some(issuer) if gone(&issuer) => was_signed_by(authority, responder, id).await?,
        Some(_) => false,
        None => view.crl_config.value.ocsp_unknown_serial == UnknownSerial::Good,
    };
    Ok(if known { Status::Good } else { Status::Unknown })
}

/// Returns `true` if this responder signed a stored certificate whose issuer was deleted and perhaps reimported.
async fn was_signed_by(authority: &Authority, responder: &Responder, id: &CertId<'_>) -> Result<bool> {
    let Some(stored) = authority.tools().store.certificate(authority.mount(), id.serial).await? else {
        return Ok(false);
    };
    Ok(Certificate::parse(&stored.row.der).is_ok_and(|certificate| responder.signed(&certificate)))
}

async fn sign(
    authority: &Authority,
    view: &View,
    responder: &Responder,
    signing: &Signing,
    statuses: &[(CertId<'_>, Status)],
    nonce: Option<&[u8]>,
) -> Result<(Bytes, Times)> {
    let started = Instant::now();
    let made_at = authority.tools().clock.agreed_now()?.unix_timestamp();
    let latest = statuses.iter().filter_map(|(_, status)| match status {
        Status::Revoked { at, .. } => Some(*at),
        Status::Good | Status::Unknown => None,
    });
    let this_update = this_update(made_at, latest.max());
    let life = view.crl_config.value.ocsp_expiry().as_secs();
    let next_update = i64::try_from(life).ok().filter(|&life| life > 0).map(|life| made_at.max(this_update) + life);
    let name = responder.name(statuses.iter().map(|(id, _)| id));
    let responses: Vec<_> =
        statuses.iter().map(|(id, status)| SingleResponse { cert_id: id.raw, status: *status }).collect();
    let data =
        ResponseData { responder: name, produced_at: this_update, next_update, responses: &responses, nonce }.encode();
    let prepared = Prepared::ocsp(data, responder.hashes(), signing.algorithm, &signing.key)
        // The response is built here, so an invalid one is not the client's error.
        .map_err(Error::internal)?;
    let basic = prepared.sign(&*authority.tools().signers, &Watch::ALWAYS).await?.der();
    metrics::histogram!(telemetry::PKI_OCSP_SIGN_SECONDS).record(started.elapsed().as_secs_f64());
    for (_, status) in statuses {
        let word = match status {
            Status::Good => "good",
            Status::Revoked { .. } => "revoked",
            Status::Unknown => "unknown",
        };
        metrics::counter!(telemetry::PKI_OCSP_SIGNED, "result" => word).increment(1);
    }
    Ok((Bytes::from(ocsp::successful(&basic)), Times { made_at, this_update, next_update }))
}
