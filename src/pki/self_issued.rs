//! `sign-self-issued`: signs another authority's self-issued certificate as it is, so that both roots
//! lead to the same keys.
//!
//! Only the issuer's name, authorityKeyIdentifier and, where URLs are configured, the distribution points
//! change; every other byte stays. The certificate is not recorded: its serial number is its maker's.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::issue::{Issued, Request, Tools, check_outside_key, signer, usable_key};
use super::metrics::Stages;
use super::prepared::Prepared;
use super::profile::certificate_pem;
use super::sign_intermediate;
use super::structure::{Expected, Shape};
use super::view::View;
use crate::error::{Error, Result};
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::certificate::Certificate;
use crate::x509::{oid, pem};

/// Body members.
pub const FIELDS: &[&str] = &["certificate", "require_matching_certificate_algorithms"];

/// Signs a self-issued certificate.
///
/// # Errors
/// `Invalid` naming field and rule.
pub async fn sign(view: Arc<View>, tools: Tools, request: Request, stages: Stages) -> Result<Issued> {
    let started = Instant::now();
    let fields = &request.fields;
    let certificate = submitted(fields.str("certificate")?.unwrap_or_default())?;
    let signer = signer(&view, request.issuer_or("default"))?;
    let key = usable_key(&signer, tools.clock.now())?;
    let pieces = signer.pieces()?;
    sign_intermediate::below(&signer)?;
    let kind = key.public().kind();
    let matching = fields.bool("require_matching_certificate_algorithms")?.unwrap_or(false);
    if matching && kind.name() != certificate.key().kind().name() {
        return Err(Error::invalid(format!(
            "require_matching_certificate_algorithms: the certificate's key is of type {}, the issuer's of type {}",
            certificate.key().kind().name(),
            kind.name()
        )));
    }
    let started = stages.rules(started);
    let algorithm = algorithm(&certificate, kind)?;
    let issuer = signer.issuer.certificate.subject();
    let own = [
        (oid::AUTHORITY_KEY_ID, &pieces.authority_key_id),
        (oid::CRL_DISTRIBUTION_POINTS, &pieces.locations.distribution_points),
    ];
    let extensions = with_replaced(&certificate, &own);
    let slices: Vec<&[u8]> = extensions.iter().map(Vec::as_slice).collect();
    let tbs = certificate.reissue_tbs(algorithm, issuer, &slices);
    let expected = Expected { algorithm, issuer, key_id: &pieces.key_id };
    let signed = Prepared::certificate(tbs, Shape::Kept, &expected, &pieces.constraints, &key.private)?.sign().await?;
    stages.sign(started);
    let data = json!({
        "certificate": pem::encode("CERTIFICATE", &signed.der()),
        "issuing_ca": certificate_pem(&signer.issuer),
    });
    Ok(Issued { json: data.to_string().into(), dates: None, warnings: Vec::new(), lease: None })
}

/// The certificate to sign: an authority's own.
fn submitted(text: &str) -> Result<Certificate> {
    let refuse = |rule: &str| Err(Error::invalid(format!("certificate: {rule}")));
    if text.len() > pem::MAX_TEXT {
        return refuse("longer than 64 KiB");
    }
    let (label, der) = match pem::first(text) {
        Ok(Some(block)) => block,
        _ => return refuse("must be a PEM block CERTIFICATE"),
    };
    if label != "CERTIFICATE" {
        return refuse("the PEM block must be a CERTIFICATE");
    }
    let certificate = Certificate::submitted(&der)?;
    check_outside_key("certificate", certificate.key())?;
    if !certificate.is_ca() {
        return refuse("basicConstraints must say cA TRUE");
    }
    if certificate.issuer() != certificate.subject() {
        return refuse("must be self-issued: its issuer and subject differ");
    }
    Ok(certificate)
}

/// The certificate's own algorithm where the issuer's key can make it, else what the key implies. One
/// over SHA-1 or MD5 is never kept.
pub(super) fn algorithm(certificate: &Certificate, kind: KeyKind) -> Result<SignatureAlgorithm> {
    match certificate.signature_algorithm().filter(|algorithm| algorithm.is_usual_for(kind)) {
        Some(algorithm) => Ok(algorithm),
        None => SignatureAlgorithm::for_issuer(kind, 0, false),
    }
}

/// The extensions in their order, the issuer's `own` in the place of those that they replace or at the end;
/// an empty one replaces nothing.
pub(super) fn with_replaced(certificate: &Certificate, own: &[(&[u8], &Vec<u8>)]) -> Vec<Vec<u8>> {
    let of = |oid: &[u8]| own.iter().find(|(own, der)| *own == oid && !der.is_empty()).map(|(_, der)| (*der).clone());
    let mut all: Vec<Vec<u8>> =
        certificate.extensions().iter().map(|e| of(&e.oid).unwrap_or_else(|| e.raw.clone())).collect();
    all.extend(own.iter().filter(|(oid, _)| certificate.extension(oid).is_none()).map(|(_, der)| (*der).clone()));
    all
}
