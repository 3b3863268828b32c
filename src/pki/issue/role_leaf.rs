//! Leaf certificates under a role: [`issue`] generates a key, [`sign`] certifies the key of a CSR.
//!
//! Both use one published view. The cheap role checks come first; a key is generated only if they pass. They produce a
//! `CertificateDraft`, which is checked structurally (before generating an RSA key, too), signed, recorded and then
//! released.

use std::sync::Arc;
use std::time::Instant;

use super::csr::check_key;
use super::issued::IssuedCertificate;
use super::not_granted;
use super::release::{CertificateDraft, IssuanceRecord, SubjectKeyIdSource};
use super::request::{IssueContext, IssueRequest, IssueRequester, SignRequest};
use super::signer::{find_role, find_signer, require_signer_capacity, usable_key};
use super::stages::IssuanceStages;
use crate::error::{Error, Kind, Result, Warnings};
use crate::fair_queue::cpu;
use crate::keys::local::KeySpec;
use crate::pki::check::names::{self, CollectedNames, CsrNames, ValidatedNames, subject_alt_names};
use crate::pki::check::request::{RequestedKey, RequestedValidity};
use crate::pki::check::structure::{CertificateKind, FieldSources};
use crate::pki::check::validity::{self, MountLifetimes};
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::profile::RoleEntry;
use crate::pki::mount::role::{CompiledRole, Role, RoleKeys};
use crate::pki::mount::signer::{IssuerSigner, requested_algorithm};
use crate::pki::mount::view::MountView;
use crate::pki::values::subject_bounds;
use crate::x509::algorithm::KeyKind;
use crate::x509::csr::{Csr, OtherValue};
use crate::x509::extension;
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::oid;
use crate::x509::pieces::{Extensions, Name, Rdns};
use crate::x509::weak_key;

/// `issue`: generates a key and certifies it.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when too many RSA keys are requested; `Unavailable` when the record cannot
/// be stored, in which case no certificate is released.
pub async fn issue(
    view: Arc<MountView>,
    tools: EngineDeps,
    origin: IssueContext,
    request: IssueRequest,
    stages: IssuanceStages,
) -> Result<IssuedCertificate> {
    let started = Instant::now();
    let entry = find_role(&view, &request.role)?;
    let record = IssuanceRecord::of(&origin, Some((&request.role, &entry.role)), request.metadata.as_deref())?;
    record.require_capacity(&tools)?;
    require_signer_capacity(&view, origin.issuer_or(&entry.role.issuer_ref), &*tools.signers)?;
    let mut warnings = Warnings::default();
    let spec = key_spec(&entry.role, &request.key, &mut warnings)?;
    let signer = find_signer(&view, origin.issuer_or(&entry.role.issuer_ref))?;
    let (names, more) = check_names(names::collect_for_issue(&request.names)?, &entry.role, &origin.requester).await?;
    warnings.extend(more);
    let (draft, more) = draft_leaf(&entry, spec.kind(), signer, &names, &request.validity, origin.limits, &tools)?;
    warnings.extend(more);
    if let Some(stand_in) = spec.stand_in() {
        draft.check_with_placeholder(&stand_in)?;
    }
    let started = stages.rules(started);
    let key = tools.pool.generate(spec, &origin.requester.watch).await?;
    stages.key(started);
    let issued = draft.release(&view, &tools, key.public(), &record, &stages).await?;
    Ok(IssuedCertificate { key: Some(Arc::new(key)), ..issued.with_warnings(warnings) })
}

/// `sign`: certifies the key of a CSR.
///
/// # Errors
/// As [`issue`].
pub async fn sign(
    view: Arc<MountView>,
    tools: EngineDeps,
    origin: IssueContext,
    request: SignRequest,
    stages: IssuanceStages,
) -> Result<IssuedCertificate> {
    let started = Instant::now();
    let entry = find_role(&view, &request.role)?;
    let record = IssuanceRecord::of(&origin, Some((&request.role, &entry.role)), request.metadata.as_deref())?;
    record.require_capacity(&tools)?;
    require_signer_capacity(&view, origin.issuer_or(&entry.role.issuer_ref), &*tools.signers)?;
    let csr = &request.csr;
    check_key(&entry.role, csr.key.kind())?;
    weak_key::reject("csr", &csr.key)?;
    csr.verify()?;
    let mut warnings = Warnings::default();
    let signer = find_signer(&view, origin.issuer_or(&entry.role.issuer_ref))?;
    let collected = names::collect_for_sign(&entry.role, &request.names, &csr_names(csr)?)?;
    let (names, more) = check_names(collected, &entry.role, &origin.requester).await?;
    warnings.extend(more);
    let (draft, more) = draft_leaf(&entry, csr.key.kind(), signer, &names, &request.validity, origin.limits, &tools)?;
    warnings.extend(more);
    let sources = if entry.role.use_csr_sans { sources().with(oid::SUBJECT_ALT_NAME, "csr") } else { sources() };
    let draft = CertificateDraft { sources, ..draft };
    warnings.extend(not_granted::warnings(&draft, csr));
    stages.rules(started);
    let issued = draft.release(&view, &tools, &csr.key, &record, &stages).await?;
    Ok(issued.with_warnings(warnings))
}

