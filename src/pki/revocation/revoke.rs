//! Revokes certificates (by serial number, certificate, proof of possession or lease) and issuers.
//!
//! A stored revocation is effective even if the CRL build fails. Without `auto_rebuild`, the response waits for a CRL
//! that lists it. The revocation of an issuer is also stored with those of certificates, so it outlives the issuer.

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::crl_import::MAX_CLOCK_SKEW_SECONDS;
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result, Warnings};
use crate::keys::local::PrivateKey;
use crate::pki::actor::{PendingRevocation, PlannedChange};
use crate::pki::compromised::NewCompromisedKey;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::view::MountView;
use crate::pki::store::{
    CertificateRow, PkiOutcome, PkiWrite, RevocationReason, RevocationRow, StoredCertificate, StoredRevocation,
    is_compromise,
};
use crate::rationing::{QueueCaller, cpu};
use crate::telemetry;
use crate::x509::certificate::Certificate;
use crate::x509::serial::Serial;
use crate::x509::time::MIN_UTC_EPOCH_SECONDS;

/// Minimum remaining lifetime in seconds. A certificate that expires sooner counts as expired and is normally not
/// revoked.
const MIN_REMAINING_SECONDS: i64 = 2;
/// Warning that the given reason or invalidity date is ignored, because the certificate was revoked earlier.
const REASON_UNCHANGED_WARNING: &str =
    "already revoked: reason and invalidity date are unchanged; only a key compromise can be added later";

/// A request to revoke a certificate.
pub struct RevocationRequest {
    /// The certificate to revoke.
    pub certificate: CertificateRef,
    /// Reason and invalidity date of the revocation.
    pub why: RequestedReason,
}

/// Reason and invalidity date given by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedReason {
    /// The reason; `None` means unspecified.
    pub reason: Option<ReasonCode>,
    /// Date from which the certificate is not trusted, epoch seconds.
    pub invalidity_date: Option<i64>,
}

impl RequestedReason {
    fn revocation_reason(self) -> RevocationReason {
        RevocationReason { reason: self.reason.map(ReasonCode::code), invalidity_date: self.invalidity_date }
    }

    /// Returns the certificate's key for the list of compromised keys if the reason is a compromise.
    fn compromised_key(self, serial: Serial, der: &[u8]) -> Option<NewCompromisedKey> {
        is_compromise(self.reason.map(ReasonCode::code)).then(|| NewCompromisedKey::of_revoked(serial, der)).flatten()
    }

    /// Rejects an invalidity date that CRLs cannot represent or that is later than the revocation at `now`, with a
    /// tolerance for clock skew.
    fn check_date(self, now: Time) -> Result<()> {
        match self.invalidity_date {
            Some(..MIN_UTC_EPOCH_SECONDS) => {
                Err(Error::invalid("invalidity_date: lies before 1950 (RFC 5280 4.1.2.5)"))
            }
            Some(date) if date > now.unix_timestamp() + MAX_CLOCK_SKEW_SECONDS => {
                Err(Error::invalid("invalidity_date: is later than the revocation (RFC 5280 5.3.2)"))
            }
            _ => Ok(()),
        }
    }
}

/// A certificate, given by serial number or by content.
pub enum CertificateRef {
    /// Serial number of a stored certificate.
    Serial(Serial),
    /// A complete certificate, stored or not.
    Certificate(Box<Certificate>),
}

/// Revocation reasons (RFC 5280 5.3.1), except certificateHold and removeFromCRL, because revocations are permanent,
/// and except the reasons for attribute authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonCode {
    /// The private key is compromised.
    KeyCompromise = 1,
    /// The key of a CA is compromised; invalid for leaf certificates.
    CaCompromise = 2,
    /// The subject's name or other data changed.
    AffiliationChanged = 3,
    /// Another certificate replaces the revoked one.
    Superseded = 4,
    /// The certificate is no longer needed.
    CessationOfOperation = 5,
    /// A privilege that the certificate grants was withdrawn.
    PrivilegeWithdrawn = 9,
}

impl ReasonCode {
    /// Error text for a reason that is unknown or not permitted.
    pub const RULE: &str = "reason: must be unspecified, keyCompromise, affiliationChanged, superseded, \
        cessationOfOperation or privilegeWithdrawn, or its number; for a CA certificate also cACompromise";

