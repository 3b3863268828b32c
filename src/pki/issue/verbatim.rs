//! `sign-verbatim`: certifies the content of a CSR as a leaf. There are no name rules, and only the minimum key rules;
//! an optional role sets lifetimes, issuer and storage.
//!
//! The CSR's extensions are copied unchanged, in their order, after the server's own. authorityKeyIdentifier always
//! comes from the issuer. URLs come from the issuer if it has any. CA certificates are rejected.

use std::collections::HashSet;

use super::csr;
use super::issuance::Issuance;
use super::not_granted;
use super::release::{CertificateDraft, IssuanceRecord, PreparedCertificate, SubjectKey, SubjectKeyIdSource};
use super::request::VerbatimRequest;
use super::signer::{find_role, usable_key};
use crate::error::{Error, Result, Warnings};
use crate::pki::check::names::{MAX_ALL_NAMES_BYTES, check_text};
use crate::pki::check::structure::{CertificateKind, FieldSources};
use crate::pki::check::validity;
use crate::pki::mount::profile::UrlExtensions;
use crate::pki::mount::role::Role;
use crate::pki::values::subject_bounds;
use crate::x509::csr::{Csr, RawExtension};
use crate::x509::extension::{self, KeyUsage};
use crate::x509::name::{self, Attribute};
use crate::x509::oid;
use crate::x509::pieces::{Extensions, Name};
use crate::x509::raw_extension::read_ext_key_usage;

/// keyUsage of a certificate if neither the CSR nor the request has one.
const DEFAULT_KEY_USAGE: KeyUsage =
    KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_AGREEMENT).union(KeyUsage::KEY_ENCIPHERMENT);

/// Checks a CSR that is signed verbatim, and drafts its certificate.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when store or signer have no capacity.
pub(super) fn prepare<'r>(issuance: Issuance<'_>, request: &'r VerbatimRequest) -> Result<PreparedCertificate<'r>> {
    let Issuance { view, deps, origin, .. } = issuance;
    let (role, may_sign_ocsp) = match &request.role {
        None => (Role::default(), false),
        Some(name) => {
            let role = &find_role(view, name)?.role;
            (role.for_verbatim(), role.grants_ocsp_signing())
        }
    };
    let named = request.role.as_deref().map(|name| (name, &role));
    let record = IssuanceRecord::for_request(issuance, named, request.metadata.as_deref())?;
    let csr = &request.csr;
    csr::verify(csr)?;
    refuse_ca(csr)?;
    if !may_sign_ocsp {
        refuse_ocsp_signing(request)?;
    }
    let signer = issuance.find_signer(Some(&role))?;
    let (key, now) = usable_key(&signer, &deps.clock)?;
    let issuer_parts = signer.encoded_parts()?;
    let issuer = &signer.issuer;
    let enforce = request.enforce_leaf_not_after_behavior;
    let behaviour = issuer.record.leaf_not_after_behavior.on_truncating_endpoint(enforce);
    let span = issuer.certificate.validity_range();
    let (validity, mut warnings) = validity::for_leaf(&role, &request.validity, origin.limits, span, behaviour, now)?;
    let subject = subject_with_user_ids(csr, &request.user_ids)?;
    let broken = subject_bounds::subject_violations(Some("csr"), &csr.subject);
    warnings.extend(subject_bounds::reject_if_strict(role.strict_subject, broken)?);
    let copies = copied_extensions(csr, &issuer_parts.locations, subject.is_empty(), &mut warnings);
    let draft = CertificateDraft {
        algorithm: request.signature.algorithm(&key.signing, &*deps.signers)?,
        key,
        certificate_kind: CertificateKind::Leaf,
        common_name: subject.common_name(),
        subject,
        validity,
        leading_extensions: leading_extensions(request, &role)?,
        key_id: if csr.extension(oid::SUBJECT_KEY_ID).is_some() {
            SubjectKeyIdSource::Copied
        } else {
            SubjectKeyIdSource::Derived
        },
        trailing_extensions: issuer_parts
            .trailing_extensions([&Extensions::default(), &Extensions::default()], &copies),
        sources: verbatim_field_sources(csr),
        signer,
    };
    warnings.extend(not_granted::warnings(&draft, csr));
    warnings.extend(overridden_usage_warnings(request));
    warnings.extend(time_stamping_warning(&draft).map(str::to_owned));
    Ok(PreparedCertificate { draft, record, subject_key: SubjectKey::OfCsr(csr), warnings })
}

/// Returns warnings about usages in the request that the CSR's extensions override.
fn overridden_usage_warnings(request: &VerbatimRequest) -> Warnings {
    let mut warnings = Warnings::default();
    let requested = request.usages.key_usage;
    let own = request.csr.key_usage();
    if own.zip(requested).is_some_and(|(own, requested)| own != requested) {
        warnings.add("key_usage ignored: the CSR has the extension keyUsage");
    }
    let requested = &request.usages.ext_key_usage;
    let own = request.csr.extension(oid::EXT_KEY_USAGE).map(|own| read_ext_key_usage(&own.value).unwrap_or_default());
    if own.is_some_and(|own| !requested.iter().all(|purpose| own.contains(&purpose.as_slice()))) {
        warnings.add("ext_key_usage and ext_key_usage_oids ignored: the CSR has the extension extKeyUsage");
    }
    warnings
}

