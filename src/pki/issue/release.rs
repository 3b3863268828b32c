//! Turns a draft that passed its endpoint's checks into a released certificate: serial number → structural checks →
//! signature → record → release. A certificate is released only after its record is durable.

use std::sync::Arc;
use std::time::Instant;

use super::idempotency;
use super::issuance::Issuance;
use super::issued::{CertificateLease, IssuedCertificate};
use super::request::IssueContext;
use super::side_effects::IssueSideEffects;
use super::signer::require_signer_capacity;
use crate::clock::Time;
use crate::error::{Error, Result, Warnings};
use crate::keys::local::KeySpec;
use crate::pki::check::linted_tbs::LintedTbs;
use crate::pki::check::structure::{CertificateKind, ExpectedIssuer, FieldSources};
use crate::pki::check::validity::Validity;
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::issuer::MountKey;
use crate::pki::mount::paths::policies_of;
use crate::pki::mount::role::Role;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::store::{CertificateRow, PkiOutcome, PkiWrite};
use crate::telemetry;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::certificate::Certificate;
use crate::x509::csr::Csr;
use crate::x509::extension;
use crate::x509::pieces::{Extensions, Name};
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// Maximum number of serial numbers tried for a certificate; even one collision is practically impossible.
const MAX_SERIAL_ATTEMPTS: usize = 3;

/// A certificate that lacks only its key, serial number and signature.
pub(crate) struct CertificateDraft {
    pub(crate) signer: Arc<IssuerSigner>,
    pub(crate) key: Arc<MountKey>,
    pub(crate) algorithm: SignatureAlgorithm,
    pub(crate) certificate_kind: CertificateKind,
    pub(crate) subject: Name,
    pub(crate) common_name: String,
    pub(crate) validity: Validity,
    /// Extensions that precede subjectKeyIdentifier.
    pub(crate) leading_extensions: Extensions,
    pub(crate) key_id: SubjectKeyIdSource,
    /// Extensions that follow subjectKeyIdentifier.
    pub(crate) trailing_extensions: Extensions,
    /// For each part of the certificate, the request field that error messages name.
    pub(crate) sources: FieldSources,
}

/// Source of the subjectKeyIdentifier extension.
pub(crate) enum SubjectKeyIdSource {
    /// The identifier is computed from the subject's key (RFC 5280 4.2.1.2, method 1).
    Derived,
    /// The identifier has this value.
    Given(Vec<u8>),
    /// The extension is already in `leading_extensions` or `trailing_extensions`, so none is added.
    Copied,
}

/// A certificate request that passed its checks: the draft, its record and the key to certify.
pub(super) struct PreparedCertificate<'r> {
    pub(super) draft: CertificateDraft,
    pub(super) record: IssuanceRecord<'r>,
    pub(super) subject_key: SubjectKey<'r>,
    /// Warnings for the caller.
    pub(super) warnings: Warnings,
}

/// The key that the certificate certifies.
#[derive(Clone, Copy)]
pub(super) enum SubjectKey<'r> {
    /// A key that the server generates.
    Generated(KeySpec),
    /// The key of a CSR.
    OfCsr(&'r Csr),
}

impl<'r> SubjectKey<'r> {
    pub(super) fn kind(self) -> KeyKind {
        match self {
            Self::Generated(spec) => spec.kind(),
            Self::OfCsr(csr) => csr.key.kind(),
        }
    }

    pub(super) fn csr(self) -> Option<&'r Csr> {
        if let Self::OfCsr(csr) = self { Some(csr) } else { None }
    }
}

/// The record of a certificate: its role, the rows stored with it, and the choice to store the certificate itself.
pub(crate) struct IssuanceRecord<'a> {
    /// Name of the role that the request uses, if any.
    pub(crate) role: Option<&'a str>,
    /// `true` if the certificate itself is stored.
    pub(crate) store: bool,
    /// Lease and metadata to store in the same commit.
    pub(crate) side_effects: IssueSideEffects,
}

impl<'a> IssuanceRecord<'a> {
    /// Creates the record of a certificate. `role` has the name and the rules of the request's role, if any. Also
    /// checks that store and signer have capacity, before keys and signatures are computed.
    ///
    /// # Errors
    /// Those of [`IssueSideEffects::of`]; `Invalid` for an idempotent request under a role with `no_store`; `Busy` when
    /// store or signer have no capacity.
    pub(super) fn for_request(
        issuance: Issuance<'_>,
        role: Option<(&'a str, &Role)>,
        metadata: Option<&str>,
    ) -> Result<Self> {
        let Issuance { view, deps, origin, .. } = issuance;
        let (name, role) = role.unzip();
        let store = role.is_none_or(|role| !role.no_store);
        idempotency::require_stored(store, origin.idempotent_request.as_deref(), "the role sets no_store")?;
        let record = Self { role: name, store, side_effects: IssueSideEffects::of(origin, metadata, role)? };
        record.require_capacity(deps)?;
        require_signer_capacity(view, issuance.issuer_ref(role), &*deps.signers)?;
        Ok(record)
    }

    /// Checks that the store has capacity for another record.
    ///
    /// # Errors
    /// `Busy` when the store has no capacity.
    pub(super) fn require_capacity(&self, deps: &EngineDeps) -> Result<()> {
        if self.store { deps.store.require_capacity() } else { Ok(()) }
    }
}

impl CertificateDraft {
    /// Runs all checks that precede the signature, with a placeholder key, so that an invalid request fails before a key
    /// is generated.
    ///
    /// # Errors
    /// `Invalid` from the checks.
    pub(crate) fn check_with_placeholder(&self, placeholder: &PublicKey) -> Result<()> {
        self.linted_tbs(&Serial::PLACEHOLDER, placeholder).map(drop)
    }

