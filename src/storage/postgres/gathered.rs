//! Rows that are collected and sent in one statement per kind: certificates with their records, and revocations.

use std::collections::BTreeSet;

use super::query::{Failure, Session};
use super::{answered, certificates, leases, metadata};
use crate::documents::MountId;
use crate::pki::store::{AnsweredRow, CertificateRow, LeaseRow, MetadataRow, RevocationRow};

/// When a write is sent, relative to the collected rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Collected itself, and sent with the others.
    Gathered,
    /// Immediately: independent of collected rows.
    AtOnce,
    /// After the collected leases, on which it depends.
    AfterLeases,
    /// After all collected rows.
    AfterAll,
}

/// The position of an outcome: unit and write.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) usize, pub(super) usize);

#[derive(Default)]
pub(super) struct Gathered<'a> {
    pub(super) certificates: Vec<&'a CertificateRow>,
    pub(super) leases: Vec<&'a LeaseRow>,
    pub(super) metadata: Vec<&'a MetadataRow>,
    pub(super) answered: Vec<&'a AnsweredRow>,
    pub(super) revocations: Vec<(Place, &'a RevocationRow)>,
}

#[derive(Clone, Copy)]
pub(super) struct Mark([usize; 5]);

impl Gathered<'_> {
    pub(super) fn mark(&self) -> Mark {
        let Self { certificates, leases, metadata, answered, revocations } = self;
        Mark([certificates.len(), leases.len(), metadata.len(), answered.len(), revocations.len()])
    }

    /// Drops all rows collected since [`Gathered::mark`].
    pub(super) fn back_to(&mut self, Mark([certificates, leases, metadata, answered, revocations]): Mark) {
        self.certificates.truncate(certificates);
        self.leases.truncate(leases);
        self.metadata.truncate(metadata);
        self.answered.truncate(answered);
        self.revocations.truncate(revocations);
    }

    /// Returns `true` if a write must wait until the collected rows are sent.
    pub(super) fn holds_up(&self, turn: Turn) -> bool {
        match turn {
            Turn::AfterAll => true,
            Turn::AfterLeases => !self.leases.is_empty(),
            Turn::AtOnce | Turn::Gathered => false,
        }
    }

    /// The mounts of the rows. A completed request has the mount of its certificate.
    pub(super) fn mounts(&self) -> BTreeSet<MountId> {
        let certificates = self.certificates.iter().map(|row| row.mount);
        let attached = self.leases.iter().map(|row| row.mount).chain(self.metadata.iter().map(|row| row.mount));
        certificates.chain(attached).chain(self.revocations.iter().map(|(_, row)| row.mount)).collect()
    }

    /// Inserts all rows except revocations. `SerialTaken` if a serial or key is taken; the caller must then roll back.
    pub(super) async fn send(&self, db: &Session) -> Result<(), Failure> {
        if !self.answered.is_empty() {
            answered::insert_all(db, &self.answered).await?;
        }
        if !self.leases.is_empty() {
            leases::insert_all(db, &self.leases).await?;
        }
        if !self.metadata.is_empty() {
            metadata::insert_all(db, &self.metadata).await?;
        }
        if !self.certificates.is_empty() {
            certificates::insert_all(db, &self.certificates).await?;
        }
        Ok(())
    }
}
