//! `sign-intermediate`: certifies the key of a CSR as a CA below an issuer.
//!
//! The request sets names and constraints of the CA. With `use_csr_values`, subject, names and extensions come from the
//! CSR, with two exceptions. basicConstraints, authorityKeyIdentifier and CRL URLs never come from the CSR. Name
//! constraints, key identifier and other URLs come from it only if request and issuer set none.

use std::collections::HashSet;

use super::csr;
use super::csr::CA_WITH_OCSP_SIGNING_REASON;
use super::issuance::Issuance;
use super::not_granted;
use super::release::{CertificateDraft, IssuanceRecord, PreparedCertificate, SubjectKey, SubjectKeyIdSource};
use super::request::{IntermediateRequest, RequestedCaNames};
use super::signer::{remaining_path_length, usable_key};
use super::verbatim;
use crate::error::{Error, Result, Warnings};
use crate::pki::check::names::{self, subject_alt_names};
use crate::pki::check::request::{RequestedNames, RequestedSubject};
use crate::pki::check::structure::CertificateKind;
use crate::pki::check::{ca_request, interoperability, validity};
use crate::pki::mount::profile::EncodedIssuerParts;
use crate::pki::mount::role::Role;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::urls::NO_URLS_WARNING;
use crate::pki::values::subject_bounds;
use crate::x509::csr::{Csr, OtherNameValue};
use crate::x509::extension::{self, KeyUsage, SubjectAltNames};
use crate::x509::oid;
use crate::x509::pieces::{Extensions, Name};

/// Checks a request for a CA certificate and drafts the certificate.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when store or signer have no capacity.
pub(super) fn prepare<'r>(issuance: Issuance<'_>, request: &'r IntermediateRequest) -> Result<PreparedCertificate<'r>> {
    let Issuance { deps, origin, .. } = issuance;
    let record = IssuanceRecord::for_request(issuance, None, None)?;
    let csr = &request.csr;
    csr::verify(csr)?;
    let signer = issuance.find_signer(None)?;
    let (key, now) = usable_key(&signer, &deps.clock)?;
    let issuer_parts = signer.encoded_parts()?;
    let mut warnings = Warnings::default();
    let path_length = path_length(request.max_path_length, &signer, &mut warnings)?;
    let issuer = &signer.issuer;
    let naming = resolve_ca_names(&request.names, csr, &mut warnings)?;
    refuse_ocsp_signing(request, naming.from_csr)?;
    if naming.subject.matches(issuer.certificate.subject()) {
        warnings.add("common_name: the subject equals the issuer's subject, which confuses chain building".to_owned());
    }
    let enforce = request.enforce_leaf_not_after_behavior;
    let behaviour = issuer.record.leaf_not_after_behavior.on_truncating_endpoint(enforce);
    let lifetimes = Role { not_before_duration: request.not_before_duration.as_secs(), ..Role::default() };
    let span = issuer.certificate.validity_range();
    let (limits, more) = origin.limits.for_authority(&request.validity);
    warnings.extend(more);
    let (validity, more) = validity::for_leaf(&lifetimes, &request.validity, limits, span, behaviour, now)?;
    warnings.extend(more);
    let locations = &issuer_parts.locations;
    if [&locations.authority_info, &locations.distribution_points].iter().all(|l| l.is_empty()) {
        warnings.add(NO_URLS_WARNING.to_owned());
    }
    let constraints = ca_request::encode_name_constraints(&request.constraints)?;
    warnings.extend(ca_request::constraint_warnings(&request.constraints));
    let ca_extensions = CaExtensions::new(request, issuer_parts, &naming, !constraints.is_empty(), &mut warnings);
    let draft = CertificateDraft {
        algorithm: request.signature.algorithm(&key.signing, &*deps.signers)?,
        key,
        certificate_kind: CertificateKind::Authority,
        common_name: naming.subject.common_name(),
        subject: naming.subject,
        validity,
        leading_extensions: Extensions::joined(&[
            &ca_extensions.usages,
            &extension::basic_constraints(true, path_length),
        ]),
        key_id: ca_extensions.key_id,
        trailing_extensions: issuer_parts.trailing_extensions([&naming.san, &constraints], &ca_extensions.copies),
        sources: if naming.from_csr { verbatim::verbatim_field_sources(csr) } else { ca_request::ca_field_sources() },
        signer,
    };
    warnings.extend(not_granted::warnings(&draft, csr));
    Ok(PreparedCertificate { draft, record, subject_key: SubjectKey::OfCsr(csr), warnings })
}

