//! Leaf certificates under a role (`issue` and `sign`): the key is generated here or comes from a CSR.
//!
//! The cheap role checks come first; a key is generated only if they pass.

use std::sync::Arc;

use super::csr::check_key_against_role;
use super::issuance::Issuance;
use super::not_granted;
use super::release::{CertificateDraft, IssuanceRecord, PreparedCertificate, SubjectKey, SubjectKeyIdSource};
use super::request::{IssueRequester, LeafRequest, RequestedSubjectKey};
use super::signer::{find_role, usable_key};
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::local::KeySpec;
use crate::pki::check::names::{self, CollectedNames, CsrNames, ValidatedNames, subject_alt_names};
use crate::pki::check::request::{RequestedKey, RequestedValidity};
use crate::pki::check::structure::{CertificateKind, FieldSources};
use crate::pki::check::validity;
use crate::pki::mount::profile::EncodedRole;
use crate::pki::mount::role::{CompiledRole, Role, RoleKeys};
use crate::pki::mount::signer::{IssuerSigner, requested_algorithm};
use crate::pki::values::subject_bounds;
use crate::rationing::cpu;
use crate::x509::algorithm::KeyKind;
use crate::x509::extension;
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::oid;
use crate::x509::pieces::{Extensions, Name, Rdns};
use crate::x509::weak_key;

/// Checks a request for a leaf certificate and drafts the certificate.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when store, signer or CPU queue have no capacity; `Unavailable` when the client
/// disconnects.
pub(super) async fn prepare<'r>(issuance: Issuance<'_>, request: &'r LeafRequest) -> Result<PreparedCertificate<'r>> {
    let entry = find_role(issuance.view, &request.role)?;
    let role = &entry.role;
    let record = IssuanceRecord::for_request(issuance, Some((&request.role, role)), request.metadata.as_deref())?;
    let mut warnings = Warnings::default();
    let subject_key = match &request.key {
        RequestedSubjectKey::Generated(key) => SubjectKey::Generated(key_spec(role, key, &mut warnings)?),
        RequestedSubjectKey::Csr(csr) => {
            check_key_against_role(role, csr.key.kind())?;
            weak_key::reject("csr", &csr.key)?;
            csr.verify()?;
            SubjectKey::OfCsr(csr)
        }
    };
    let signer = issuance.find_signer(Some(role))?;
    let csr = subject_key.csr();
    let collected = names::collect_for_leaf(role, &request.names, csr.map(CsrNames::of).transpose()?.as_ref())?;
    let requester = &issuance.origin.requester;
    let (names, more) = if collected.is_slow_to_validate(role) {
        Box::pin(validate_on_cpu_queue(collected, Arc::clone(role), requester.clone())).await?
    } else {
        collected.validate(&role.filled_for(requester.identity()), &requester.display_name)?
    };
    warnings.extend(more);
    let (mut draft, more) = draft_leaf(issuance, entry, subject_key.kind(), signer, &names, &request.validity)?;
    warnings.extend(more);
    if let Some(csr) = csr {
        if role.use_csr_sans {
            draft.sources = draft.sources.with_extension(oid::SUBJECT_ALT_NAME, "csr");
        }
        warnings.extend(not_granted::warnings(&draft, csr));
    }
    Ok(PreparedCertificate { draft, record, subject_key, warnings })
}

/// Checks the requested names against the role on the CPU queue, because long lists of names take long to check.
async fn validate_on_cpu_queue(
    collected: CollectedNames,
    role: Arc<CompiledRole>,
    requester: IssueRequester,
) -> Result<(ValidatedNames, Warnings)> {
    let watch = requester.watch.clone();
    let work = move || collected.validate(&role.filled_for(requester.identity()), &requester.display_name);
    tokio::select! {
        biased;
        () = watch.caller_left() => Err(Error::new(Kind::Unavailable, "the client disconnected during the name check")),
        names = cpu::run(work) => names?,
    }
}

