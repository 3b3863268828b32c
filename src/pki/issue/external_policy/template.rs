//! Issues a certificate from the policy engine's template.
//!
//! Subject, key, lifetime, serial number and extensions come from the template. Issuer name, authorityKeyIdentifier,
//! URLs (if the issuer has any) and the signature come from the issuer. The template is untrusted. It must have the
//! request's key, and may be a CA only if the operation allows it. The issuer's validity, path length and name
//! constraints and all structural checks apply.

use std::sync::{Arc, Mutex, PoisonError};

use super::PolicyOperation;
use super::wire::PolicyResponse;
use crate::clock::Time;
use crate::error::{Error, Result, Warnings};
use crate::pki::check::structure::{CertificateKind, FieldSources};
use crate::pki::check::validity::{self, Validity};
use crate::pki::engine_deps::EngineDeps;
use crate::pki::issue::issuance::Issuance;
use crate::pki::issue::issued::IssuedCertificate;
use crate::pki::issue::release::{CertificateDraft, IssuanceRecord, SubjectKeyIdSource};
use crate::pki::issue::request::IssueContext;
use crate::pki::issue::side_effects::IssueSideEffects;
use crate::pki::issue::{idempotency, self_issued, signer};
use crate::pki::mount::profile::EncodedIssuerParts;
use crate::pki::mount::signer::{IssuerSigner, preferred_algorithm};
use crate::x509::certificate::Certificate;
use crate::x509::pieces::Extensions;
use crate::x509::public_key::PublicKey;
use crate::x509::raw_extension::grants_ocsp_signing;
use crate::x509::serial::Serial;
use crate::x509::{extension, oid, pem};

/// Signs a certificate for `key` according to the engine's template.
///
/// # Errors
/// `Invalid` naming the rule that the template violates; `Unavailable` when the record cannot be stored.
pub(super) async fn issue(
    issuance: Issuance<'_>,
    operation: &PolicyOperation,
    approval: &PolicyResponse,
    key: &PublicKey,
) -> Result<IssuedCertificate> {
    let Issuance { view, deps, origin, .. } = issuance;
    let side_effects = lease_side_effects(origin, approval)?;
    let template = parse_template(&approval.certificate)?;
    check_template(&template, operation, key)?;
    let signer = signer::find_signer(view, &approval.issuer_ref)?;
    let idempotent_request = origin.idempotent_request.as_deref();
    idempotency::require_stored(
        approval.store,
        idempotent_request,
        "the policy engine set store_certificate to false",
    )?;
    let record = IssuanceRecord { role: None, store: approval.store, side_effects };
    record.require_capacity(deps)?;
    let mut warnings = Warnings::default();
    let draft = draft_certificate(&template, &signer, deps, &mut warnings)?;
    let deps = &with_first_serial(template_serial(&template, approval.store), deps);
    let issued = draft.release(Issuance { deps, ..issuance }, key, &record).await?;
    if issued.repeated {
        // This certificate was issued for an earlier request with the same idempotency key, so warnings about the
        // current template do not apply.
        return Ok(issued);
    }
    // Certificates that are not stored always get a new serial number, so only stored certificates get this warning.
    if approval.store && issued.serial != template.serial() {
        warnings
            .add("the template's serial number was replaced, because it is in use or not allowed (RFC 5280 4.1.2.2)");
    }
    Ok(issued.with_warnings(warnings))
}

/// Returns the lease that the engine requests, if any. Revoking a lease revokes its certificate, so the certificate
/// must be stored.
fn lease_side_effects(origin: &IssueContext, approval: &PolicyResponse) -> Result<IssueSideEffects> {
    match (approval.lease, approval.store) {
        (false, _) => Ok(IssueSideEffects::default()),
        (true, false) => refuse("the policy engine set generate_lease without store_certificate"),
        (true, true) => IssueSideEffects::lease_only(&origin.path, &origin.requester),
    }
}

fn refuse<T>(rule: &str) -> Result<T> {
    Err(Error::invalid(format!("external policy: {rule}")))
}

fn parse_template(text: &str) -> Result<Certificate> {
    if text.len() > pem::MAX_TEXT_BYTES {
        return refuse("the template is longer than 64 KiB");
    }
    let blocks =
        pem::parse_blocks(text).map_err(|e| Error::invalid(format!("external policy: template: {}", e.text())))?;
    match blocks.as_slice() {
        [(label, der)] if label == "CERTIFICATE" => Certificate::parse_untrusted(der)
            .map_err(|e| Error::invalid(format!("external policy: template: {}", e.text()))),
        _ => refuse("the template must be one PEM block CERTIFICATE"),
    }
}

