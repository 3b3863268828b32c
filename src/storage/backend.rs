//! The seam between the store and a database engine: units of writes, their outcomes, and the reads.
//!
//! A [`Backend`] is the single writer; the commit actor owns it and feeds it whole batches. A
//! [`Reader`] answers reads beside it, so that a read never queues behind a commit. Bodies of
//! documents and tokens are sealed before they come here and opened after they leave: no engine ever
//! sees a plain one.

use futures_util::future::BoxFuture;

use crate::auth::store::{TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;
use crate::pki::store::{
    CertificateRow, CrlRow, LeaseRow, MetadataRow, Removal, Removed, RevocationRow, SerialAndDer, SerialStatus,
    StoredCertificate, StoredRevocation, TidyRow,
};
use crate::projects::store::Work;
use crate::x509::serial::Serial;

/// Writes that happen together or not at all.
pub(crate) type Unit = Vec<Write>;

/// One write of any domain.
pub(crate) enum Write {
    /// A sealed configuration document.
    Document(DocumentWrite),
    /// A new mount.
    MountCreate(MountId),
    /// The end of a mount.
    MountDrop(MountId),
    /// An issued certificate.
    Certificate(CertificateRow),
    /// A revocation.
    Revocation(RevocationRow),
    /// A published CRL.
    Crl(CrlRow),
    /// A lease of a certificate, unless its token has ended.
    Lease(LeaseRow),
    /// Marks leases as ending.
    LeasesMark(Vec<String>),
    /// Removes leases.
    LeasesEnd(Vec<String>),
    /// Marks at most `limit` leases of ended tokens.
    LeasesMarkEnded { limit: u32 },
    /// Removes at most `limit` leases that ended at or before `now`, epoch seconds.
    LeaseSweep { now: i64, limit: u32 },
    /// What is attached to a certificate; its body is sealed.
    Metadata(MetadataRow),
    /// Another issuer for a revocation.
    RevocationIssuer { mount: MountId, serial: Serial, issuer: String },
    /// The begin of a run of tidy, unless one is under way or the last one is not `seen`.
    TidyBegin { row: TidyRow, seen: i64, now: i64 },
    /// A run of tidy goes on, unless another one has taken its place.
    TidyKeep { mount: MountId, run: i64, valid_until: i64, report: Vec<u8> },
    /// Asks the run of tidy to end that is under way.
    TidyCancel { mount: MountId, now: i64 },
    /// Removes at most `limit` rows that have expired.
    Remove { mount: MountId, what: Removal, limit: u32 },
    /// A new token; its body is sealed.
    TokenInsert(TokenRow),
    /// New end and sealed body of a token that has not ended at `now`.
    TokenUpdate { hash: TokenHash, expires_at: Option<Time>, body: Vec<u8>, now: Time },
    /// Takes one use.
    TokenSpend(TokenHash),
    /// Removes a token and its descendants.
    TokenRevoke(TokenHash),
    /// Removes at most `limit` tokens that ended at or before `now`, with their descendants.
    TokenSweep { now: Time, limit: u32 },
    /// A new row of the installation's own facts; `Conflict` when the name is there.
    MetaInsert { name: String, value: Vec<u8> },
    /// Work of the projects API, where the engine has no sessions of its own for it. What it refuses it
    /// undoes, and tells on its own way.
    Work(Work),
}

/// What became of one write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Stored.
    Done,
    /// The unit was not stored: a serial of it is taken.
    SerialTaken,
    /// The revocation that stands.
    Revoked { stored: StoredRevocation, fresh: bool },
    /// No such token.
    Absent,
    /// Uses left after a spend.
    UsesLeft(u32),
    /// The tokens that went.
    TokensRevoked(Vec<TokenHash>),
    /// How many rows went, or changed.
    Removed(u32),
    /// The run of tidy goes on; whether somebody asked it to end.
    Kept { cancelled: bool },
    /// What a step of tidy removed.
    Tidied(Removed),
}

/// The one writer of a store.
pub(crate) trait Backend: Send + Unpin + 'static {
    /// Makes a batch durable in one commit and answers each unit in order. A unit that fails leaves
    /// nothing behind and does not touch the others: the backend replays the units singly then.
    fn apply(&mut self, units: Vec<Unit>) -> BoxFuture<'_, Vec<Result<Vec<Outcome>>>>;

    /// Whether background work (rows of dropped mounts) is left to do.
    fn has_chores(&self) -> bool;

    /// One short step of the background work.
    fn chore(&mut self) -> BoxFuture<'_, ()>;

    /// Brings everything into the main store and lets go of it.
    fn close(self) -> BoxFuture<'static, Result<()>>;
}

/// One of the installation's own facts (its id, a wrapped data key): name and value.
pub(crate) type Fact = (String, Vec<u8>);

/// A document as stored.
pub(crate) struct SealedDocument {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) body: Vec<u8>,
}

/// By what a token is looked up.
#[derive(Clone, Copy)]
pub(crate) enum TokenBy {
    Hash(TokenHash),
    Accessor(TokenHash),
}

/// The reads of a store. Each sees everything that was answered as committed before it began.
pub(crate) trait Reader: Send + Sync {
    /// All of the installation's own facts.
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>>;
    /// The documents of a mount, of one kind or of all.
    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>>;
    /// A certificate with its revocation.
    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>>;
    /// What is known of a serial number.
    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>>;
    /// A keyset page of serials.
    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>>;
    /// A keyset page of revoked serials.
    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;
    /// A keyset page of revocations in their order.
    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>>;
    /// The last CRL of every group.
    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>>;
    /// Stored certificates and revocations.
    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>>;
    /// A lease that is not ending.
    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>>;
    /// A keyset page of ids of leases that are not ending.
    fn lease_ids(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<String>>>;
    /// A keyset page of leases that are ending.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>>;
    /// A keyset page of certificates: serials and DER.
    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;
    /// The run of tidy that is under way, or the last one.
    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>>;
    /// What is attached to a certificate, with its sealed body.
    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>>;
    /// A keyset page of serials that have something attached.
    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;
    /// A token with its sealed body.
    fn token(&self, by: TokenBy) -> BoxFuture<'static, Result<Option<TokenRow>>>;
    /// Refuses all later reads and lets go of the store.
    fn close(&self);
}

/// Epoch microseconds, rounded down: the resolution of stored times.
pub(crate) fn micros(at: Time) -> i64 {
    // Years up to 9999 are 2.6e17 µs: far inside the range.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// The time of epoch microseconds; `None` outside the range of [`Time`].
pub(crate) fn from_micros(micros: i64) -> Option<Time> {
    Time::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
}

/// `at` as it will be read back.
pub(crate) fn as_stored(at: Time) -> Time {
    from_micros(micros(at)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stored_times_read_back_and_never_move_later(seconds in -377_705_116_800i64..=253_402_300_799, nanos in 0u32..1_000_000_000) {
            let at = Time::from_unix_timestamp(seconds).unwrap() + std::time::Duration::from_nanos(u64::from(nanos));
            let stored = as_stored(at);
            prop_assert!(stored <= at && at - stored < time::Duration::MICROSECOND);
            prop_assert_eq!(as_stored(stored), stored);
        }
    }
}
