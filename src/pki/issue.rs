//! Issuing: check → sign → store → answer, in that order and never another.
//!
//! [`issue`] makes key and certificate, [`sign`] certifies the key of a request (CSR). Both run the
//! same pipeline on one published view. The rules come first and cost little; a key is generated only
//! when they have passed. What they let through is a [`Draft`], which is checked once more, signed,
//! recorded and only then released.

use std::sync::Arc;
use std::time::Instant;

use super::beside::{Beside, Lease};
use super::metrics::Stages;
use super::names::{self, CsrNames, Names};
use super::ocsp;
use super::profile::RoleEntry;
use super::release::{Draft, Record, SubjectKeyId};
use super::request::IssueRequest;
use super::serials::Serials;
use super::store::PkiStore;
use super::structure::Shape;
use super::subject_bounds;
use super::validity::{self, Limits};
use super::view::{Signer, View};
use super::{answer, role::Role};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::local::KeySpec;
use crate::keys::pool::{KeyPool, Watch};
use crate::secret::PartlySecret;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::csr::{Csr, OtherValue};
use crate::x509::extension::{self, SubjectAltNames};
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::public_key::PublicKey;
use crate::x509::usage::KeyUsage;
use crate::x509::weak_key;

/// What issuing needs besides the view: shared by all mounts of a server.
#[derive(Clone)]
pub struct Tools {
    /// Where records go.
    pub store: Arc<dyn PkiStore>,
    /// Where RSA keys are generated.
    pub pool: KeyPool,
    /// The time.
    pub clock: Clock,
    /// The source of serials.
    pub serials: Serials,
    /// OCSP answers that were signed a moment ago.
    pub ocsp: Arc<ocsp::Answers>,
}

/// Who asks, as far as rules and records care.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// How the record names the requester (never a token or accessor in clear).
    pub recorded_as: String,
    /// The token's display name: roles may allow it as a name.
    pub display_name: String,
    /// SHA-256 of the token: leases end with it.
    pub token: [u8; 32],
    /// Whether the token ends with this request.
    pub last_use: bool,
    /// Whether the caller still waits for the answer.
    pub watch: Watch,
}

/// A request to issue or sign.
pub struct Request {
    /// The path of the request, mount included: leases are named after it.
    pub path: String,
    /// Role name; empty on endpoints without a role.
    pub role: String,
    /// Issuer of the path; else the role's.
    pub issuer_ref: Option<String>,
    /// Body members.
    pub fields: Fields,
    /// Who asks.
    pub requester: Requester,
    /// The mount's lifetimes.
    pub limits: Limits,
}

impl Request {
    /// The issuer of the path, else `other`.
    pub(super) fn issuer_or<'a>(&'a self, other: &'a str) -> &'a str {
        self.issuer_ref.as_deref().unwrap_or(other)
    }

    /// How a certificate is recorded that is issued by the role of the request, or without one.
    ///
    /// # Errors
    /// Those of [`Beside::of`].
    pub(super) fn record(&self, role: Option<&Role>) -> Result<Record<'_>> {
        Ok(Record {
            role: role.map(|_| self.role.as_str()),
            requester: &self.requester.recorded_as,
            store: role.is_none_or(|role| !role.no_store),
            beside: Beside::of(self, role)?,
        })
    }
}

/// The dates in an answer, epoch seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// notBefore, where the answer shows it.
    pub not_before: Option<i64>,
    /// notAfter.
    pub expiration: i64,
}

impl Dates {
    /// As an answer about an authority shows them: its end.
    pub(super) fn of_authority(self) -> Self {
        Self { not_before: None, ..self }
    }
}

/// An issued certificate, ready to send.
pub struct Issued {
    /// The answer's `data` without its dates: JSON text of an object with members; a private key may be in it.
    pub json: PartlySecret,
    /// Its dates; none where the answer has none.
    pub dates: Option<Dates>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// The lease that comes with it, when the role wants one.
    pub lease: Option<Lease>,
}

/// `issue`: generates a key and certifies it.
///
/// # Errors
/// `Invalid` naming field and rule; `Busy` when too many RSA keys are asked for; `Unavailable` when the
/// record cannot be stored, and then no certificate is released.
pub async fn issue(view: Arc<View>, tools: Tools, request: Request, stages: Stages) -> Result<Issued> {
    let started = Instant::now();
    let entry = role(&view, &request.role)?;
    let parsed = IssueRequest::from_fields(&request.fields)?;
    let record = request.record(Some(&entry.role))?;
    let mut warnings = Vec::new();
    let spec = key_spec(&entry.role, &parsed, &mut warnings)?;
    let signer = signer(&view, request.issuer_or(&entry.role.issuer_ref))?;
    let (names, more) = names::for_issue(&entry.role, &parsed, &request.requester.display_name)?;
    warnings.extend(more);
    let (draft, more) = leaf(&entry, spec.kind(), &signer, &names, &parsed, request.limits, tools.clock.now())?;
    warnings.extend(more);
    let started = stages.rules(started);
    let key = tools.pool.generate(spec, view.mount, &request.requester.watch).await?;
    stages.key(started);
    let issued = draft.release(&view, &tools, key.public(), &record, &stages).await?;
    let json = answer::issued(&signer, &parsed, &issued, Some(&key))?;
    Ok(Issued { json, dates: Some(issued.dates), warnings, lease: issued.lease })
}