/// Rejects a CA certificate with the extended key usage OCSPSigning: its key could sign OCSP responses for the issuer
/// above. A CA needs no extended key usage to sign OCSP responses about its own certificates.
fn refuse_ocsp_signing(request: &IntermediateRequest, from_csr: bool) -> Result<()> {
    let copied = if from_csr { &request.csr.extensions[..] } else { &[] };
    let field = csr::ocsp_signing_source(copied, &request.usages.ext_key_usage);
    field.map_or(Ok(()), |field| Err(Error::invalid(format!("{field} {CA_WITH_OCSP_SIGNING_REASON}"))))
}

/// Returns the path length to encode: the requested one, or else the maximum that the issuing chain allows.
fn path_length(requested: Option<u8>, signer: &IssuerSigner, warnings: &mut Warnings) -> Result<Option<u32>> {
    let max = remaining_path_length(signer)?;
    let length = match (requested.map(u32::from), max) {
        (None, max) => max,
        (Some(requested), Some(max)) if requested > max => {
            return Err(Error::invalid(format!(
                "max_path_length: {requested} is more than the issuing chain allows, {max} (RFC 5280 4.2.1.9)"
            )));
        }
        (requested, _) => requested,
    };
    if length == Some(0) {
        warnings.add("the path length is 0: this CA can sign leaf certificates only".to_owned());
    }
    Ok(length)
}

/// Names of a CA certificate, taken from the request or from the CSR.
struct CaNames {
    subject: Name,
    /// subjectAltName made from the request. Empty if the request has no names for it, or if the CSR's extension is
    /// copied.
    san: Extensions,
    /// `true` if the names and extensions of the CSR are copied.
    from_csr: bool,
}

fn resolve_ca_names(requested: &RequestedCaNames, csr: &Csr, warnings: &mut Warnings) -> Result<CaNames> {
    let naming = match requested {
        RequestedCaNames::Requested { names, subject } => names_from_request(names, subject, csr, warnings)?,
        RequestedCaNames::FromCsr { other_sans, ignored } => {
            if !ignored.is_empty() {
                warnings.add(format!("{} ignored: use_csr_values takes them from the CSR", ignored.join(", ")));
            }
            names_from_csr(other_sans, csr)?
        }
    };
    ca_request::check_subject(if naming.from_csr { "csr" } else { "common_name" }, &naming.subject)?;
    warnings.extend(subject_bounds::subject_violations(naming.from_csr.then_some("csr"), &naming.subject));
    Ok(naming)
}

fn names_from_request(
    names: &RequestedNames,
    subject: &RequestedSubject,
    csr: &Csr,
    warnings: &mut Warnings,
) -> Result<CaNames> {
    let mut requested = names.clone();
    if requested.common_name.is_empty() {
        requested.common_name = csr.common_name().trim().to_owned();
    }
    if requested.common_name.is_empty() {
        return Err(Error::invalid("common_name: must be given when the CSR has none"));
    }
    let (names, more) = names::collect_for_ca(&requested)?;
    warnings.extend(more);
    let subject = ca_request::encode_ca_subject(subject, &names.common_name, &names.serial_number)?;
    let san = extension::subject_alt_name(&subject_alt_names(&names)?, subject.is_empty());
    Ok(CaNames { subject, san, from_csr: false })
}