/// Checks those properties of the template that do not depend on the issuer.
fn check_template(template: &Certificate, operation: &PolicyOperation, key: &PublicKey) -> Result<()> {
    if template.key() != key {
        return refuse("the template's public key is not the request's");
    }
    if template.is_ca() && !matches!(operation, PolicyOperation::SignIntermediate(_)) {
        return refuse("the template is a CA certificate, which only sign-intermediate may issue");
    }
    if grants_ocsp_signing(template.extensions()) {
        return refuse("the template is an OCSP responder (OCSPSigning), which only a role may issue");
    }
    if template.has_unique_ids() {
        return refuse("the template has unique identifiers, which must not be used (RFC 5280 4.1.2.8)");
    }
    Ok(())
}

fn draft_certificate(
    template: &Certificate,
    signer: &Arc<IssuerSigner>,
    deps: &EngineDeps,
    warnings: &mut Warnings,
) -> Result<CertificateDraft> {
    let (key, now) = signer::usable_key(signer, &deps.clock)?;
    let issuer_parts = signer.encoded_parts()?;
    if template.is_ca() {
        check_path_length(template, signer)?;
    }
    Ok(CertificateDraft {
        algorithm: preferred_algorithm(&key.signing, &*deps.signers, template.signature_algorithm())?,
        key,
        certificate_kind: if template.is_ca() {
            CertificateKind::TemplateAuthority
        } else {
            CertificateKind::TemplateLeaf
        },
        subject: template.subject().clone(),
        common_name: template.common_name(),
        validity: template_validity(template, signer, now, warnings)?,
        leading_extensions: merge_extensions(template, issuer_parts),
        key_id: SubjectKeyIdSource::Copied,
        trailing_extensions: Extensions::default(),
        sources: FieldSources::all("external policy: template"),
        signer: Arc::clone(signer),
    })
}

fn check_path_length(template: &Certificate, signer: &IssuerSigner) -> Result<()> {
    let max = signer::remaining_path_length(signer)?;
    // A CA certificate without a path length is limited by the chain above it (RFC 5280 6.1.4).
    match (template.path_length(), max) {
        (Some(length), Some(max)) if length > max => refuse(&format!(
            "the template's path length is more than the issuing chain allows, {max} (RFC 5280 4.2.1.9)"
        )),
        _ => Ok(()),
    }
}

/// Returns the template's validity. If it ends after the issuer's validity, the issuer's `leaf_not_after_behavior`
/// applies.
fn template_validity(
    template: &Certificate,
    signer: &IssuerSigner,
    now: Time,
    warnings: &mut Warnings,
) -> Result<Validity> {
    if template.not_after() < now.unix_timestamp() {
        return refuse("the template's notAfter lies in the past");
    }
    let issuer = &signer.issuer;
    let behaviour = issuer.record.leaf_not_after_behavior;
    let end = template.not_after();
    let latest = issuer.certificate.not_after();
    let end = validity::apply_issuer_end(end, latest, behaviour, "the policy engine", warnings)?;
    validity::check_validity_range(template.not_before(), end)
}

/// Merges the extensions of template and issuer. An extension of the issuer replaces the template's extension with the
/// same OID, or else is appended. Adds a subject key identifier if the template has none.
fn merge_extensions(template: &Certificate, issuer_parts: &EncodedIssuerParts) -> Extensions {
    let locations = &issuer_parts.locations;
    let key_id = match template.extension(oid::SUBJECT_KEY_ID) {
        Some(_) => Extensions::default(),
        None => extension::subject_key_id(&template.key().key_id()),
    };
    self_issued::replace_extensions(
        template,
        &[
            (oid::SUBJECT_KEY_ID, &key_id),
            (oid::AUTHORITY_KEY_ID, &issuer_parts.authority_key_id),
            (oid::AUTHORITY_INFO_ACCESS, &locations.authority_info),
            (oid::CRL_DISTRIBUTION_POINTS, &locations.distribution_points),
            (oid::FRESHEST_CRL, &locations.freshest_crl),
        ],
    )
}

/// Returns the template's serial number if the certificate is stored and the number is valid; storage checks that it is
/// unused. Other certificates get a new number: if the engine's templates had a fixed number, all certificates would
/// share it (RFC 5280 4.1.2.2), and one revocation would revoke all.
fn template_serial(template: &Certificate, is_stored: bool) -> Option<Serial> {
    let serial = template.serial();
    let octets = serial.octets();
    // DER puts a zero byte before a number whose first bit is set; the maximum is 20 bytes (RFC 5280 4.1.2.2).
    let is_allowed = octets != [0] && octets.len() + usize::from(octets[0] >= 0x80) <= 20;
    (is_stored && is_allowed).then_some(serial)
}

/// Returns a copy of `deps` whose source of serial numbers first yields `first`, if given, and then new numbers.
fn with_first_serial(first: Option<Serial>, deps: &EngineDeps) -> EngineDeps {
    let first = Mutex::new(first);
    let others = Arc::clone(&deps.serials);
    let next = move || {
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| others())
    };
    EngineDeps { serials: Arc::new(next), ..deps.clone() }
}