/// `sign`: certifies the key of a request made elsewhere.
///
/// # Errors
/// As [`issue`]; what the request asks for is held against the role like any other input.
pub async fn sign(view: Arc<View>, tools: Tools, request: Request, stages: Stages) -> Result<Issued> {
    let started = Instant::now();
    let entry = role(&view, &request.role)?;
    let parsed = IssueRequest::from_fields(&request.fields)?;
    let record = request.record(Some(&entry.role))?;
    let csr = Csr::from_pem(request.fields.str("csr")?.unwrap_or_default())?;
    check_key(&entry.role, csr.key.kind())?;
    weak_key::refuse("csr", &csr.key)?;
    csr.verify()?;
    let mut warnings = Vec::new();
    if csr.basic_constraints().is_some() {
        warnings.push("basicConstraints of the CSR ignored: this endpoint issues leaf certificates only".to_owned());
    }
    let signer = signer(&view, request.issuer_or(&entry.role.issuer_ref))?;
    let (names, more) = names::for_sign(&entry.role, &parsed, &csr_names(&csr)?, &request.requester.display_name)?;
    warnings.extend(more);
    let (draft, more) = leaf(&entry, csr.key.kind(), &signer, &names, &parsed, request.limits, tools.clock.now())?;
    warnings.extend(more);
    stages.rules(started);
    let issued = draft.release(&view, &tools, &csr.key, &record, &stages).await?;
    let json = answer::issued(&signer, &parsed, &issued, None)?;
    Ok(Issued { json, dates: Some(issued.dates), warnings, lease: issued.lease })
}

pub(super) fn role(view: &View, name: &str) -> Result<Arc<RoleEntry>> {
    view.role(name).cloned().ok_or_else(|| Error::invalid(format!("unknown role: {name}")))
}

/// The issuer that a request selects.
pub(super) fn signer(view: &View, reference: &str) -> Result<Arc<Signer>> {
    view.signer(reference).cloned().ok_or_else(|| {
        Error::invalid(if reference.eq_ignore_ascii_case("default") {
            "issuer_ref: no default issuer configured".to_owned()
        } else {
            "issuer_ref: issuer not found".to_owned()
        })
    })
}

/// Which key `issue` generates: the role's, or under `any` the request's.
fn key_spec(role: &Role, request: &IssueRequest, warnings: &mut Vec<String>) -> Result<KeySpec> {
    if role.key_type == "any" {
        let key_type = request
            .key_type
            .as_deref()
            .filter(|t| !t.is_empty())
            .ok_or_else(|| Error::invalid("key_type: must be given when the role permits any"))?;
        return KeySpec::new(key_type, request.key_bits.unwrap_or(0));
    }
    if request.key_type.is_some() || request.key_bits.is_some() {
        warnings.push("key_type and key_bits ignored: the role decides them".to_owned());
    }
    KeySpec::new(&role.key_type, i64::from(role.key_bits))
}

/// Key rules of `sign` (RSA below 2048 bits is refused whatever the role).
fn check_key(role: &Role, kind: KeyKind) -> Result<()> {
    if role.key_type != "any" && role.key_type != kind.name() {
        return Err(Error::invalid(format!("csr: role requires keys of type {}", role.key_type)));
    }
    let floor = smallest_key(kind);
    let wanted = if role.key_type == "any" { floor } else { role.key_bits.max(floor) };
    if kind != KeyKind::Ed25519 && kind.bits() < wanted {
        return Err(Error::invalid(format!("csr: role requires a minimum of an {wanted}-bit key")));
    }
    Ok(())
}

/// Bits of the smallest key that anything is certified for, whatever the role.
fn smallest_key(kind: KeyKind) -> u32 {
    match kind {
        KeyKind::Rsa { .. } => 2048,
        KeyKind::Ec(_) => 224,
        KeyKind::Ed25519 => 0,
    }
}

/// Reads and verifies the request of an endpoint without key rules of its own.
///
/// # Errors
/// `Invalid` naming `csr` and the rule.
pub(super) fn verified_csr(fields: &Fields) -> Result<Csr> {
    let csr = Csr::from_pem(fields.str("csr")?.unwrap_or_default())?;
    check_outside_key("csr", &csr.key)?;
    csr.verify()?;
    Ok(csr)
}

/// Refuses keys below the smallest that anything is certified for, and those that are weak by their shape.
/// `what` is the field.
///
/// # Errors
/// `Invalid` naming field and rule.
pub(super) fn check_outside_key(what: &str, key: &PublicKey) -> Result<()> {
    let smallest = smallest_key(key.kind());
    if key.kind().bits() < smallest {
        return Err(Error::invalid(format!("{what}: keys of this type need at least {smallest} bits")));
    }
    weak_key::refuse(what, key)
}

