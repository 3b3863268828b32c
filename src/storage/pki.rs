//! The store as the certificate authority engine sees it.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::documents::{Document, MountId};
use crate::error::{Error, Result};
use crate::pki::store::{
    CrlRow, LeaseRow, MetadataRow, PkiOutcome, PkiStore, PkiWrite, SerialAndDer, SerialStatus, StoredCertificate,
    StoredRevocation, TidyRow,
};
use crate::storage::Inner;
use crate::storage::backend::{Outcome, Unit, Write, as_stored};
use crate::storage::documents::follow_rotation;
use crate::storage::seal::metadata_context;
use crate::x509::serial::Serial;

impl Inner {
    fn pki_write(&self, write: PkiWrite) -> Result<Write> {
        Ok(match write {
            PkiWrite::Document(document) => self.seal_document(document)?,
            PkiWrite::Certificate(row) => Write::Certificate(row),
            PkiWrite::Revocation(mut row) => {
                row.revoked_at = as_stored(row.revoked_at);
                Write::Revocation(row)
            }
            PkiWrite::Crl(row) => Write::Crl(row),
            PkiWrite::Lease(row) => Write::Lease(row),
            PkiWrite::LeasesMark(ids) => Write::LeasesMark(ids),
            PkiWrite::LeasesEnd(ids) => Write::LeasesEnd(ids),
            PkiWrite::Metadata(row) => {
                let body = self.seal(&metadata_context(row.mount, row.serial, row.not_after), row.body)?;
                Write::Metadata(MetadataRow { body, ..row })
            }
            PkiWrite::RevocationIssuer { mount, serial, issuer } => Write::RevocationIssuer { mount, serial, issuer },
            PkiWrite::TidyBegin { row, seen, now } => Write::TidyBegin { row, seen, now },
            PkiWrite::TidyKeep { mount, run, valid_until, report } => {
                Write::TidyKeep { mount, run, valid_until, report }
            }
            PkiWrite::TidyCancel { mount, now } => Write::TidyCancel { mount, now },
            PkiWrite::Remove { mount, what, limit } => Write::Remove { mount, what, limit },
        })
    }
}

fn pki_outcome(outcome: Outcome) -> Result<PkiOutcome> {
    match outcome {
        Outcome::Done => Ok(PkiOutcome::Done),
        Outcome::SerialTaken => Ok(PkiOutcome::SerialTaken),
        Outcome::Revoked { stored, fresh } => Ok(PkiOutcome::Revoked { stored, fresh }),
        Outcome::Removed(count) => Ok(PkiOutcome::Changed(count)),
        Outcome::Kept { cancelled } => Ok(PkiOutcome::Kept { cancelled }),
        Outcome::Tidied(removed) => Ok(PkiOutcome::Removed(removed)),
        Outcome::Absent | Outcome::UsesLeft(_) | Outcome::TokensRevoked(_) => {
            Err(Error::internal("the backend answered another write"))
        }
    }
}

/// A unit is submitted by the call itself: whoever drops the future later does not take it back.
impl PkiStore for Inner {
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        match unit.into_iter().map(|write| self.pki_write(write)).collect::<Result<Unit>>() {
            Err(error) => ready(Err(error)).boxed(),
            Ok(unit) => {
                let submitted = self.commits.submit(unit);
                async move { submitted.outcome().await?.into_iter().map(pki_outcome).collect() }.boxed()
            }
        }
    }

    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.read_documents(mount, None)
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.reader.certificate(mount, serial)
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.reader.status(mount, serial)
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.serials(mount, after, limit)
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.revoked_serials(mount, after, limit)
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.reader.revocations(mount, after, limit)
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.reader.crls(mount)
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.reader.counts(mount)
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.reader.lease(id)
    }

    fn lease_ids(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.lease_ids(after, below, limit)
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.reader.ending_leases(after, below, limit)
    }

    fn mark_ended(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.count(Write::LeasesMarkEnded { limit })
    }

    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.count(Write::LeaseSweep { now, limit })
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.reader.certificates(mount, after, limit)
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.reader.tidy(mount)
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        let (ring, reader) = (self.ring.clone(), self.reader.clone());
        async move {
            let Some(row) = reader.metadata(mount, serial).await? else { return Ok(None) };
            follow_rotation(&ring, &*reader, std::iter::once(&row.body[..])).await?;
            let body = ring.open(&metadata_context(mount, serial, row.not_after), &row.body)?;
            Ok(Some(MetadataRow { body, ..row }))
        }
        .boxed()
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.reader.metadata_serials(mount, after, limit)
    }
}
