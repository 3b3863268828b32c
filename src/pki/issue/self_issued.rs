//! `sign-self-issued`: signs the self-issued certificate of another CA, so that certificates of that CA also verify for
//! clients that trust only this issuer.
//!
//! Only the issuer name, authorityKeyIdentifier and, if configured, the distribution points change. The certificate is
//! not recorded, because the other CA chose its serial number.

use std::time::Instant;

use super::csr::{CA_WITH_OCSP_SIGNING_REASON, check_key_strength};
use super::idempotency;
use super::issuance::Issuance;
use super::issued::IssuedCertificate;
use super::request::SelfIssuedRequest;
use super::signer::{remaining_path_length, require_signer_capacity, usable_key};
use crate::error::{Error, Result};
use crate::pki::check::linted_tbs::LintedTbs;
use crate::pki::check::structure::{CertificateKind, ExpectedIssuer, FieldSources};
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::signer::preferred_algorithm;
use crate::pki::mount::view::MountView;
use crate::x509::certificate::Certificate;
use crate::x509::oid;
use crate::x509::pieces::Extensions;
use crate::x509::raw_extension::grants_ocsp_signing;

/// Signs the self-issued certificate of another CA with the key of an issuer of the mount.
///
/// # Errors
/// `Invalid` naming field and rule.
pub(super) async fn sign(
    issuance: Issuance<'_>,
    request: &SelfIssuedRequest,
    started: Instant,
) -> Result<IssuedCertificate> {
    let Issuance { view, deps, origin, stages } = issuance;
    require_signer_capacity(view, issuance.issuer_ref(None), &*deps.signers)?;
    idempotency::require_stored(false, origin.idempotent_request.as_deref(), "sign-self-issued stores no certificate")?;
    let certificate = &request.certificate;
    check_self_issued(certificate)?;
    deps.compromised.refuse("certificate", certificate.key())?;
    let signer = issuance.find_signer(None)?;
    let (key, now) = usable_key(&signer, &deps.clock)?;
    let issuer_parts = signer.encoded_parts()?;
    remaining_path_length(&signer)?;
    let kind = key.public().kind();
    if request.require_matching_key_types && kind.name() != certificate.key().kind().name() {
        return Err(Error::invalid(format!(
            "require_matching_certificate_algorithms: the certificate's key has type {}, the issuer's key has type {}",
            certificate.key().kind().name(),
            kind.name()
        )));
    }
    let mut warnings = request.warnings.clone();
    warnings.extend(repeated_identity_warning(certificate, &signer.issuer));
    refuse_used_serial(view, deps, &signer.issuer, certificate).await?;
    let started = stages.record_rules_stage(started);
    let algorithm = preferred_algorithm(&key.signing, &*deps.signers, certificate.signature_algorithm())?;
    let issuer = signer.issuer.certificate.subject();
    let own = [
        (oid::AUTHORITY_KEY_ID, &issuer_parts.authority_key_id),
        (oid::CRL_DISTRIBUTION_POINTS, &issuer_parts.locations.distribution_points),
    ];
    let extensions = replace_extensions(certificate, &own);
    let tbs = certificate.reissue_tbs(algorithm, issuer, &extensions);
    let sources = &FieldSources::all("certificate");
    let expected = ExpectedIssuer { algorithm, issuer, key_id: &issuer_parts.key_id, sources };
    let prepared = LintedTbs::for_certificate(
        tbs,
        CertificateKind::CrossSigned,
        &expected,
        &issuer_parts.constraints,
        &key.signing,
    )?;
    let signed = prepared.sign(&*deps.signers, &origin.requester.watch).await?;
    stages.record_sign_stage(started);
    let issued_at = now.unix_timestamp();
    let issued =
        IssuedCertificate::new(signed.der(), certificate.serial(), certificate.validity_range(), signer, issued_at);
    Ok(IssuedCertificate { warnings, ..issued })
}

/// Returns a warning if the certificate has the issuer's own name, for example when a CA signs its new key with its old
/// key. The signed certificate then has the same issuer and serial number as the one in the request (RFC 5280 4.1.2.2).
fn repeated_identity_warning(certificate: &Certificate, issuer: &Issuer) -> Option<String> {
    let serial = certificate.serial();
    certificate.issuer().matches(issuer.certificate.subject()).then(|| {
        format!(
            "certificate: the signed certificate repeats the issuer and serial number {serial} of the submitted one \
             (RFC 5280 4.1.2.2); NSS and issuers/import refuse the two together. For a new key of this CA, use \
             intermediate/cross-sign and then sign-intermediate with use_csr_values, which assigns a new serial number"
        )
    })
}

/// Rejects a certificate that is not a self-issued CA certificate.
fn check_self_issued(certificate: &Certificate) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("certificate: {rule}")));
    check_key_strength("certificate", certificate.key())?;
    if !certificate.is_ca() {
        return refuse("basicConstraints must have cA TRUE");
    }
    if !certificate.issuer().matches(certificate.subject()) {
        return refuse("must be self-issued: its issuer and subject differ");
    }
    // The certificate's extensions are kept, so the extended key usage OCSPSigning cannot be dropped.
    if grants_ocsp_signing(certificate.extensions()) {
        return refuse(&format!("extKeyUsage has {CA_WITH_OCSP_SIGNING_REASON}"));
    }
    Ok(())
}

/// Rejects a serial number that the issuer has used for another certificate (RFC 5280 4.1.2.2).
async fn refuse_used_serial(
    view: &MountView,
    deps: &EngineDeps,
    issuer: &Issuer,
    certificate: &Certificate,
) -> Result<()> {
    let serial = certificate.serial();
    let stored = deps.store.certificate(view.mount, serial).await?.map(|stored| stored.row);
    let is_taken = stored.is_some_and(|row| {
        row.der != certificate.der() && !view.are_different_authorities(&row.issuer, &issuer.record.id)
    });
    let is_issuers =
        || view.find_issuer_certified_by(issuer, serial).is_some_and(|one| one.certificate.key() != certificate.key());
    if is_taken || is_issuers() {
        return Err(Error::invalid(format!(
            "certificate: its serial number {serial} is that of another certificate of the issuer (RFC 5280 4.1.2.2)"
        )));
    }
    Ok(())
}

/// Returns the certificate's extensions merged with `own` (OID, extension). Each non-empty extension of `own` replaces
/// the extension with the same OID, or else is appended.
pub(crate) fn replace_extensions(certificate: &Certificate, own: &[(&[u8], &Extensions)]) -> Extensions {
    let of = |oid: &[u8]| own.iter().find(|(own, one)| *own == oid && !one.is_empty()).map(|(_, one)| *one);
    let kept = certificate.extensions().iter().map(|e| of(&e.oid).unwrap_or(&e.raw));
    let added = own.iter().filter(|(oid, _)| certificate.extension(oid).is_none()).map(|(_, one)| *one);
    Extensions::joined(&kept.chain(added).collect::<Vec<_>>())
}
