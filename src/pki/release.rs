//! From a draft that passed its endpoint's rules to a certificate that may leave: serial → structural
//! checks → signature → record → release, in that order. A certificate leaves only after its record is
//! durable.

use std::sync::Arc;
use std::time::Instant;

use super::beside::{Beside, Lease};
use super::issue::{Dates, Tools};
use super::issuer::Key;
use super::metrics::Stages;
use super::prepared::Prepared;
use super::store::{CertificateRow, PkiOutcome, PkiWrite};
use super::structure::{Expected, Shape};
use super::validity::Validity;
use super::view::{Signer, View};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::telemetry;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::extension;
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// Tries before a serial collision is reported: one is already practically impossible.
const SERIAL_TRIES: usize = 3;

/// A certificate that only waits for its key and serial.
pub(super) struct Draft {
    pub(super) signer: Arc<Signer>,
    pub(super) key: Arc<Key>,
    pub(super) algorithm: SignatureAlgorithm,
    pub(super) shape: Shape,
    /// The whole Name.
    pub(super) subject: Vec<u8>,
    pub(super) common_name: String,
    pub(super) validity: Validity,
    /// Extensions before subjectKeyIdentifier.
    pub(super) head: Vec<u8>,
    pub(super) key_id: SubjectKeyId,
    /// Extensions after it.
    pub(super) tail: Vec<u8>,
}

/// Where subjectKeyIdentifier comes from.
pub(super) enum SubjectKeyId {
    /// Worked out from the subject's key (RFC 5280 4.2.1.2, method 1).
    OfKey,
    /// These octets.
    Given(Vec<u8>),
    /// It is among the other extensions.
    Copied,
}

/// How a certificate is recorded.
pub(super) struct Record<'a> {
    /// The role, when one was used.
    pub(super) role: Option<&'a str>,
    /// Who asked, as records name it.
    pub(super) requester: &'a str,
    /// Whether the certificate itself is stored.
    pub(super) store: bool,
    /// What is recorded beside it, in the same commit.
    pub(super) beside: Beside,
}

/// A signed certificate whose record is durable.
pub(super) struct Released {
    pub(super) der: Vec<u8>,
    pub(super) serial: Serial,
    pub(super) dates: Dates,
    /// The lease that comes with it.
    pub(super) lease: Option<Lease>,
}

impl Draft {
    /// Signs, stores and only then releases the certificate.
    ///
    /// # Errors
    /// `Invalid` from the structural checks; `Unavailable` when the record cannot be stored.
    pub(super) async fn release(
        self,
        view: &View,
        tools: &Tools,
        subject_key: &PublicKey,
        record: &Record<'_>,
        stages: &Stages,
    ) -> Result<Released> {
        for _ in 0..SERIAL_TRIES {
            let started = Instant::now();
            let serial = view.new_serial(&*tools.serials)?;
            let der = self.sign(&serial, subject_key).await?;
            let started = stages.sign(started);
            if !record.store && record.beside.is_empty() {
                return Ok(self.released(der, serial, None));
            }
            let row = self.row(view.mount, serial, &der, record, tools.clock.now());
            let (mut unit, lease) = record.beside.writes(&row)?;
            unit.extend(record.store.then_some(PkiWrite::Certificate(row)));
            let outcome = tools.store.commit(unit).await?;
            stages.store(started);
            if !outcome.contains(&PkiOutcome::SerialTaken) {
                metrics::counter!(telemetry::PKI_LEASES).increment(u64::from(lease.is_some()));
                return Ok(self.released(der, serial, lease));
            }
        }
        Err(Error::internal("no free serial number found"))
    }

    async fn sign(&self, serial: &Serial, subject_key: &PublicKey) -> Result<Vec<u8>> {
        let pieces = self.signer.pieces()?;
        let key_id = match &self.key_id {
            SubjectKeyId::OfKey => extension::subject_key_id(&subject_key.key_id()),
            SubjectKeyId::Given(octets) => extension::subject_key_id(octets),
            SubjectKeyId::Copied => Vec::new(),
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
        let expected = Expected { algorithm: self.algorithm, issuer, key_id: &pieces.key_id };
        let prepared = Prepared::certificate(tbs, self.shape, &expected, &pieces.constraints, &self.key.private)?;
        Ok(prepared.sign().await?.der())
    }

    fn released(self, der: Vec<u8>, serial: Serial, lease: Option<Lease>) -> Released {
        let Validity { not_before, not_after, .. } = self.validity;
        let dates = Dates { not_before: Some(not_before.unix_timestamp()), expiration: not_after.unix_timestamp() };
        Released { der, serial, dates, lease }
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
