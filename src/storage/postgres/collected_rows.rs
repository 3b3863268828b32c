//! Rows that are collected and sent in one statement per table: certificates, the records that belong to them, and
//! revocations.

use std::collections::BTreeSet;

use super::query::{PostgresClient, PostgresError};
use super::{certificates, leases, recorded_responses};
use crate::auth::store::AuthWrite;
use crate::documents::MountId;
use crate::pki::store::{CertificateRow, LeaseRow, MetadataRow, PkiWrite, RecordedResponseRow, RevocationRow};

/// Order in which a write is sent, relative to the collected rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOrder {
    /// The write is collected itself, and sent with the other collected rows.
    Collected,
    /// Immediately, because the write does not depend on collected rows.
    Immediate,
    /// After the collected leases, on which it depends.
    AfterLeases,
    /// After all collected rows.
    AfterAll,
}

impl SendOrder {
    pub(super) fn of_auth_write(write: &AuthWrite) -> Self {
        match write {
            AuthWrite::MountDelete(_) => Self::AfterAll,
            AuthWrite::TokenSpend(_)
            | AuthWrite::TokenTake(_)
            | AuthWrite::TokenRevoke(_)
            | AuthWrite::TokenRevokeAlone(_)
            | AuthWrite::TokenSweep { .. } => Self::AfterLeases,
            _ => Self::Immediate,
        }
    }

    pub(super) fn of_pki_write(write: &PkiWrite) -> Self {
        match write {
            PkiWrite::Certificate(_)
            | PkiWrite::Lease(_)
            | PkiWrite::Metadata(_)
            | PkiWrite::RecordedResponse(_)
            | PkiWrite::Revocation(_) => Self::Collected,
            PkiWrite::LeasesMark(_)
            | PkiWrite::LeasesEnd(_)
            | PkiWrite::LeasesMarkEnded { .. }
            | PkiWrite::LeasesSweep { .. } => Self::AfterLeases,
            // Removals of expired rows need not see collected rows, which are too new to have expired.
            _ => Self::Immediate,
        }
    }
}

/// The position of an outcome: the index of the unit, and of the write in it.
#[derive(Clone, Copy)]
pub(super) struct OutcomePosition(pub(super) usize, pub(super) usize);

#[derive(Default)]
pub(super) struct CollectedRows<'a> {
    pub(super) certificates: Vec<&'a CertificateRow>,
    pub(super) leases: Vec<&'a LeaseRow>,
    pub(super) metadata: Vec<&'a MetadataRow>,
    pub(super) answered: Vec<&'a RecordedResponseRow>,
    pub(super) revocations: Vec<(OutcomePosition, &'a RevocationRow)>,
}

#[derive(Clone, Copy)]
pub(super) struct CollectedMark([usize; 5]);

impl CollectedRows<'_> {
    pub(super) fn mark(&self) -> CollectedMark {
        let Self { certificates, leases, metadata, answered, revocations } = self;
        CollectedMark([certificates.len(), leases.len(), metadata.len(), answered.len(), revocations.len()])
    }

    /// Drops all rows collected since [`CollectedRows::mark`].
    pub(super) fn truncate_to(
        &mut self,
        CollectedMark([certificates, leases, metadata, answered, revocations]): CollectedMark,
    ) {
        self.certificates.truncate(certificates);
        self.leases.truncate(leases);
        self.metadata.truncate(metadata);
        self.answered.truncate(answered);
        self.revocations.truncate(revocations);
    }

    /// Returns `true` if a write must wait until the collected rows are sent.
    pub(super) fn must_flush_before(&self, order: SendOrder) -> bool {
        match order {
            SendOrder::AfterAll => true,
            SendOrder::AfterLeases => !self.leases.is_empty(),
            SendOrder::Immediate | SendOrder::Collected => false,
        }
    }

    /// The mounts of the collected rows. A recorded response has no mount of its own, as it belongs to a certificate.
    pub(super) fn mounts(&self) -> BTreeSet<MountId> {
        let certificates = self.certificates.iter().map(|row| row.mount);
        let attached = self.leases.iter().map(|row| row.mount).chain(self.metadata.iter().map(|row| row.mount));
        certificates.chain(attached).chain(self.revocations.iter().map(|(_, row)| row.mount)).collect()
    }

    /// Inserts all rows except revocations. `SerialTaken` if a serial or key is taken; the caller must then roll back.
    pub(super) async fn send(&self, db: &PostgresClient) -> Result<(), PostgresError> {
        if !self.answered.is_empty() {
            recorded_responses::insert_all(db, &self.answered).await?;
        }
        if !self.leases.is_empty() {
            leases::insert_all(db, &self.leases).await?;
        }
        if !self.metadata.is_empty() {
            certificates::insert_metadata(db, &self.metadata).await?;
        }
        if !self.certificates.is_empty() {
            certificates::insert_all(db, &self.certificates).await?;
        }
        Ok(())
    }
}