    /// Returns the CRL reason code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Outcome of a revocation request.
pub enum RevocationOutcome {
    /// The certificate is revoked, by this request or an earlier one.
    Revoked {
        /// Time of the first revocation.
        at: Time,
        /// Warnings for the caller.
        warnings: Warnings,
    },
    /// The certificate has expired or is about to expire; no revocation was recorded.
    Expired,
}

struct RevocationTarget {
    revocation: Option<StoredRevocation>,
    serial: Serial,
    issuer: String,
    not_after: i64,
    /// The certificate, DER; empty if it is revoked but not stored.
    der: Vec<u8>,
    /// Row of a certificate that the caller submitted and that is not stored yet.
    submitted: Option<Box<CertificateRow>>,
}

impl RevocationTarget {
    fn from_stored(found: StoredCertificate) -> Self {
        Self {
            revocation: found.revocation,
            serial: found.row.serial,
            issuer: found.row.issuer,
            not_after: found.row.not_after,
            der: found.row.der,
            submitted: None,
        }
    }

    fn from_equal_stored(found: StoredCertificate, der: &[u8]) -> Result<Self> {
        if found.row.der == der { Ok(Self::from_stored(found)) } else { Err(serial_collision_error()) }
    }

    fn expires_too_soon(&self, now: Time) -> bool {
        self.not_after < now.unix_timestamp() + MIN_REMAINING_SECONDS
    }

