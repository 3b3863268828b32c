//! New rows that a transaction collects and inserts with one statement per table: certificates, the records that belong
//! to them, and revocations.

use std::collections::BTreeSet;

use super::query::{PostgresClient, PostgresError};
use super::{certificates, leases, recorded_responses};
use crate::auth::store::AuthWrite;
use crate::documents::MountId;
use crate::pki::store::{CertificateRow, LeaseRow, MetadataRow, PkiWrite, RecordedResponseRow, RevocationRow};

/// Time at which a write is sent, relative to the collected rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOrder {
    /// The write is a new row, which is collected and sent with the other collected rows.
    Collected,
    /// The write is sent immediately, because it does not depend on collected rows.
    Immediate,
    /// The write is sent after the collected leases, on which it depends.
    AfterLeases,
    /// The write is sent after all collected rows.
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
            // These writes include removals of expired rows. They need not see the collected rows, which are too new to
            // have expired.
            _ => Self::Immediate,
        }
    }
}

/// The position of an outcome: the index of the unit in the batch, and the index of the write in the unit.
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

    /// Drops the rows that were collected after the call of [`CollectedRows::mark`] that returned this mark.
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

    /// Returns `true` if the collected rows must be sent before a write with this order.
    pub(super) fn must_flush_before(&self, order: SendOrder) -> bool {
        match order {
            SendOrder::AfterAll => true,
            SendOrder::AfterLeases => !self.leases.is_empty(),
            SendOrder::Immediate | SendOrder::Collected => false,
        }
    }

    /// Returns the mounts of the collected rows. A recorded response belongs to a certificate and has no mount of its
    /// own.
    pub(super) fn mounts(&self) -> BTreeSet<MountId> {
        let certificates = self.certificates.iter().map(|row| row.mount);
        let attached = self.leases.iter().map(|row| row.mount).chain(self.metadata.iter().map(|row| row.mount));
        certificates.chain(attached).chain(self.revocations.iter().map(|(_, row)| row.mount)).collect()
    }

    /// Inserts all collected rows except revocations. Fails with `SerialTaken` if a serial number or key is taken, and
    /// then the caller must roll back.
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
