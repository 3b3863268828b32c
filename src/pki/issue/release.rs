//! From a draft that passed its endpoint's checks to a released certificate: serial number → structural checks →
//! signature → record → release. A certificate is released only after its record is durable.

use std::sync::Arc;
use std::time::Instant;

use super::beside::Beside;
use super::issued::{Issued, Lease};
use super::repeats::{self, Repeatable};
use super::request::Origin;
use super::stages::Stages;
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::keys::pool::Watch;
use crate::pki::check::prepared::Prepared;
use crate::pki::check::structure::{Expected, Shape, Sources};
use crate::pki::check::validity::Validity;
use crate::pki::mount::issuer::Key;
use crate::pki::mount::paths::policies_of;
use crate::pki::mount::role::Role;
use crate::pki::mount::signer::Signer;
use crate::pki::mount::view::View;
use crate::pki::store::{CertificateRow, PkiOutcome, PkiWrite};
use crate::pki::tools::Tools;
use crate::pki::values::renewal;
use crate::telemetry;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::certificate::Certificate;
use crate::x509::extension;
use crate::x509::pieces::{Extensions, Name};
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// Maximum attempts on serial collisions; a single one is practically impossible.
const SERIAL_TRIES: usize = 3;

/// A certificate that lacks only its key and serial number.
pub(crate) struct Draft {
    pub(crate) signer: Arc<Signer>,
    pub(crate) key: Arc<Key>,
    pub(crate) algorithm: SignatureAlgorithm,
    pub(crate) shape: Shape,
    pub(crate) subject: Name,
    pub(crate) common_name: String,
    pub(crate) validity: Validity,
    /// Extensions before subjectKeyIdentifier.
    pub(crate) head: Extensions,
    pub(crate) key_id: SubjectKeyId,
    /// Extensions after subjectKeyIdentifier.
    pub(crate) tail: Extensions,
    /// Fields that the parts come from.
    pub(crate) sources: Sources,
}

/// Source of subjectKeyIdentifier.
pub(crate) enum SubjectKeyId {
    /// Computed from the subject's key (RFC 5280 4.2.1.2, method 1).
    OfKey,
    /// This value.
    Given(Vec<u8>),
    /// Already among the other extensions.
    Copied,
}

/// Storage of a certificate and its related rows.
pub(crate) struct Record<'a> {
    /// Name of the role, if any.
    pub(crate) role: Option<&'a str>,
    /// The caller, as named in records.
    pub(crate) requester: &'a str,
    /// Reports when the caller disconnects.
    pub(crate) watch: &'a Watch,
    /// `true` if the certificate itself is stored.
    pub(crate) store: bool,
    /// Lease and metadata to store in the same commit.
    pub(crate) beside: Beside,
    /// The idempotent request; requires `store`.
    pub(crate) repeatable: Option<&'a Repeatable>,
}

impl<'a> Record<'a> {
    /// Determines the storage of a certificate under a role, given with its name, or without a role.
    ///
    /// # Errors
    /// Those of [`Beside::of`]; `Invalid` for an idempotent request under a role with `no_store`.
    pub(crate) fn of(origin: &'a Origin, role: Option<(&'a str, &Role)>, metadata: Option<&str>) -> Result<Self> {
        let (name, role) = role.unzip();
        let store = role.is_none_or(|role| !role.no_store);
        let repeatable = origin.repeatable.as_deref();
        repeats::unless_stored(store, repeatable, "the role's no_store keeps no certificate")?;
        Ok(Self {
            role: name,
            requester: &origin.requester.recorded_as,
            watch: &origin.requester.watch,
            store,
            beside: Beside::of(origin, metadata, role)?,
            repeatable,
        })
    }
}

impl Record<'_> {
    /// Checks that the store accepts another record, before keys and signatures are computed.
    ///
    /// # Errors
    /// `Busy` when it does not.
    pub(crate) fn require_room(&self, tools: &Tools) -> Result<()> {
        if self.store { tools.store.require_room() } else { Ok(()) }
    }
}

impl Draft {
    /// Runs the checks before the signature with a placeholder key, before the real key is generated.
    ///
    /// # Errors
    /// `Invalid` from the checks.
    pub(crate) fn rehearse(&self, stand_in: &PublicKey) -> Result<()> {
        self.prepare(&Serial::STAND_IN, stand_in).map(drop)
    }