fn names_from_csr(other_sans: &[String], csr: &Csr) -> Result<CaNames> {
    let subject = csr.subject.clone();
    if other_sans.is_empty() {
        return Ok(CaNames { subject, san: Extensions::default(), from_csr: true });
    }
    // Merge the otherNames of the request and the names of the CSR into one subjectAltName.
    let only_other = RequestedNames { other_sans: other_sans.to_vec(), ..RequestedNames::default() };
    let (names, _) = names::collect_for_ca(&only_other)?;
    let sans = csr.sans()?;
    if let Some(kind) = sans.unsupported_name_kind {
        return Err(Error::invalid(format!(
            "csr: subject alternative names of the kind {kind} cannot be joined with other_sans"
        )));
    }
    let mut other = subject_alt_names(&names)?.other;
    let mut known: HashSet<_> = other.iter().cloned().collect();
    for (oid, value) in sans.other {
        let OtherNameValue::Text(text) = value else {
            let text = "csr: an otherName that is neither a UTF8String nor an SRVName cannot be joined with other_sans";
            return Err(Error::invalid(text));
        };
        let name = (oid, text);
        if known.insert(name.clone()) {
            other.push(name);
        }
    }
    let all = SubjectAltNames { dns: sans.dns, emails: sans.emails, ips: sans.ips, uris: sans.uris, other };
    let san = extension::subject_alt_name(&all, subject.is_empty());
    Ok(CaNames { subject, san, from_csr: true })
}

/// Extensions of a CA certificate that depend on request and CSR.
struct CaExtensions {
    /// keyUsage and extKeyUsage, unless they are copied from the CSR.
    usages: Extensions,
    /// The extensions copied from the CSR.
    copies: Extensions,
    key_id: SubjectKeyIdSource,
}

impl CaExtensions {
    fn new(
        request: &IntermediateRequest,
        issuer_parts: &EncodedIssuerParts,
        naming: &CaNames,
        constrained: bool,
        warnings: &mut Warnings,
    ) -> Self {
        let csr = &request.csr;
        let key_id = request.key_id.clone();
        let mut usages = extension::key_usage(ca_request::ca_key_usage(&request.usages));
        let purposes = extension::ext_key_usage(&request.usages.ext_key_usage);
        if !naming.from_csr {
            usages.extend(&purposes);
            let key_id = key_id.map_or(SubjectKeyIdSource::Derived, SubjectKeyIdSource::Given);
            return Self { usages, copies: Extensions::default(), key_id };
        }
        let is_wanted = |oid: &[u8]| match oid {
            oid::BASIC_CONSTRAINTS | oid::CRL_DISTRIBUTION_POINTS | oid::FRESHEST_CRL => false,
            oid::NAME_CONSTRAINTS => !constrained,
            oid::SUBJECT_KEY_ID => key_id.is_none(),
            oid::SUBJECT_ALT_NAME => naming.san.is_empty(),
            _ => true,
        };
        // A CSR's keyUsage without keyCertSign is extended with the usages of a CA; a complete one is copied.
        let incomplete_usage = csr.key_usage().filter(|usage| !usage.contains(KeyUsage::CERT_SIGN));
        let copied: Vec<_> = csr
            .extensions
            .iter()
            .filter(|e| is_wanted(&e.oid) && verbatim::is_copied_from_csr(e, &issuer_parts.locations))
            .filter(|e| incomplete_usage.is_none() || e.oid != oid::KEY_USAGE)
            .collect();
        warnings.extend(interoperability::verifier_warnings(copied.iter().copied()).map(|why| format!("csr: {why}")));
        let has = |oid: &[u8]| copied.iter().any(|extension| extension.oid == oid);
        if let Some(usage) = incomplete_usage {
            usages = extension::key_usage(usage.union(ca_request::CA_KEY_USAGE));
        } else if has(oid::KEY_USAGE) {
            usages = Extensions::default();
        }
        if !has(oid::EXT_KEY_USAGE) {
            usages.extend(&purposes);
        }
        let key_id = match key_id {
            Some(octets) => SubjectKeyIdSource::Given(octets),
            None if has(oid::SUBJECT_KEY_ID) => SubjectKeyIdSource::Copied,
            None => SubjectKeyIdSource::Derived,
        };
        let copied: Vec<_> = copied.iter().map(|extension| &extension.raw).collect();
        Self { usages, copies: Extensions::joined(&copied), key_id }
    }
}
