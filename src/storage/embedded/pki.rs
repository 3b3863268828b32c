//! Reads and writes of the certificate authority engine on SQLite, dispatched to the file of each table.

use futures_util::future::BoxFuture;
use rusqlite::Connection;

use super::mounts::{self, MountCache};
use super::query::{SqliteError, resolve};
use super::reader::SqliteReaderPool;
use super::{certificates, crls, leases, metadata, recorded_responses, revocations, tidy};
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::pki::store::{
    CrlRow, KnownSerial, LeaseRange, LeaseRow, MetadataRow, PkiOutcome, PkiStore, PkiWrite, RecordedResponseRow,
    RemovableRevocations, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use crate::storage::store::Store;
use crate::storage::tables::documents;
use crate::x509::serial::Serial;

pub(super) fn write(db: &Connection, touched: &mut MountCache, write: &PkiWrite) -> Result<PkiOutcome, SqliteError> {
    Ok(match write {
        PkiWrite::Document(write) => {
            touched.mount(db, write.key.mount)?;
            resolve(documents::write(db, write))?;
            PkiOutcome::Done
        }
        PkiWrite::Certificate(row) => {
            let inserted = touched.mount(db, row.mount)?;
            certificates::insert(db, row)?;
            inserted.certificates += 1;
            PkiOutcome::Done
        }
        PkiWrite::Revocation(row) => {
            let inserted = touched.mount(db, row.mount)?;
            let (stored, fresh) = revocations::insert(db, row)?;
            inserted.revocations += i64::from(fresh);
            PkiOutcome::Revoked { stored, fresh }
        }
        PkiWrite::Crl(row) => {
            touched.mount(db, row.mount)?;
            crls::publish(db, row)?;
            PkiOutcome::Done
        }
        PkiWrite::Lease(row) => {
            touched.mount(db, row.mount)?;
            leases::insert(db, row)?;
            PkiOutcome::Done
        }
        PkiWrite::LeasesMark(ids) => PkiOutcome::Changed(leases::mark(db, ids)?),
        PkiWrite::LeasesEnd(ids) => PkiOutcome::Changed(leases::delete(db, ids)?),
        PkiWrite::LeasesMarkEnded { limit } => PkiOutcome::Changed(leases::mark_ended(db, *limit)?),
        PkiWrite::LeasesSweep { now, limit } => PkiOutcome::Changed(leases::sweep(db, *now, *limit)?),
        PkiWrite::Metadata(row) => {
            touched.mount(db, row.mount)?;
            metadata::insert(db, row)?;
            PkiOutcome::Done
        }
        PkiWrite::RecordedResponse(row) => {
            recorded_responses::insert(db, row)?;
            PkiOutcome::Done
        }
        PkiWrite::RecordedResponseSweep { now, limit } => {
            PkiOutcome::Changed(recorded_responses::sweep(db, *now, *limit)?)
        }
        PkiWrite::RevocationIssuer { mount, serial, issuer } => {
            touched.mount(db, *mount)?;
            PkiOutcome::Changed(revocations::set_issuer(db, *mount, serial, issuer)?)
        }
        PkiWrite::TidyBegin { row, seen, now } => {
            touched.mount(db, row.mount)?;
            PkiOutcome::Changed(tidy::begin(db, row, *seen, *now)?)
        }
        PkiWrite::TidyRenew { mount, run, valid_until, report } => {
            PkiOutcome::TidyRenewed { cancelled: tidy::extend(db, *mount, *run, *valid_until, report)? }
        }
        PkiWrite::TidyCancel { mount, now } => PkiOutcome::Changed(tidy::cancel(db, *mount, *now)?),
        PkiWrite::Remove { mount, what, limit } => {
            let counted = touched.mount(db, *mount)?;
            let removed = tidy::remove(db, *mount, what, *limit)?;
            counted.certificates -= i64::from(removed.certificates);
            counted.revocations -= i64::from(removed.revocations);
            PkiOutcome::Removed(removed)
        }
    })
}

impl PkiStore for Store<SqliteReaderPool> {
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        self.submit(unit)
    }

    fn require_capacity(&self) -> Result<()> {
        self.commits.require_capacity()
    }

    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>> {
        self.reader.read(move |db| mounts::exists(db, mount))
    }

    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, None)
    }

    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, Some(kind))
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.reader.read(move |db| certificates::get(db, mount, serial))
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.reader.read(move |db| certificates::status(db, mount, serial))
    }

    fn known(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>> {
        self.reader.read(move |db| certificates::known_serials(db, mount, &serials))
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read(move |db| certificates::serials(db, mount, after, limit))
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read(move |db| revocations::serials(db, mount, after, limit))
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.reader.read(move |db| revocations::by_sequence(db, mount, after, limit))
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.reader.read(move |db| crls::list(db, mount))
    }

    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        self.restored_crl_floor()
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.reader.read(move |db| mounts::read_counts(db, mount))
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.reader.read(move |db| leases::get(db, &id))
    }

    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read(move |db| leases::ids(db, &range, limit))
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.reader.read(move |db| leases::ending(db, &after, &below, limit))
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read(move |db| certificates::with_der(db, mount, after, limit))
    }

    fn ending(&self, mount: MountId, from: i64, limit: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.read(move |db| certificates::ending(db, mount, from, limit))
    }

    fn unlisted(&self, mount: MountId, before: i64, listed: RemovableRevocations) -> BoxFuture<'static, Result<bool>> {
        self.reader.read(move |db| tidy::unlisted(db, mount, before, listed))
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.reader.read(move |db| tidy::get(db, mount))
    }

    fn answered(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>> {
        self.reader.read(move |db| recorded_responses::get(db, key))
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.open_row(self.reader.read(move |db| metadata::get(db, mount, serial)))
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.read(move |db| metadata::serials(db, mount, after, limit))
    }
}
