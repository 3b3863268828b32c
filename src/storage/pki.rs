//! The store of the certificate authority engine: seals its rows, and passes its reads and writes to the tables.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::clock::Clock;
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::pki::store::{
    CrlRow, KnownSerial, LeaseRange, LeaseRow, MetadataRow, PkiOutcome, PkiStore, PkiWrite, RecordedResponseRow,
    RemovableRevocations, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use crate::storage::backend::{UnitOutcomes, WriteUnit, round_to_micros};
use crate::storage::documents;
use crate::storage::engine::{ReadConnection as _, TableError, TableReader, WriteResult, WriteTransaction};
use crate::storage::keys::StoreKeys;
use crate::storage::seal::metadata_context;
use crate::storage::statements as sql;
use crate::storage::store::{DomainWrite, SealedRow as _, Store, sealed_row};
use crate::storage::tables::{
    self, certificates, crls, leases, metadata, mounts, recorded_responses, revocations, tidy,
};
use crate::x509::serial::Serial;

impl DomainWrite for PkiWrite {
    type Outcome = PkiOutcome;

    fn prepare(&mut self, keys: &Arc<StoreKeys>) -> Result<()> {
        match self {
            Self::Document(document) => documents::seal(document, keys),
            Self::Metadata(row) => row.seal(keys),
            Self::Revocation(row) => {
                row.revoked_at = round_to_micros(row.revoked_at);
                Ok(())
            }
            // These writes contain no body to seal. Their times are whole seconds, so no time must be rounded.
            Self::Certificate(_)
            | Self::RecordedResponse(_)
            | Self::RecordedResponseSweep { .. }
            | Self::Crl(_)
            | Self::Lease(_)
            | Self::LeasesMark(_)
            | Self::LeasesEnd(_)
            | Self::LeasesMarkEnded { .. }
            | Self::LeasesSweep { .. }
            | Self::RevocationIssuer { .. }
            | Self::TidyBegin { .. }
            | Self::TidyRenew { .. }
            | Self::TidyCancel { .. }
            | Self::Remove { .. } => Ok(()),
        }
    }

    fn unit(writes: Vec<Self>, _: &Clock) -> WriteUnit {
        WriteUnit::Pki(writes)
    }

    fn outcomes(outcomes: UnitOutcomes) -> Option<Vec<PkiOutcome>> {
        if let UnitOutcomes::Pki(outcomes) = outcomes { Some(outcomes) } else { None }
    }
}

sealed_row!(MetadataRow, |row| metadata_context(row.mount, row.serial, row.not_after));

/// Runs one write of a unit, except the inserts that each engine runs itself ([`WriteTransaction`]).
pub(super) async fn write<T: WriteTransaction>(tx: &mut T, write: &PkiWrite) -> WriteResult<T, PkiOutcome> {
    let changed = match write {
        PkiWrite::Certificate(_)
        | PkiWrite::Lease(_)
        | PkiWrite::Metadata(_)
        | PkiWrite::RecordedResponse(_)
        | PkiWrite::Revocation(_) => {
            return Err(TableError::Unreadable("defect: only the database engine may run this write"));
        }
        PkiWrite::Document(write) => {
            tables::documents::write_in(tx, write).await?;
            return Ok(PkiOutcome::Done);
        }
        PkiWrite::Crl(row) => {
            tx.require_mount(row.mount).await?;
            crls::publish(tx.db(), row).await?;
            tx.mark_crls(row.mount);
            return Ok(PkiOutcome::Done);
        }
        PkiWrite::LeasesMark(ids) => leases::mark_for_revocation(tx.db(), ids).await?,
        PkiWrite::LeasesEnd(ids) => leases::delete(tx.db(), ids).await?,
        PkiWrite::LeasesMarkEnded { limit } => leases::mark_ended(tx.db(), *limit).await?,
        PkiWrite::LeasesSweep { now, limit } => leases::sweep(tx.db(), *now, *limit).await?,
        PkiWrite::RecordedResponseSweep { now, limit } => recorded_responses::sweep(tx.db(), *now, *limit).await?,
        PkiWrite::RevocationIssuer { mount, serial, issuer } => {
            tx.require_mount(*mount).await?;
            revocations::set_issuer(tx.db(), *mount, *serial, issuer).await?
        }
        PkiWrite::TidyBegin { row, seen, now } => {
            tx.require_mount(row.mount).await?;
            tidy::begin(tx.db(), row, *seen, *now).await?
        }
        PkiWrite::TidyRenew { mount, run, valid_until, report } => {
            let cancelled = tidy::extend(tx.db(), *mount, *run, *valid_until, report).await?;
            return Ok(PkiOutcome::TidyRenewed { cancelled });
        }
        PkiWrite::TidyCancel { mount, now } => tidy::cancel(tx.db(), *mount, *now).await?,
        PkiWrite::Remove { mount, what, limit } => {
            tx.require_mount(*mount).await?;
            let removed = tidy::remove(tx.db(), *mount, what, *limit).await?;
            let counts = tx.counts(*mount);
            counts.certificates -= i64::from(removed.certificates);
            counts.revocations -= i64::from(removed.revocations);
            return Ok(PkiOutcome::Removed(removed));
        }
    };
    Ok(PkiOutcome::Changed(changed))
}

impl<R: TableReader> PkiStore for Store<R> {
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        self.submit(unit)
    }

    fn require_capacity(&self) -> Result<()> {
        self.commits.require_capacity()
    }

    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>> {
        self.reader.read_tables("has_mount", move |db| mounts::mount_exists(db, mount).boxed())
    }

    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, None)
    }

    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, Some(kind))
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.reader.read_tables("certificate", move |db| db.certificate(mount, serial))
    }

    fn serial_status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.reader.read_tables("status", move |db| db.status(mount, serial))
    }

    fn known_serials(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>> {
        self.reader.read_tables("known", move |db| certificates::known_serials(db, mount, serials.clone()).boxed())
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read_tables("serials", move |db| {
            certificates::serials(db, sql::certificates::SERIALS, mount, after, limit).boxed()
        })
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read_tables("revoked_serials", move |db| {
            certificates::serials(db, sql::revocations::SERIALS, mount, after, limit).boxed()
        })
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.reader.read_tables("revocations", move |db| db.revocations(mount, after, limit))
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.reader.read_tables("crls", move |db| crls::list(db, mount).boxed())
    }

    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        self.restored_crl_floor()
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.reader.read_tables("counts", move |db| mounts::read_counts(db, mount).boxed())
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.reader.read_tables("lease", move |db| leases::get(db, id.clone()).boxed())
    }

    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read_tables("lease_ids", move |db| leases::ids(db, range.clone(), limit).boxed())
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.reader
            .read_tables("ending_leases", move |db| leases::ending(db, after.clone(), below.clone(), limit).boxed())
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read_tables("certificates", move |db| certificates::page_with_der(db, mount, after, limit).boxed())
    }

    fn certificates_by_expiry(
        &self,
        mount: MountId,
        from: i64,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read_tables("ending", move |db| certificates::unexpired(db, mount, from, limit).boxed())
    }

    fn has_unlisted_revocations(
        &self,
        mount: MountId,
        before: i64,
        listed: RemovableRevocations,
    ) -> BoxFuture<'static, Result<bool>> {
        self.reader.read_tables("unlisted", move |db| tidy::has_unlisted_revocation(db, mount, before, listed).boxed())
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.reader.read_tables("tidy", move |db| tidy::get(db, mount).boxed())
    }

    fn recorded_response(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>> {
        self.reader.read_tables("answered", move |db| recorded_responses::get(db, key).boxed())
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.open_row(self.reader.read_tables("metadata", move |db| metadata::get(db, mount, serial).boxed()))
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read_tables("metadata_serials", move |db| {
            certificates::serials(db, sql::metadata::SERIALS, mount, after, limit).boxed()
        })
    }
}
