//! Rows that wait to be sent together: certificates, what belongs to them, and revocations, each kind in one
//! statement.

use std::collections::BTreeSet;

use super::query::{Failure, Session};
use super::{answered, certificates, leases, metadata};
use crate::documents::MountId;
use crate::pki::store::{AnsweredRow, CertificateRow, LeaseRow, MetadataRow, RevocationRow};

/// When a write is sent, as against the rows that are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is gathered itself, and sent with the others.
    Gathered,
    /// At once: it looks at nothing that is gathered.
    AtOnce,
    /// After the gathered leases, which it looks at.
    AfterLeases,
    /// After everything that is gathered.
    AfterAll,
}

/// Where an outcome belongs: unit and write.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) usize, pub(super) usize);

/// What waits to be sent together.
#[derive(Default)]
pub(super) struct Gathered<'a> {
    pub(super) certificates: Vec<&'a CertificateRow>,
    pub(super) leases: Vec<&'a LeaseRow>,
    pub(super) metadata: Vec<&'a MetadataRow>,
    pub(super) answered: Vec<&'a AnsweredRow>,
    pub(super) revocations: Vec<(Place, &'a RevocationRow)>,
}

/// How much is gathered of each kind.
#[derive(Clone, Copy)]
pub(super) struct Mark([usize; 5]);

impl Gathered<'_> {
    /// How much is gathered by now.
    pub(super) fn mark(&self) -> Mark {
        let Self { certificates, leases, metadata, answered, revocations } = self;
        Mark([certificates.len(), leases.len(), metadata.len(), answered.len(), revocations.len()])
    }

    /// Takes back everything since [`Gathered::mark`].
    pub(super) fn back_to(&mut self, Mark([certificates, leases, metadata, answered, revocations]): Mark) {
        self.certificates.truncate(certificates);
        self.leases.truncate(leases);
        self.metadata.truncate(metadata);
        self.answered.truncate(answered);
        self.revocations.truncate(revocations);
    }

    /// Whether a write has to wait until what is gathered is sent.
    pub(super) fn holds_up(&self, turn: Turn) -> bool {
        match turn {
            Turn::AfterAll => true,
            Turn::AfterLeases => !self.leases.is_empty(),
            Turn::AtOnce | Turn::Gathered => false,
        }
    }

    /// The mounts of its rows; that of an answered request is its certificate's.
    pub(super) fn mounts(&self) -> BTreeSet<MountId> {
        let certificates = self.certificates.iter().map(|row| row.mount);
        let attached = self.leases.iter().map(|row| row.mount).chain(self.metadata.iter().map(|row| row.mount));
        certificates.chain(attached).chain(self.revocations.iter().map(|(_, row)| row.mount)).collect()
    }

    /// Inserts everything but revocations, or says that a serial or a key is taken: then the caller undoes it.
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