    /// Signs, stores and then releases the certificate. If a concurrent request with the same idempotency key was
    /// faster, returns its certificate.
    ///
    /// # Errors
    /// `Invalid` from the structural checks; `Unavailable` when the record cannot be stored.
    pub(crate) async fn release(
        self,
        view: &View,
        tools: &Tools,
        subject_key: &PublicKey,
        record: &Record<'_>,
        stages: &Stages,
    ) -> Result<Issued> {
        tools.compromised.refuse("public key", subject_key)?;
        for _ in 0..SERIAL_TRIES {
            let started = Instant::now();
            let serial = view.new_serial(&*tools.serials)?;
            let prepared = self.prepare(&serial, subject_key)?;
            let der = prepared.sign(&*tools.signers, record.watch).await?.der();
            let (started, now) = (stages.sign(started), tools.clock.now());
            if !record.store && record.beside.is_empty() {
                return Ok(self.released(der, serial, None, now));
            }
            let row = self.row(view.mount, serial, &der, record, now);
            let (mut unit, lease) = record.beside.writes(&row)?;
            unit.extend(record.store.then_some(PkiWrite::Certificate(row)));
            let repeatable = record.repeatable.map(|repeatable| repeatable.row(serial, lease.as_ref(), now));
            unit.extend(repeatable.map(PkiWrite::Answered));
            let outcome = tools.store.commit(unit).await?;
            stages.store(started);
            if !outcome.contains(&PkiOutcome::SerialTaken) {
                metrics::counter!(telemetry::PKI_LEASES).increment(u64::from(lease.is_some()));
                return Ok(self.released(der, serial, lease, now));
            }
            if let Some(repeatable) = record.repeatable
                && let Some(earlier) = Box::pin(repeats::earlier(repeatable, view, tools)).await?
            {
                return Ok(earlier);
            }
        }
        Err(Error::internal("no free serial number found"))
    }

    fn prepare(&self, serial: &Serial, subject_key: &PublicKey) -> Result<Prepared> {
        let pieces = self.signer.pieces()?;
        let key_id = match &self.key_id {
            SubjectKeyId::OfKey => extension::subject_key_id(&subject_key.key_id()),
            SubjectKeyId::Given(octets) => extension::subject_key_id(octets),
            SubjectKeyId::Copied => Extensions::default(),
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
            extensions: &[&self.head, &key_id, &self.tail],
        }
        .encode();
        let Self { algorithm, ref sources, .. } = *self;
        let expected = Expected { algorithm, issuer, key_id: &pieces.key_id, sources };
        Prepared::certificate(tbs, self.shape, &expected, &pieces.constraints, &self.key.signing)
    }

    fn released(self, der: Vec<u8>, serial: Serial, lease: Option<Lease>, now: Time) -> Issued {
        let Validity { not_before, not_after, .. } = self.validity;
        let (not_before, not_after) = (not_before.unix_timestamp(), not_after.unix_timestamp());
        let policies = || Certificate::parse(&der).map(|certificate| policies_of(&certificate)).unwrap_or_default();
        let warnings = self.signer.policy_advice(policies).into_iter().collect();
        Issued {
            der,
            serial,
            not_before,
            not_after,
            renew_after: renewal::time(&serial, now.unix_timestamp(), not_before, not_after),
            signer: self.signer,
            key: None,
            warnings,
            issued_at: now.unix_timestamp(),
            lease,
            repeated: false,
        }
    }

    fn row(&self, mount: MountId, serial: Serial, der: &[u8], record: &Record<'_>, now: Time) -> CertificateRow {
        CertificateRow {
            mount,
            serial,
            issuer: self.signer.issuer.record.id.clone(),
            role: record.role.map(str::to_owned),
            common_name: (!self.common_name.is_empty()).then(|| self.common_name.clone()),
            not_before: self.validity.not_before.unix_timestamp(),
            not_after: self.validity.not_after.unix_timestamp(),
            issued_at: now.unix_timestamp(),
            requester: record.requester.to_owned(),
            der: der.to_vec(),
        }
    }
}