    fn revocation_row(&self, mount: MountId, now: Time, why: RequestedReason) -> RevocationRow {
        let RevocationReason { reason, invalidity_date } = why.revocation_reason();
        let serial = self.serial;
        let issuer = self.issuer.clone();
        let not_after = self.not_after;
        RevocationRow { mount, serial, issuer, revoked_at: now, not_after, reason, invalidity_date }
    }
}

/// Revokes a certificate. An earlier revocation keeps its time; [`RevocationReason::amended_by`] decides about its
/// reason and date, and a warning reports a given reason or date that is not applied.
///
/// # Errors
/// `Invalid` naming the rule; `Unavailable` when the revocation cannot be stored, or when it is stored but no CRL can
/// be built.
pub async fn revoke(
    authority: &Arc<Authority>,
    revocation: RevocationRequest,
    requester: &str,
) -> Result<RevocationOutcome> {
    let pending = authority.announce_revocation();
    let (target, why) = find_target(authority, revocation, requester).await?;
    revoke_target(authority, target, why, pending).await
}

/// Like [`revoke`], for the holder of the private key. `parse_key` parses the submitted key, and runs only after the
/// certificate was found.
///
/// # Errors
/// As [`revoke`]; those of `parse_key`; `Invalid` when the key belongs to another certificate. Errors never quote the
/// key.
pub async fn revoke_with_key(
    authority: &Arc<Authority>,
    revocation: RevocationRequest,
    parse_key: impl FnOnce() -> Result<PrivateKey> + Send + 'static,
    requester: &str,
) -> Result<RevocationOutcome> {
    let (target, why) = find_target(authority, revocation, requester).await?;
    if target.der.is_empty() {
        return Err(unknown_serial_error(target.serial));
    }
    let der = target.der.clone();
    // The check of a large RSA key takes milliseconds.
    cpu::run(move || verify_possession(&der, parse_key)).await??;
    // A key that was sent in a request is compromised, regardless of the given reason.
    let why = RequestedReason { reason: Some(ReasonCode::KeyCompromise), ..why };
    revoke_target(authority, target, why, authority.announce_revocation()).await
}

fn verify_possession(certificate_der: &[u8], parse_key: impl FnOnce() -> Result<PrivateKey>) -> Result<()> {
    let refuse = |why: &str| Err(Error::invalid(format!("private_key: {why}")));
    let certificate = Certificate::parse(certificate_der).map_err(Error::internal)?;
    let key = parse_key()?;
    if key.kind().name() != certificate.key().kind().name() {
        return refuse("is of another type than the certificate's key");
    }
    if key.kind() != certificate.key().kind() || key.public().bits() != certificate.key().bits() {
        return refuse("does not belong to the certificate");
    }
    Ok(())
}

/// Returns the revocation to store when a lease ends. Returns `None` if the certificate is not stored, already revoked,
/// expired, or belongs to an issuer.
pub(crate) async fn revocation_of_lease(authority: &Authority, serial: Serial) -> Result<Option<RevocationRow>> {
    let Some(found) = authority.deps().store.certificate(authority.mount(), serial).await? else { return Ok(None) };
    let now = authority.deps().clock.synchronized_now()?;
    let target = RevocationTarget::from_stored(found);
    let is_issuer = authority.view().issuer_with_der(&target.der).is_some();
    let done = target.revocation.is_some() || target.expires_too_soon(now) || is_issuer;
    Ok((!done).then(|| target.revocation_row(authority.mount(), now, RequestedReason::default())))
}

async fn revoke_target(
    authority: &Arc<Authority>,
    target: RevocationTarget,
    why: RequestedReason,
    pending: PendingRevocation,
) -> Result<RevocationOutcome> {
    let serial = target.serial;
    let submitted = target.submitted.as_ref().map(|row| row.der.clone());
    if let Some(outcome) = try_revoke(authority, target, why, pending).await? {
        return Ok(outcome);
    }
    // A concurrent request stored the submitted certificate first, so revoke the stored one.
    let stored = authority.deps().store.certificate(authority.mount(), serial).await?;
    let target = RevocationTarget::from_equal_stored(
        stored.ok_or_else(|| unknown_serial_error(serial))?,
        &submitted.unwrap_or_default(),
    )?;
    let again = try_revoke(authority, target, why, authority.announce_revocation()).await?;
    again.ok_or_else(|| Error::internal("the store returned no outcome for a revocation"))
}

/// Returns `None` if a concurrent request stored the submitted certificate first; the caller then tries again.
async fn try_revoke(
    authority: &Arc<Authority>,
    mut target: RevocationTarget,
    why: RequestedReason,
    pending: PendingRevocation,
) -> Result<Option<RevocationOutcome>> {
    let now = authority.deps().clock.synchronized_now()?;
    why.check_date(now)?;
    let row = target.revocation_row(authority.mount(), now, why);
    let view = authority.view();
    if target
        .revocation
        .as_ref()
        .is_some_and(|earlier| view.are_different_authorities(&earlier.row.issuer, &target.issuer))
    {
        return Err(serial_collision_error());
    }
    let compromised = why.compromised_key(target.serial, &target.der);
    // An earlier revocation takes precedence over the expiry: a certificate revoked while valid remains revoked.
    let is_revoked = target.revocation.is_some();
    let unchanged = target.revocation.take().filter(|earlier| earlier.row.amended_by(&row).is_none());
    if let Some(earlier) = unchanged.filter(|_| target.submitted.is_none()) {
        // Another node may have stored this revocation, so the OCSP cache may be outdated and the CRL may be pending.
        authority.ocsp_cache().record_revocation();
        // An operator may have removed the key from the list of compromised keys, so it is added again.
        let full = list_compromised_key(authority, compromised).await?;
        let mut warnings = authority.publish_revocation(&earlier, pending).await?;
        warnings.extend(reason_unchanged_warning(earlier.row.revocation_reason(), why));
        warnings.extend(full);
        return Ok(Some(RevocationOutcome::Revoked { at: earlier.row.revoked_at, warnings }));
    }
    let expired_too = view.crl_config.value.allow_expired_cert_revocation;
    if !is_revoked && target.expires_too_soon(now) && !expired_too {
        // The expired certificate needs no revocation, but its key might be submitted in another request.
        list_compromised_key(authority, compromised).await?;
        return Ok(Some(RevocationOutcome::Expired));
    }
    let issuer = row.issuer.clone();
    let mut unit = Vec::with_capacity(2);
    unit.extend(target.submitted.take().map(|row| PkiWrite::Certificate(*row)));
    unit.push(PkiWrite::Revocation(row));
    // Runs as a task of its own, so that a client disconnect does not leave the revocation without its CRL.
    let authority = Arc::clone(authority);
    let work = async move { store_revocation(&authority, unit, compromised, &issuer, why, pending).await };
    let recorded = tokio::spawn(QueueCaller::current().scope(work));
    recorded.await.map_err(Error::internal)?
}

/// Adds the key of a certificate that needs no new revocation to the list of compromised keys; returns a warning if
/// that list is full.
async fn list_compromised_key(
    authority: &Arc<Authority>,
    compromised: Option<NewCompromisedKey>,
) -> Result<Option<String>> {
    let Some(key) = compromised else { return Ok(None) };
    let authority = Arc::clone(authority);
    // Runs as a task of its own, so that a client disconnect does not leave this node's list without the stored entry.
    let listed = tokio::spawn(async move { authority.deps().compromised.add_in_own_commit(key).await });
    Ok(listed.await.map_err(Error::internal)??.warning())
}

/// Returns a warning if the stored revocation does not have the given reason or invalidity date.
fn reason_unchanged_warning(stored: RevocationReason, why: RequestedReason) -> Option<String> {
    let RevocationReason { reason, invalidity_date } = why.revocation_reason();
    let taken = reason.is_none_or(|reason| Some(reason) == stored.reason)
        && invalidity_date.is_none_or(|date| Some(date) == stored.invalidity_date);
    (!taken).then(|| REASON_UNCHANGED_WARNING.to_owned())
}

async fn store_revocation(
    authority: &Authority,
    unit: Vec<PkiWrite>,
    compromised: Option<NewCompromisedKey>,
    issuer: &str,
    why: RequestedReason,
    pending: PendingRevocation,
) -> Result<Option<RevocationOutcome>> {
    // One transaction stores the compromised key and the revocation, so that neither is stored without the other.
    let commit = |mut writes: Vec<PkiWrite>| {
        writes.extend(unit.iter().cloned());
        let committed = authority.deps().store.commit(writes);
        let revoked = |outcomes: Vec<PkiOutcome>| match outcomes.into_iter().next_back() {
            Some(PkiOutcome::Revoked { stored, fresh }) => Some((stored, fresh)),
            _ => None,
        };
        committed.map(move |outcomes| outcomes.map(revoked)).boxed()
    };
    let committed = authority.deps().compromised.add_with(compromised.as_slice(), commit).await;
    // Invalidate cached OCSP responses even after a failure, because the revocation may be stored.
    authority.ocsp_cache().record_revocation();
    let committed = committed?;
    let full = committed.warning();
    let Some((stored, fresh)) = committed.stored else { return Ok(None) };
    if authority.view().are_different_authorities(&stored.row.issuer, issuer) {
        // A CRL imported concurrently revokes the serial number of another issuer's certificate.
        return Err(serial_collision_error());
    }
    if fresh {
        metrics::counter!(telemetry::PKI_REVOCATIONS).increment(1);
    }
    // If a concurrent request stored the revocation, this response also waits for a CRL that lists it.
    let mut warnings = authority.publish_revocation(&stored, pending).await?;
    warnings.extend(reason_unchanged_warning(stored.row.revocation_reason(), why));
    warnings.extend(full);
    Ok(Some(RevocationOutcome::Revoked { at: stored.row.revoked_at, warnings }))
}

async fn find_target(
    authority: &Authority,
    revocation: RevocationRequest,
    requester: &str,
) -> Result<(RevocationTarget, RequestedReason)> {
    let RevocationRequest { certificate, why } = revocation;
    let view = authority.view();
    let target = match certificate {
        CertificateRef::Serial(serial) => find_by_serial(authority, &view, serial).await?,
        CertificateRef::Certificate(certificate) => {
            find_by_certificate(authority, &view, certificate, requester).await?
        }
    };
    if why.reason == Some(ReasonCode::CaCompromise) && !Certificate::parse(&target.der).is_ok_and(|found| found.is_ca())
    {
        return Err(Error::invalid(ReasonCode::RULE));
    }
    Ok((target, why))
}

async fn find_by_serial(authority: &Authority, view: &MountView, serial: Serial) -> Result<RevocationTarget> {
    match authority.deps().store.certificate(authority.mount(), serial).await? {
        Some(found) if view.issuer_with_der(&found.row.der).is_some() => Err(issuer_not_allowed_error("serial_number")),
        Some(found) => Ok(RevocationTarget::from_stored(found)),
        // Imported issuers are not among the stored certificates.
        None if view.signers().any(|s| s.issuer.certificate.serial() == serial) => {
            Err(issuer_not_allowed_error("serial_number"))
        }
        None => find_revoked_only(authority, serial).await?.ok_or_else(|| unknown_serial_error(serial)),
    }
}

/// Returns a revoked certificate that is not stored: it was issued elsewhere, or removed after its expiry.
async fn find_revoked_only(authority: &Authority, serial: Serial) -> Result<Option<RevocationTarget>> {
    let revocation = authority.deps().store.serial_status(authority.mount(), serial).await?.revocation;
    Ok(revocation.map(|stored| RevocationTarget {
        serial,
        issuer: stored.row.issuer.clone(),
        not_after: stored.row.not_after,
        der: Vec::new(),
        submitted: None,
        revocation: Some(stored),
    }))
}

fn unknown_serial_error(serial: Serial) -> Error {
    Error::invalid(format!("serial_number: certificate with serial {serial} not found"))
}

async fn find_by_certificate(
    authority: &Authority,
    view: &Arc<MountView>,
    certificate: Box<Certificate>,
    requester: &str,
) -> Result<RevocationTarget> {
    let serial = certificate.serial();
    if view.issuer_with_der(certificate.der()).is_some() {
        return Err(issuer_not_allowed_error("certificate"));
    }
    let store = &authority.deps().store;
    let mount = authority.mount();
    if let Some(stored) = store.certificate(mount, serial).await? {
        return RevocationTarget::from_equal_stored(stored, certificate.der());
    }
    let submitted = certificate.clone();
    let issuers = Arc::clone(view);
    // A forged certificate costs one signature check per issuer of the claimed name.
    let found = cpu::run(move || {
        let issuer = issuers.find_signing_issuer(&submitted)?;
        Some((issuer.record.id.clone(), issuers.find_issuer_certified_by(issuer, serial).is_some()))
    });
    let not_ours = || Error::invalid("certificate: not signed by an issuer of this mount");
    let (issuer, is_issuers) = found.await?.ok_or_else(not_ours)?;
    // CRLs and OCSP responses identify certificates only by serial number, so a serial number that another issuer has
    // revoked is rejected.
    let revocation = store.serial_status(mount, serial).await?.revocation;
    let is_others = |stored: &StoredRevocation| view.are_different_authorities(&stored.row.issuer, &issuer);
    if is_issuers || revocation.as_ref().is_some_and(is_others) {
        return Err(serial_collision_error());
    }
    let submitted = certificate_row(authority, &certificate, &issuer, requester);
    let issuer = submitted.issuer.clone();
    let not_after = submitted.not_after;
    let der = submitted.der.clone();
    Ok(RevocationTarget { revocation, serial, issuer, not_after, der, submitted: Some(Box::new(submitted)) })
}

/// Builds the row for a submitted certificate that was not stored when it was issued.
fn certificate_row(authority: &Authority, certificate: &Certificate, issuer: &str, requester: &str) -> CertificateRow {
    let common_name = certificate.common_name();
    CertificateRow {
        mount: authority.mount(),
        serial: certificate.serial(),
        issuer: issuer.to_owned(),
        role: None,
        common_name: (!common_name.is_empty()).then_some(common_name),
        not_before: certificate.not_before(),
        not_after: certificate.not_after(),
        issued_at: authority.deps().clock.now().unix_timestamp(),
        requester: requester.to_owned(),
        der: certificate.der().to_vec(),
    }
}

fn serial_collision_error() -> Error {
    Error::invalid("certificate: its serial collides with another certificate of this mount")
}

fn issuer_not_allowed_error(field: &str) -> Error {
    Error::invalid(format!("{field}: issuers cannot be revoked here; use issuer/:ref/revoke"))
}

/// Revokes an issuer: it signs no more certificates but still signs its CRL. Its parents in this mount list it on their
/// CRLs. Returns the issuer's id and warnings. A second revocation may only amend the reason, as for a
/// [certificate](revoke).
///
/// # Errors
/// `NotFound` for an unknown issuer; `Unavailable` from storage.
pub async fn revoke_issuer(
    authority: &Authority,
    reference: &str,
    why: RequestedReason,
    requester: &str,
) -> Result<(String, Warnings)> {
    let view = authority.view();
    let issuer = &view.signer(reference).ok_or_else(Error::not_found)?.issuer;
    let id = issuer.record.id.clone();
    let now = authority.deps().clock.synchronized_now()?;
    why.check_date(now)?;
    let rows = issuer_rows(authority, &view, issuer, now, why, requester).await?;
    let compromised = why.compromised_key(issuer.certificate.serial(), issuer.certificate.der());
    let wanted = id.clone();
    let rows = Arc::new(rows);
    // One commit stores these rows and the issuer's changed record, so that neither is stored without the other.
    let commit = |listing: Vec<PkiWrite>| {
        let wanted = wanted.clone();
        let rows = Arc::clone(&rows);
        let plan = move |view: &MountView| plan_issuer_revocation(view, &wanted, why, now, &listing, &rows);
        authority.change_with_crl_warnings(plan).map(|changed| changed.map(Some)).boxed()
    };
    let committed = authority.deps().compromised.add_with(compromised.as_slice(), commit).await?;
    let full = committed.warning();
    let ((mut warnings, fresh), crls) =
        committed.stored.ok_or_else(|| Error::internal("the store returned no outcome for a revocation"))?;
    metrics::counter!(telemetry::PKI_REVOCATIONS).increment(u64::from(fresh));
    warnings.extend(crls);
    warnings.extend(full);
    Ok((id, warnings))
}

/// Plans the revocation of an issuer. `listing` (the list of compromised keys) and `rows` are written in the same
/// commit. Returns warnings, and `true` if the issuer was not revoked before. A repeated revocation only amends the
/// reason or date.
fn plan_issuer_revocation(
    view: &MountView,
    wanted: &str,
    why: RequestedReason,
    now: Time,
    listing: &[PkiWrite],
    rows: &[PkiWrite],
) -> Result<(PlannedChange, (Warnings, bool))> {
    let issuer = &view.signer(wanted).ok_or_else(Error::not_found)?.issuer;
    let mut next = view.clone();
    let record = &issuer.record;
    let new_reason = why.revocation_reason();
    let earlier = record.revoked_at.map(|_| record.revoked_for);
    let Some(revoked_for) = earlier.map_or(Some(new_reason), |earlier| earlier.amended_by(new_reason)) else {
        let warnings = reason_unchanged_warning(record.revoked_for, why).into_iter().collect();
        return Ok((PlannedChange { view: next, writes: listing.to_vec(), rebuild_crls: false }, (warnings, false)));
    };
    let mut record = record.clone();
    record.usage.issuing = false;
    record.revoked_at = record.revoked_at.or(Some(now.unix_timestamp()));
    record.revoked_for = revoked_for;
    record.modified_at = now.unix_timestamp();
    let mut writes = vec![next.put_issuer(record)?];
    writes.extend(listing.iter().chain(rows).cloned());
    Ok((PlannedChange { view: next, writes, rebuild_crls: true }, (issuer_warnings(view, issuer), earlier.is_none())))
}

/// Returns the rows to store with the issuer's changed record: the revocation of its certificate, and the certificate
/// itself if it is not stored and a parent in this mount signed it. Returns no rows if it is not stored and no parent
/// signed it, or if another certificate is stored under its serial number.
async fn issuer_rows(
    authority: &Authority,
    view: &MountView,
    issuer: &Issuer,
    now: Time,
    why: RequestedReason,
    requester: &str,
) -> Result<Vec<PkiWrite>> {
    let certificate = &issuer.certificate;
    let stored = authority.deps().store.certificate(authority.mount(), certificate.serial()).await?;
    let parent = view.parents(&issuer.record.id).first();
    let (issuer, submitted) = match (stored, parent) {
        (Some(stored), _) if stored.row.der == certificate.der() => (stored.row.issuer, None),
        (None, Some(parent)) => (parent.clone(), Some(certificate_row(authority, certificate, parent, requester))),
        _ => return Ok(Vec::new()),
    };
    let serial = certificate.serial();
    let not_after = certificate.not_after();
    let RevocationReason { reason, invalidity_date } = why.revocation_reason();
    let mount = authority.mount();
    let revocation = RevocationRow { mount, serial, issuer, revoked_at: now, not_after, reason, invalidity_date };
    Ok(submitted.map(PkiWrite::Certificate).into_iter().chain([PkiWrite::Revocation(revocation)]).collect())
}

fn issuer_warnings(view: &MountView, issuer: &Issuer) -> Warnings {
    let id = &issuer.record.id;
    let mut warnings = Warnings::default();
    if issuer.self_signed {
        warnings.add("the issuer is a self-signed root: relying parties do not check its revocation");
    }
    if view.parents(id).is_empty() {
        warnings.add("no other issuer of this mount certifies the issuer: no CRL here lists it");
    }
    if view.is_default_issuer(id) {
        warnings.add("the revoked issuer is the default: requests that name no other issuer are refused");
    }
    warnings
}