fn csr_names(csr: &Csr) -> Result<CsrNames> {
    let sans = csr.sans()?;
    let first = |attribute| name::values(&csr.subject, attribute).map(|v| v.into_iter().next().unwrap_or_default());
    let other = |(oid, value): (Vec<u8>, OtherValue)| {
        let text = match value {
            OtherValue::Utf8(text) => Some(text),
            OtherValue::Other => None,
        };
        (extension::oid_text(&oid), text)
    };
    Ok(CsrNames {
        common_name: first(Attribute::CommonName)?,
        serial_number: first(Attribute::SerialNumber)?,
        user_ids: name::values(&csr.subject, Attribute::UserId)?,
        dns: sans.dns,
        emails: sans.emails,
        ips: sans.ips,
        uris: sans.uris,
        other: sans.other.into_iter().map(other).collect(),
        unruled: sans.unruled,
    })
}

/// The draft of a leaf by a role, for a key of this kind, and warnings for the caller.
fn leaf(
    entry: &RoleEntry,
    kind: KeyKind,
    signer: &Arc<Signer>,
    names: &Names,
    request: &IssueRequest,
    limits: Limits,
    now: Time,
) -> Result<(Draft, Vec<String>)> {
    let issuer = &signer.issuer;
    let key = usable_key(signer, now)?;
    let pieces = signer.pieces()?;
    let role = &entry.role;
    let behaviour = issuer.record.leaf_not_after_behavior;
    let end = issuer.certificate.not_after();
    let (validity, mut warnings) = validity::for_leaf(role, request, limits, end, behaviour, now)?;
    warnings.extend(subject_bounds::settle(role.strict_subject, subject_bounds::of_names(names))?);
    let subject = subject(entry, names);
    let sans = subject_alt_names(names)?;
    // The certificate is held against this too; here it is refused before a key is made.
    if name::is_empty(&subject) && sans.is_empty() {
        return Err(Error::invalid("common_name: the certificate names nobody: a name must be given"));
    }
    // RFC 5280 4.2.1.6: critical when the subject is empty.
    let san = extension::subject_alt_name(&sans, name::is_empty(&subject));
    let locations = &pieces.locations;
    let tail = [
        &pieces.authority_key_id[..],
        &locations.authority_info,
        &san,
        &entry.policies,
        &locations.distribution_points,
        &locations.freshest_crl,
    ]
    .concat();
    let draft = Draft {
        algorithm: SignatureAlgorithm::for_issuer(key.public().kind(), role.signature_bits, role.use_pss)?,
        signer: Arc::clone(signer),
        key,
        shape: Shape::Leaf,
        subject,
        common_name: names.common_name.clone(),
        validity,
        head: entry.leading(kind).to_vec(),
        key_id: SubjectKeyId::OfKey,
        tail,
    };
    Ok((draft, warnings))
}

/// The key of an issuer that may sign certificates now: it is here, its usage allows it, and its
/// certificate is neither revoked nor expired.
pub(super) fn usable_key(signer: &Signer, now: Time) -> Result<Arc<super::issuer::Key>> {
    let record = &signer.issuer.record;
    let refuse = |why: &str| Err(Error::invalid(format!("issuer_ref: issuer may not issue certificates: {why}")));
    let Some(key) = &signer.key else { return refuse("its private key is not in this mount") };
    if record.revoked_at.is_some() {
        return refuse("it is revoked");
    }
    if !record.usage.issuing {
        return refuse("its usage lacks issuing-certificates");
    }
    let certificate = &signer.issuer.certificate;
    // RFC 5280 6.1.4 (n): what it would sign, nobody would accept.
    if certificate.key_usage().is_some_and(|usage| !usage.contains(KeyUsage::CERT_SIGN)) {
        return refuse("its certificate's keyUsage lacks keyCertSign");
    }
    if certificate.not_after() <= now.unix_timestamp() {
        return refuse("it is expired");
    }
    Ok(Arc::clone(key))
}

/// Subject of a leaf: the role's RDNs, CN, SERIALNUMBER, then one RDN per user id.
fn subject(entry: &RoleEntry, names: &Names) -> Vec<u8> {
    let one = |attribute, value: &String| {
        if value.is_empty() { Vec::new() } else { rdn(attribute, std::slice::from_ref(value)) }
    };
    let common_name = one(Attribute::CommonName, &names.common_name);
    let serial_number = one(Attribute::SerialNumber, &names.serial_number);
    let user_ids: Vec<u8> = names.user_ids.iter().flat_map(|id| one(Attribute::UserId, id)).collect();
    name::name(&[&entry.subject, &common_name, &serial_number, &user_ids])
}

/// The names as encodable subject alternative names.
pub(super) fn subject_alt_names(names: &Names) -> Result<SubjectAltNames> {
    let other = names
        .other
        .iter()
        .map(|(oid, value)| {
            let oid = extension::parse_oid(oid)
                .ok_or_else(|| Error::invalid("other_sans: every entry must start with a dotted OID"))?;
            Ok((oid, value.clone()))
        })
        .collect::<Result<_>>()?;
    Ok(SubjectAltNames {
        dns: names.dns.clone(),
        emails: names.emails.clone(),
        ips: names.ips.clone(),
        uris: names.uris.clone(),
        other,
    })
}