/// Returns a warning if time-stamp verifiers would reject the certificate (RFC 3161 2.3).
fn time_stamping_warning(draft: &CertificateDraft) -> Option<&'static str> {
    let extension = [&draft.leading_extensions, &draft.trailing_extensions]
        .into_iter()
        .find_map(|part| not_granted::find_extension(part, oid::EXT_KEY_USAGE))?;
    let purposes = read_ext_key_usage(extension.value).ok()?;
    let fits = extension.critical == Some(true) && purposes.len() == 1;
    (purposes.contains(&oid::TIME_STAMPING) && !fits).then_some(
        "extKeyUsage: verifiers of time stamps need id-kp-timeStamping alone, in a critical extension (RFC 3161 2.3)",
    )
}

fn refuse_ca(csr: &Csr) -> Result<()> {
    if csr.is_ca_request() {
        return Err(Error::invalid("csr: basicConstraints have cA TRUE; sign-verbatim issues no CA certificates"));
    }
    if csr.key_usage().is_some_and(|usage| usage.contains(KeyUsage::CERT_SIGN)) {
        return Err(Error::invalid(
            "csr: keyUsage has keyCertSign, which belongs to CA certificates (RFC 5280 4.2.1.3)",
        ));
    }
    Ok(())
}

/// Rejects the extended key usage OCSPSigning: the key could sign any status for every certificate of the issuer.
fn refuse_ocsp_signing(request: &VerbatimRequest) -> Result<()> {
    match csr::ocsp_signing_source(&request.csr.extensions, &request.usages.ext_key_usage) {
        Some(field) => Err(Error::invalid(format!(
            "{field} OCSPSigning, which lets its holder sign OCSP responses for the issuer (RFC 6960 4.2.2.2); use a \
             role whose ext_key_usage lists OCSPSigning"
        ))),
        None => Ok(()),
    }
}

/// Returns the CSR's subject, unchanged, followed by one RDN for each distinct user id.
fn subject_with_user_ids(csr: &Csr, user_ids: &[String]) -> Result<Name> {
    if user_ids.is_empty() {
        return Ok(csr.subject.clone());
    }
    if user_ids.iter().map(String::len).sum::<usize>() > MAX_ALL_NAMES_BYTES {
        return Err(Error::invalid(format!("user_ids: together longer than {MAX_ALL_NAMES_BYTES} bytes")));
    }
    user_ids.iter().try_for_each(|id| check_text("user_ids", id))?;
    let mut seen = HashSet::new();
    let each = user_ids.iter().filter(|id| !id.is_empty() && seen.insert(*id));
    let ids = each.map(|id| name::rdn(Attribute::UserId, std::slice::from_ref(id)));
    csr.subject.with_rdns(&ids.collect())
}

/// Returns, for each part of the certificate, the field that error messages name: `csr`, except for usages that the CSR
/// lacks.
pub(super) fn verbatim_field_sources(csr: &Csr) -> FieldSources {
    let usages = [(oid::KEY_USAGE, "key_usage"), (oid::EXT_KEY_USAGE, "ext_key_usage")];
    let lacking = usages.into_iter().filter(|(oid, _)| csr.extension(oid).is_none());
    lacking.fold(FieldSources::all("csr"), |sources, (oid, field)| sources.with_extension(oid, field))
}

/// Returns keyUsage, extKeyUsage and basicConstraints as requested, without the extensions that the CSR has.
fn leading_extensions(request: &VerbatimRequest, role: &Role) -> Result<Extensions> {
    let usage = request.usages.key_usage.unwrap_or(DEFAULT_KEY_USAGE);
    if usage.contains(KeyUsage::CERT_SIGN) {
        return Err(Error::invalid("key_usage: CertSign belongs to CA certificates (RFC 5280 4.2.1.3)"));
    }
    let flagged = request.basic_constraints_valid_for_non_ca.unwrap_or(role.basic_constraints_valid_for_non_ca);
    let constraints = if flagged { extension::basic_constraints(false, None) } else { Extensions::default() };
    let unless_in_csr =
        |oid, extension| if request.csr.extension(oid).is_some() { Extensions::default() } else { extension };
    Ok(Extensions::joined(&[
        &unless_in_csr(oid::KEY_USAGE, extension::key_usage(usage)),
        &unless_in_csr(oid::EXT_KEY_USAGE, extension::ext_key_usage(&request.usages.ext_key_usage)),
        &unless_in_csr(oid::BASIC_CONSTRAINTS, constraints),
    ]))
}

/// Returns the extensions to copy from the CSR. `own` are the issuer's URL extensions.
fn copied_extensions(csr: &Csr, own: &UrlExtensions, subject_is_empty: bool, warnings: &mut Warnings) -> Extensions {
    let mut copied = Extensions::default();
    for extension in csr.extensions.iter().filter(|extension| is_copied_from_csr(extension, own)) {
        // RFC 5280 4.1.2.6: without a subject, relying parties must not ignore subjectAltName.
        if extension.oid == oid::SUBJECT_ALT_NAME && subject_is_empty && !extension.critical {
            warnings.add("csr: subjectAltName was marked critical, because the subject is empty".to_owned());
            copied.extend(&extension::extension(&extension.oid, true, &extension.value));
        } else {
            copied.extend(&extension.raw);
        }
    }
    copied
}

/// Returns `true` if an extension of a CSR is copied: not authorityKeyIdentifier, and URLs only if the issuer has none.
/// Also applies to `use_csr_values` of `sign-intermediate`.
pub(crate) fn is_copied_from_csr(extension: &RawExtension, own: &UrlExtensions) -> bool {
    match extension.oid.as_slice() {
        oid::AUTHORITY_KEY_ID => false,
        oid::AUTHORITY_INFO_ACCESS => own.authority_info.is_empty(),
        oid::CRL_DISTRIBUTION_POINTS => own.distribution_points.is_empty(),
        oid::FRESHEST_CRL => own.freshest_crl.is_empty(),
        _ => true,
    }
}
