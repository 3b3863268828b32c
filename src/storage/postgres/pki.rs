//! Reads and writes of the certificate authority engine on PostgreSQL, dispatched by table or collected.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::collected_rows::{OutcomePosition, SendOrder};
use super::query::PostgresError;
use super::reader::PostgresReaderPool;
use super::transaction::Transaction;
use super::{certificates, crls, leases, metadata, mounts, recorded_responses, revocations, tidy};
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::pki::store::{
    CrlRow, KnownSerial, LeaseRange, LeaseRow, MetadataRow, PkiOutcome, PkiStore, PkiWrite, RecordedResponseRow,
    RemovableRevocations, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use crate::storage::store::Store;
use crate::x509::serial::Serial;

/// Returns when a write is sent.
pub(super) fn send_order(write: &PkiWrite) -> SendOrder {
    match write {
        PkiWrite::Certificate(_)
        | PkiWrite::Lease(_)
        | PkiWrite::Metadata(_)
        | PkiWrite::RecordedResponse(_)
        | PkiWrite::Revocation(_) => SendOrder::Collected,
        PkiWrite::LeasesMark(_)
        | PkiWrite::LeasesEnd(_)
        | PkiWrite::LeasesMarkEnded { .. }
        | PkiWrite::LeasesSweep { .. } => SendOrder::AfterLeases,
        // Removals need not see collected rows, which can hardly have expired.
        _ => SendOrder::Immediate,
    }
}

/// Runs one write in the transaction of its batch. The outcome of a revocation is filled in when it is sent.
pub(super) async fn write<'a>(
    tx: &mut Transaction<'a>,
    position: OutcomePosition,
    write: &'a PkiWrite,
) -> Result<PkiOutcome, PostgresError> {
    let db = tx.db;
    Ok(match write {
        PkiWrite::Document(write) => {
            tx.document(write).await?;
            PkiOutcome::Done
        }
        PkiWrite::Certificate(row) => {
            tx.gathered.certificates.push(row);
            PkiOutcome::Done
        }
        PkiWrite::Revocation(row) => {
            tx.gathered.revocations.push((position, row));
            PkiOutcome::Done
        }
        PkiWrite::Crl(row) => {
            tx.hold(row.mount).await?;
            crls::publish(db, row).await?;
            tx.marks(row.mount).crls = true;
            PkiOutcome::Done
        }
        PkiWrite::Lease(row) => {
            tx.lock_token(row.token).await?;
            tx.gathered.leases.push(row);
            PkiOutcome::Done
        }
        PkiWrite::LeasesMark(ids) => PkiOutcome::Changed(leases::mark(db, ids).await?),
        PkiWrite::LeasesEnd(ids) => PkiOutcome::Changed(leases::delete(db, ids).await?),
        PkiWrite::LeasesMarkEnded { limit } => PkiOutcome::Changed(leases::mark_ended(db, *limit).await?),
        PkiWrite::LeasesSweep { now, limit } => PkiOutcome::Changed(leases::sweep(db, *now, *limit).await?),
        PkiWrite::Metadata(row) => {
            tx.gathered.metadata.push(row);
            PkiOutcome::Done
        }
        PkiWrite::RecordedResponse(row) => {
            tx.gathered.answered.push(row);
            PkiOutcome::Done
        }
        PkiWrite::RecordedResponseSweep { now, limit } => {
            PkiOutcome::Changed(recorded_responses::sweep(db, *now, *limit).await?)
        }
        PkiWrite::RevocationIssuer { mount, serial, issuer } => {
            tx.hold(*mount).await?;
            PkiOutcome::Changed(revocations::set_issuer(db, *mount, serial, issuer).await?)
        }
        PkiWrite::TidyBegin { row, seen, now } => {
            tx.hold(row.mount).await?;
            PkiOutcome::Changed(tidy::begin(db, row, *seen, *now).await?)
        }
        PkiWrite::TidyRenew { mount, run, valid_until, report } => {
            PkiOutcome::TidyRenewed { cancelled: tidy::extend(db, *mount, *run, *valid_until, report).await? }
        }
        PkiWrite::TidyCancel { mount, now } => PkiOutcome::Changed(tidy::cancel(db, *mount, *now).await?),
        PkiWrite::Remove { mount, what, limit } => {
            tx.hold(*mount).await?;
            let removed = tidy::remove(db, *mount, what, *limit).await?;
            let counted = tx.inserted(*mount);
            counted.certificates -= i64::from(removed.certificates);
            counted.revocations -= i64::from(removed.revocations);
            PkiOutcome::Removed(removed)
        }
    })
}

impl PkiStore for Store<PostgresReaderPool> {
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        self.submit(unit)
    }

    fn require_capacity(&self) -> Result<()> {
        self.commits.require_capacity()
    }

    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>> {
        self.reader.read("has_mount", move |db| mounts::mount_exists(db, mount).boxed())
    }

    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, None)
    }

    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, Some(kind))
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.reader.read("certificate", move |db| certificates::get(db, mount, serial).boxed())
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.reader.read("status", move |db| certificates::status(db, mount, serial).boxed())
    }

    fn known(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>> {
        self.reader.read("known", move |db| {
            let serials = serials.clone();
            async move { certificates::known_serials(db, mount, &serials).await }.boxed()
        })
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read("serials", move |db| certificates::serials(db, mount, after, limit).boxed())
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read("revoked_serials", move |db| revocations::serials(db, mount, after, limit).boxed())
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.reader.read("revocations", move |db| revocations::by_sequence(db, mount, after, limit).boxed())
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.reader.read("crls", move |db| crls::list(db, mount).boxed())
    }

    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        self.restored_crl_floor()
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.reader.read("counts", move |db| mounts::read_counts(db, mount).boxed())
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.reader.read("lease", move |db| {
            let id = id.clone();
            async move { leases::get(db, &id).await }.boxed()
        })
    }

    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read("lease_ids", move |db| {
            let range = range.clone();
            async move { leases::ids(db, &range, limit).await }.boxed()
        })
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.reader.read("ending_leases", move |db| {
            let after = after.clone();
            let below = below.clone();
            async move { leases::ending(db, &after, &below, limit).await }.boxed()
        })
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read("certificates", move |db| certificates::with_der(db, mount, after, limit).boxed())
    }

    fn ending(&self, mount: MountId, from: i64, limit: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read("ending", move |db| certificates::ending(db, mount, from, limit).boxed())
    }

    fn unlisted(&self, mount: MountId, before: i64, listed: RemovableRevocations) -> BoxFuture<'static, Result<bool>> {
        self.reader.read("unlisted", move |db| tidy::unlisted(db, mount, before, listed).boxed())
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.reader.read("tidy", move |db| tidy::get(db, mount).boxed())
    }

    fn answered(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>> {
        self.reader.read("answered", move |db| recorded_responses::get(db, key).boxed())
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.open_row(self.reader.read("metadata", move |db| metadata::get(db, mount, serial).boxed()))
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read("metadata_serials", move |db| metadata::serials(db, mount, after, limit).boxed())
    }
}