/// Returns the type and size of the key to generate: those of the role, or those of the request if the role permits any
/// key.
fn key_spec(role: &Role, requested: &RequestedKey, warnings: &mut Warnings) -> Result<KeySpec> {
    let RoleKeys::Only(spec) = role.keys else {
        let key_type = requested
            .key_type
            .as_deref()
            .filter(|t| !t.is_empty())
            .ok_or_else(|| Error::invalid("key_type: must be given when the role permits any"))?;
        return KeySpec::new(key_type, requested.bits.unwrap_or(0));
    };
    if requested.key_type.is_some() || requested.bits.is_some() {
        warnings.add("key_type and key_bits ignored: the role decides them".to_owned());
    }
    Ok(spec)
}

/// Drafts a leaf certificate for a key of this kind; also returns warnings for the caller.
fn draft_leaf(
    issuance: Issuance<'_>,
    entry: &EncodedRole,
    kind: KeyKind,
    signer: Arc<IssuerSigner>,
    names: &ValidatedNames,
    requested: &RequestedValidity,
) -> Result<(CertificateDraft, Warnings)> {
    let Issuance { deps, origin, .. } = issuance;
    let issuer = &signer.issuer;
    let (key, now) = usable_key(&signer, &deps.clock)?;
    let issuer_parts = signer.encoded_parts()?;
    let role = &entry.role;
    let behaviour = issuer.record.leaf_not_after_behavior;
    let span = issuer.certificate.validity_range();
    let (validity, mut warnings) = validity::for_leaf(role, requested, origin.limits, span, behaviour, now)?;
    warnings.extend(subject_bounds::reject_if_strict(
        role.strict_subject,
        subject_bounds::name_violations(&names.common_name, &names.serial_number),
    )?);
    let subject = encode_subject(entry, names);
    let sans = subject_alt_names(names)?;
    // The structural checks have this rule too. Here it rejects the request before a key is generated.
    if subject.is_empty() && sans.is_empty() {
        return Err(Error::invalid(
            "common_name: the certificate has no name; set common_name or a subject alternative name",
        ));
    }
    // RFC 5280 4.2.1.6: subjectAltName is critical when the subject is empty.
    let san = extension::subject_alt_name(&sans, subject.is_empty());
    let draft = CertificateDraft {
        algorithm: requested_algorithm(&key.signing, &*deps.signers, role.requested_signature_bits(), role.use_pss)?,
        key,
        certificate_kind: CertificateKind::Leaf,
        subject,
        common_name: names.common_name.clone(),
        validity,
        leading_extensions: entry.leading_extensions(kind).clone(),
        key_id: SubjectKeyIdSource::Derived,
        trailing_extensions: issuer_parts.trailing_extensions([&san, &entry.policies], &Extensions::default()),
        sources: leaf_field_sources(),
        signer,
    };
    Ok((draft, warnings))
}

/// Returns, for each part of a leaf certificate, the field that error messages name.
fn leaf_field_sources() -> FieldSources {
    FieldSources::all("certificate")
        .with_extension(oid::SUBJECT_ALT_NAME, "alt_names")
        .with_extension(oid::KEY_USAGE, "the role's key_usage")
        .with_extension(oid::EXT_KEY_USAGE, "the role's ext_key_usage")
        .with_extension(oid::CERTIFICATE_POLICIES, "the role's policy_identifiers")
}

/// Encodes the subject: the RDNs of the role, CN, SERIALNUMBER, then one RDN per user id.
fn encode_subject(entry: &EncodedRole, names: &ValidatedNames) -> Name {
    let one = |attribute, value: &String| {
        if value.is_empty() { Rdns::default() } else { rdn(attribute, std::slice::from_ref(value)) }
    };
    let common_name = one(Attribute::CommonName, &names.common_name);
    let serial_number = one(Attribute::SerialNumber, &names.serial_number);
    let user_ids: Rdns = names.user_ids.iter().map(|id| one(Attribute::UserId, id)).collect();
    name::name(&[&entry.subject, &common_name, &serial_number, &user_ids])
}