/// Checks names against the role. Long checks run in the CPU queue.
async fn check_names(
    collected: CollectedNames,
    role: &Arc<CompiledRole>,
    who: &IssueRequester,
) -> Result<(ValidatedNames, Warnings)> {
    if !collected.is_long(role) {
        return collected.validate(&role.filled_for(who.identity()), &who.display_name);
    }
    let role = Arc::clone(role);
    let who = who.clone();
    let watch = who.watch.clone();
    let work = move || collected.validate(&role.filled_for(who.identity()), &who.display_name);
    tokio::select! {
        biased;
        () = watch.ended() => Err(Error::new(Kind::Unavailable, "the client disconnected during the name check")),
        names = cpu::run(work) => names?,
    }
}

/// The key for `issue` to generate: the role's, or with `any` the request's.
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

fn csr_names(csr: &Csr) -> Result<CsrNames> {
    let sans = csr.sans()?;
    // Of several values the last counts, as in certificate parsers.
    let last = |attribute| csr.subject_values(attribute).map(|mut values| values.pop().unwrap_or_default());
    let other = |(oid, value): (Vec<u8>, OtherValue)| {
        let text = match value {
            OtherValue::Text(text) => Some(text),
            OtherValue::Other => None,
        };
        (extension::oid_text(&oid), text)
    };
    Ok(CsrNames {
        common_name: last(Attribute::CommonName)?,
        serial_number: last(Attribute::SerialNumber)?,
        user_ids: csr.subject_values(Attribute::UserId)?,
        dns: sans.dns,
        emails: sans.emails,
        ips: sans.ips,
        uris: sans.uris,
        other: sans.other.into_iter().map(other).collect(),
        unruled: sans.unruled,
    })
}

/// Creates the draft of a leaf for a key of this kind; also returns warnings for the caller.
fn draft_leaf(
    entry: &RoleEntry,
    kind: KeyKind,
    signer: Arc<IssuerSigner>,
    names: &ValidatedNames,
    requested: &RequestedValidity,
    limits: MountLifetimes,
    tools: &EngineDeps,
) -> Result<(CertificateDraft, Warnings)> {
    let issuer = &signer.issuer;
    let (key, now) = usable_key(&signer, &tools.clock)?;
    let pieces = signer.pieces()?;
    let role = &entry.role;
    let behaviour = issuer.record.leaf_not_after_behavior;
    let span = issuer.certificate.span();
    let (validity, mut warnings) = validity::for_leaf(role, requested, limits, span, behaviour, now)?;
    warnings.extend(subject_bounds::reject_if_strict(
        role.strict_subject,
        subject_bounds::name_violations(&names.common_name, &names.serial_number),
    )?);
    let subject = subject(entry, names);
    let sans = subject_alt_names(names)?;
    // The structural checks have this rule too; here it applies before key generation.
    if subject.is_empty() && sans.is_empty() {
        return Err(Error::invalid(
            "common_name: the certificate has no name; set common_name or a subject alternative name",
        ));
    }
    // RFC 5280 4.2.1.6: critical when the subject is empty.
    let san = extension::subject_alt_name(&sans, subject.is_empty());
    let locations = &pieces.locations;
    let tail = Extensions::joined(&[
        &pieces.authority_key_id,
        &locations.authority_info,
        &san,
        &entry.policies,
        &locations.distribution_points,
        &locations.freshest_crl,
    ]);
    let draft = CertificateDraft {
        algorithm: requested_algorithm(&key.signing, &*tools.signers, role.requested_signature_bits(), role.use_pss)?,
        key,
        shape: CertificateKind::Leaf,
        subject,
        common_name: names.common_name.clone(),
        validity,
        head: entry.leading(kind).clone(),
        key_id: SubjectKeyIdSource::Derived,
        tail,
        sources: sources(),
        signer,
    };
    Ok((draft, warnings))
}

/// Maps the parts of a leaf to their fields.
fn sources() -> FieldSources {
    FieldSources::all("certificate")
        .with(oid::SUBJECT_ALT_NAME, "alt_names")
        .with(oid::KEY_USAGE, "the role's key_usage")
        .with(oid::EXT_KEY_USAGE, "the role's ext_key_usage")
        .with(oid::CERTIFICATE_POLICIES, "the role's policy_identifiers")
}

/// Encodes the subject: the role's RDNs, CN, SERIALNUMBER, then one RDN per user id.
fn subject(entry: &RoleEntry, names: &ValidatedNames) -> Name {
    let one = |attribute, value: &String| {
        if value.is_empty() { Rdns::default() } else { rdn(attribute, std::slice::from_ref(value)) }
    };
    let common_name = one(Attribute::CommonName, &names.common_name);
    let serial_number = one(Attribute::SerialNumber, &names.serial_number);
    let user_ids: Rdns = names.user_ids.iter().map(|id| one(Attribute::UserId, id)).collect();
    name::name(&[&entry.subject, &common_name, &serial_number, &user_ids])
}