    /// Signs, stores and then releases the certificate. If a concurrent request with the same idempotency key was
    /// faster, returns the certificate of that request.
    ///
    /// # Errors
    /// `Invalid` from the structural checks; `Unavailable` when the record cannot be stored.
    pub(crate) async fn release(
        self,
        Issuance { view, deps, origin, stages }: Issuance<'_>,
        subject_key: &PublicKey,
        record: &IssuanceRecord<'_>,
    ) -> Result<IssuedCertificate> {
        let IssueContext { requester, idempotent_request, .. } = origin;
        let idempotent_request = idempotent_request.as_deref();
        deps.compromised.refuse("public key", subject_key)?;
        for _ in 0..MAX_SERIAL_ATTEMPTS {
            let started = Instant::now();
            let serial = view.new_serial(&*deps.serials)?;
            let prepared = self.linted_tbs(&serial, subject_key)?;
            let der = prepared.sign(&*deps.signers, &requester.watch).await?.der();
            let started = stages.record_sign_stage(started);
            let now = deps.clock.now();
            if !record.store && record.side_effects.is_empty() {
                return Ok(self.into_issued(der, serial, None, now));
            }
            let row = CertificateRow {
                mount: view.mount,
                serial,
                issuer: self.signer.issuer.record.id.clone(),
                role: record.role.map(str::to_owned),
                common_name: (!self.common_name.is_empty()).then(|| self.common_name.clone()),
                not_before: self.validity.not_before.unix_timestamp(),
                not_after: self.validity.not_after.unix_timestamp(),
                issued_at: now.unix_timestamp(),
                requester: requester.requester_record.clone(),
                der: der.clone(),
            };
            let (mut unit, lease) = record.side_effects.writes(&row)?;
            unit.extend(record.store.then_some(PkiWrite::Certificate(row)));
            let response =
                idempotent_request.map(|idempotent_request| idempotent_request.row(serial, lease.as_ref(), now));
            unit.extend(response.map(PkiWrite::RecordedResponse));
            let outcome = deps.store.commit(unit).await?;
            stages.record_store_stage(started);
            if !outcome.contains(&PkiOutcome::SerialTaken) {
                metrics::counter!(telemetry::PKI_LEASES).increment(u64::from(lease.is_some()));
                return Ok(self.into_issued(der, serial, lease, now));
            }
            if let Some(idempotent_request) = idempotent_request
                && let Some(earlier) =
                    Box::pin(idempotency::find_recorded_response(idempotent_request, view, deps)).await?
            {
                return Ok(earlier);
            }
        }
        Err(Error::internal(format!("all {MAX_SERIAL_ATTEMPTS} serial numbers drawn for a certificate were taken")))
    }

    fn linted_tbs(&self, serial: &Serial, subject_key: &PublicKey) -> Result<LintedTbs> {
        let issuer_parts = self.signer.encoded_parts()?;
        let key_id = match &self.key_id {
            SubjectKeyIdSource::Derived => extension::subject_key_id(&subject_key.key_id()),
            SubjectKeyIdSource::Given(octets) => extension::subject_key_id(octets),
            SubjectKeyIdSource::Copied => Extensions::default(),
        };
        let issuer = self.signer.issuer.certificate.subject();
        let tbs = CertificateTbs {
            serial,
            algorithm: self.algorithm,
            issuer,
            not_before: self.validity.not_before,
            not_after: self.validity.not_after,
            subject: &self.subject,
            spki: subject_key.spki(),
            extensions: &[&self.leading_extensions, &key_id, &self.trailing_extensions],
        }
        .encode();
        let Self { algorithm, ref sources, .. } = *self;
        let expected = ExpectedIssuer { algorithm, issuer, key_id: &issuer_parts.key_id, sources };
        LintedTbs::for_certificate(tbs, self.certificate_kind, &expected, &issuer_parts.constraints, &self.key.signing)
    }

    fn into_issued(
        self,
        der: Vec<u8>,
        serial: Serial,
        lease: Option<CertificateLease>,
        now: Time,
    ) -> IssuedCertificate {
        let Validity { not_before, not_after } = self.validity;
        let policies = || Certificate::parse(&der).map(|certificate| policies_of(&certificate)).unwrap_or_default();
        let warnings = self.signer.policy_warning(policies).into_iter().collect();
        let span = not_before.unix_timestamp()..=not_after.unix_timestamp();
        let issued = IssuedCertificate::new(der, serial, span, self.signer, now.unix_timestamp());
        IssuedCertificate { warnings, lease, ..issued }
    }
}
