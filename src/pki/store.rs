//! Storage interface of the certificate authority engine, implemented by `storage`.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::documents::{Document, DocumentWrite, MountId};
use crate::error::{Error, Result};
use crate::x509::foreign_crl::CERTIFICATE_HOLD;
use crate::x509::serial::Serial;

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRow {
    /// The mount that issued it.
    pub mount: MountId,
    /// Its serial number, unique within the mount.
    pub serial: Serial,
    /// Id of the issuer.
    pub issuer: String,
    /// Role that was used, if any.
    pub role: Option<String>,
    /// Common name of the subject, if any.
    pub common_name: Option<String>,
    /// Start of validity, epoch seconds.
    pub not_before: i64,
    /// End of validity, epoch seconds.
    pub not_after: i64,
    /// Time of issuance, epoch seconds.
    pub issued_at: i64,
    /// Short description of the caller that requested it.
    pub requester: String,
    /// The certificate, DER.
    pub der: Vec<u8>,
}

/// A revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationRow {
    /// The mount.
    pub mount: MountId,
    /// The revoked serial.
    pub serial: Serial,
    /// Id of the issuer whose CRL lists the certificate; empty when no issuer of the mount signed it.
    pub issuer: String,
    /// Time of the revocation.
    pub revoked_at: Time,
    /// End of validity of the certificate, epoch seconds.
    pub not_after: i64,
    /// CRL reason code (RFC 5280 5.3.1); `None` is unspecified.
    pub reason: Option<u8>,
    /// Invalidity date (RFC 5280 5.3.2), epoch seconds.
    pub invalidity_date: Option<i64>,
}

/// Returns `true` if a CRL reason code is keyCompromise or cACompromise (RFC 5280 5.3.1).
pub fn is_compromise(reason: Option<u8>) -> bool {
    matches!(reason, Some(1 | 2))
}

/// Reason and invalidity date of a revocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationReason {
    /// CRL reason code (RFC 5280 5.3.1); `None` is unspecified.
    pub reason: Option<u8>,
    /// Invalidity date (RFC 5280 5.3.2), epoch seconds.
    pub invalidity_date: Option<i64>,
}

impl RevocationReason {
    /// Returns `true` if neither is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the values after a second revocation of the certificate with `later`; `None` when nothing changes.
    ///
    /// A key compromise may be discovered after a revocation for another reason, and replaces it (CA/B BR 7.2.2). Any
    /// other reason replaces certificateHold, because the revocation becomes permanent (RFC 5280 5.3.1).
    pub fn amended_by(self, later: Self) -> Option<Self> {
        let compromised = |one: Self| is_compromise(one.reason);
        let held = |one: Self| one.reason == Some(CERTIFICATE_HOLD);
        let amends = (compromised(later) && !compromised(self)) || (held(self) && !held(later));
        let invalidity_date = later.invalidity_date.or(self.invalidity_date);
        amends.then_some(Self { invalidity_date, ..later })
    }
}

impl RevocationRow {
    /// Returns the reason and the invalidity date.
    pub fn revocation_reason(&self) -> RevocationReason {
        RevocationReason { reason: self.reason, invalidity_date: self.invalidity_date }
    }

    /// Returns this revocation as amended by a `later` one ([`RevocationReason::amended_by`]); `None` when nothing
    /// changes. The time of revocation remains.
    pub fn amended_by(&self, later: &Self) -> Option<Self> {
        let RevocationReason { reason, invalidity_date } =
            self.revocation_reason().amended_by(later.revocation_reason())?;
        Some(Self { reason, invalidity_date, ..self.clone() })
    }
}

/// A stored revocation with its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRevocation {
    /// The revocation.
    pub row: RevocationRow,
    /// Number in the mount's revocation sequence: 1, 2, 3 … without reuse. A lower number never becomes visible after a
    /// higher one. An amended revocation moves to the next number, so that incremental readers see the change.
    pub sequence: u64,
}

/// Seconds by which thisUpdate of a CRL precedes its creation, as for notBefore of certificates.
pub const CRL_BACKDATING_SECONDS: u64 = 30;

/// Metadata of a published CRL; its body is rebuilt from the revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlRow {
    /// The mount.
    pub mount: MountId,
    /// Group of issuers that share the CRL (same subject and key).
    pub group: String,
    /// CRL number (RFC 5280 5.2.3); must exceed the stored one.
    pub number: u64,
    /// The CRL lists every revocation up to this sequence.
    pub covers: u64,
    /// thisUpdate, epoch seconds.
    pub this_update: i64,
    /// nextUpdate, epoch seconds.
    pub next_update: i64,
    /// Signature value.
    pub signature: Vec<u8>,
}

/// A range of lease ids, compared as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRange {
    /// The only mount to search; `None` for all mounts.
    pub mount: Option<MountId>,
    /// Excluded mounts.
    pub without: Vec<MountId>,
    /// Exclusive lower bound.
    pub after: String,
    /// Exclusive upper bound.
    pub below: String,
}

impl LeaseRange {
    /// Renders `without` for the SQL statements of both databases: `,1,2,`.
    pub fn without_text(&self) -> String {
        self.without.iter().fold(",".to_owned(), |text, mount| format!("{text}{},", mount.0))
    }
}

/// A lease of a certificate. Revoking the lease, or the end of its token, revokes the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// `<path of the request>/<random>`, ASCII.
    pub id: String,
    /// The mount of the certificate.
    pub mount: MountId,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// Hash of the token that requested the lease.
    pub token: [u8; 32],
    /// Creation, epoch seconds.
    pub issued_at: i64,
    /// End of the lease, epoch seconds: the end of validity of the certificate.
    pub expires_at: i64,
}

/// Metadata that a caller attached to a certificate. The storage layer seals the body.
#[derive(Clone, PartialEq, Eq)]
pub struct MetadataRow {
    /// The mount.
    pub mount: MountId,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// End of validity of the certificate, epoch seconds.
    pub not_after: i64,
    /// All other fields, JSON. May be confidential, so this type has no `Debug`.
    pub body: Vec<u8>,
}

/// Result of a request with an idempotency key. Stores only hashes of the caller's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedResponseRow {
    /// Hash of the idempotency key, the mount and the caller.
    pub key: [u8; 32],
    /// Hash of the request.
    pub request: [u8; 32],
    /// Serial number of the certificate, which is stored in the same transaction.
    pub serial: Serial,
    /// Id of the certificate's lease, if any.
    pub lease: Option<String>,
    /// Expiry of the key, epoch seconds: [`RecordedResponseRow::LIFETIME_SECONDS`] after the request.
    pub expires_at: i64,
}

impl RecordedResponseRow {
    /// Seconds for which an idempotency key is remembered.
    pub const LIFETIME_SECONDS: i64 = 24 * 3600;

    /// Returns the time of the response, epoch seconds.
    pub fn responded_at(&self) -> i64 {
        self.expires_at - Self::LIFETIME_SECONDS
    }
}

/// The current or last tidy run of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidyRow {
    /// The mount.
    pub mount: MountId,
    /// Number of the run; never 0.
    pub run: i64,
    /// End of the run's lease, epoch seconds. The node with the run extends the lease; 0 once the run has ended.
    pub valid_until: i64,
    /// `true` if cancellation was requested.
    pub cancelled: bool,
    /// Options and progress of the run, JSON.
    pub report: Vec<u8>,
}

/// Rows that one step of tidy removes. Ends of validity are epoch seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Certificates that ended before `before`; revoked ones only if they also ended before `revoked_before`.
    /// Revocations remain. The certificates are visited in order of their end, starting after `after`.
    Certificates {
        /// Bound of the end of validity.
        before: i64,
        /// Bound of the end of validity, for revoked certificates.
        revoked_before: i64,
        /// The last certificate that the previous step visited: end of validity and serial number.
        after: Option<(i64, Serial)>,
    },
    /// Revocations within these limits, with their certificates.
    Revocations(RemovableRevocations),
    /// Metadata of certificates that ended before `before`.
    Metadata {
        /// Bound of the end of validity.
        before: i64,
    },
    /// These certificates; revoked ones only if they ended before `revoked_before`.
    Named {
        /// Serial numbers.
        serials: Vec<Serial>,
        /// Bound of the end of validity, for revoked certificates.
        revoked_before: i64,
    },
}

/// Limits for removable revocations, which were on a complete CRL issued after their certificates expired (RFC 5280
/// 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovableRevocations {
    /// The certificates expired before this, epoch seconds.
    pub before: i64,
    /// Highest number in the mount's revocation sequence.
    pub up_to: u64,
}

impl Default for RemovableRevocations {
    fn default() -> Self {
        Self::NONE
    }
}

impl RemovableRevocations {
    /// Every revocation, for a mount that publishes no CRLs.
    pub const ALL: Self = Self { before: i64::MAX, up_to: u64::MAX };
    /// No revocation, for a missing CRL.
    pub const NONE: Self = Self { before: i64::MIN, up_to: 0 };

    /// Returns the stricter of both limits, field by field.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { before: self.before.min(other.before), up_to: self.up_to.min(other.up_to) }
    }

    /// Returns `up_to` as a signed number for the databases.
    pub(crate) fn last(self) -> i64 {
        i64::try_from(self.up_to).unwrap_or(i64::MAX)
    }
}

/// Result of one tidy step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalResult {
    /// Removed certificates.
    pub certificates: u32,
    /// Removed revocations.
    pub revocations: u32,
    /// Removed metadata.
    pub metadata: u32,
    /// Visited rows; fewer than the limit when none are left.
    pub visited: u32,
    /// Last certificate visited, for [`Removal::Certificates`].
    pub last: Option<(i64, Serial)>,
}

/// One write. The writes of a unit are stored together or not at all.
#[derive(Clone)]
pub enum PkiWrite {
    /// A configuration document.
    Document(DocumentWrite),
    /// A new certificate.
    Certificate(CertificateRow),
    /// A revocation. A second one of the same serial changes only what [`RevocationRow::amended_by`] replaces.
    Revocation(RevocationRow),
    /// A published CRL. Fails with `Conflict` unless its number is higher and it covers at least as many revocations.
    Crl(CrlRow),
    /// A new lease. The whole unit fails with `Conflict` when its token has ended.
    Lease(LeaseRow),
    /// Marks leases as ending. They are no longer listed, and their certificates are revoked later.
    LeasesMark(Vec<String>),
    /// Removes leases.
    LeasesEnd(Vec<String>),
    /// Marks up to `limit` leases of ended tokens as ending.
    LeasesMarkEnded {
        /// Maximum number of leases.
        limit: u32,
    },
    /// Removes up to `limit` leases that ended at or before `now`.
    LeasesSweep {
        /// Current time, epoch seconds.
        now: i64,
        /// Maximum number of leases.
        limit: u32,
    },
    /// Metadata of a new certificate.
    Metadata(MetadataRow),
    /// A request with an idempotency key; the key must be unused or expired.
    RecordedResponse(RecordedResponseRow),
    /// Removes up to `limit` answered requests that expired at or before `now`.
    RecordedResponseSweep {
        /// Current time, epoch seconds.
        now: i64,
        /// Maximum number of requests.
        limit: u32,
    },
    /// Assigns a revocation to another issuer, whose CRL then lists it.
    RevocationIssuer {
        /// The mount.
        mount: MountId,
        /// Revoked certificate.
        serial: Serial,
        /// Id of the issuer.
        issuer: String,
    },
    /// Starts a tidy run. Changes nothing if another run is active at `now`, or if the last run is not `seen`.
    TidyBegin {
        /// The new run.
        row: TidyRow,
        /// Last run that the caller knows; 0 for none.
        seen: i64,
        /// Current time, epoch seconds.
        now: i64,
    },
    /// Extends or ends a tidy run. Fails with `Conflict` when another run has replaced it.
    TidyRenew {
        /// The mount.
        mount: MountId,
        /// Number of the run.
        run: i64,
        /// New end of its lease, epoch seconds; 0 to end the run.
        valid_until: i64,
        /// Progress, JSON.
        report: Vec<u8>,
    },
    /// Cancels the tidy run that is active at `now`.
    TidyCancel {
        /// The mount.
        mount: MountId,
        /// Current time, epoch seconds.
        now: i64,
    },
    /// Removes expired rows.
    Remove {
        /// The mount.
        mount: MountId,
        /// Rows to remove.
        what: Removal,
        /// Maximum number of rows visited.
        limit: u32,
    },
}

/// Outcome of one write.
#[derive(Debug, PartialEq, Eq)]
pub enum PkiOutcome {
    /// Stored.
    Done,
    /// The unit was not stored: a serial number of a certificate, lease or metadata exists already, or the idempotency
    /// key is in use.
    SerialTaken,
    /// The revocation that is now stored: the new one, or an earlier one, possibly amended.
    Revoked {
        /// The stored revocation.
        stored: StoredRevocation,
        /// `true` if this write created it.
        fresh: bool,
    },
    /// Number of rows changed or removed.
    Changed(u32),
    /// The tidy run continues.
    TidyRenewed {
        /// `true` if cancellation was requested.
        cancelled: bool,
    },
    /// Result of a tidy step.
    Removed(RemovalResult),
}

/// A stored certificate with its revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The certificate.
    pub row: CertificateRow,
    /// Its revocation, if any.
    pub revocation: Option<StoredRevocation>,
}

/// Issuer and revocation of a serial number; both `None` when it was never used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerialStatus {
    /// Id of the issuer, while the certificate is stored.
    pub issuer: Option<String>,
    /// Revocation, which may outlive the stored certificate.
    pub revocation: Option<StoredRevocation>,
}

/// Existing records of a serial number, read when revocations are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSerial {
    /// Issuer id and end of validity (epoch seconds), while the certificate is stored.
    pub certificate: Option<(String, i64)>,
    /// Issuer id of its revocation.
    pub revocation: Option<String>,
}

/// Serial number and DER of a stored certificate.
pub type SerialAndDer = (Serial, Vec<u8>);

/// The certificate store of a server. All calls are safe to repeat. Errors are `Unavailable`, `Busy`, or `Conflict`
/// (the version of a document or CRL has changed).
pub trait PkiStore: Send + Sync {
    /// Commits one unit of writes, all or none, and returns one outcome per write, in order. Resolves when the unit is
    /// on disk. Units of several callers share a commit.
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>>;

    /// Checks that a unit would be accepted now. Called before expensive work, so that a rejection is cheap; the commit
    /// itself may still be rejected.
    ///
    /// # Errors
    /// `Busy` when the queue is full.
    fn require_capacity(&self) -> Result<()>;

    /// Returns `true` if the mount exists. Reads of a missing mount find nothing.
    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>>;

    /// Returns all documents of a mount.
    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// Returns the documents of one kind of a mount.
    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// Returns a certificate by serial; does not find a revocation without a stored certificate.
    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>>;

    /// Returns the issuer and revocation of a serial number, without the certificate.
    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>>;

    /// Returns the existing records of each serial number, in order.
    fn known(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>>;

    /// Returns up to `limit` serials after `after`, in ascending byte order.
    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// Returns up to `limit` revoked serials after `after`, in ascending byte order.
    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// Returns up to `limit` revocations with a sequence above `after`, ascending.
    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>>;

    /// Returns the last published CRL of every group.
    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>>;

    /// Returns the bound that new CRL numbers must exceed, because a restored store lacks CRLs published after its
    /// backup; 0 if it was never restored.
    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>>;

    /// Returns the exact numbers of stored certificates and of revocations, from counters.
    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>>;

    /// Returns a lease by its id, unless it is marked as ending.
    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>>;

    /// Returns up to `limit` ids of leases in a range that are not ending, in ascending byte order.
    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Returns up to `limit` ending leases between `after` and `below`, both exclusive, in ascending byte order.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>>;

    /// Marks up to `limit` leases of ended tokens as ending; returns how many.
    fn mark_ended(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::LeasesMarkEnded { limit }]))
    }

    /// Removes up to `limit` leases that ended at or before `now` (epoch seconds); returns how many.
    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::LeasesSweep { now, limit }]))
    }

    /// Returns serials and DER of up to `limit` certificates after `after`, in ascending byte order of the serial.
    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// Returns serials and DER of up to `limit` certificates that end from `from` (epoch seconds) on, soonest first.
    fn ending(&self, mount: MountId, from: i64, limit: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// Returns `true` if a certificate that ended before `before` has a revocation outside `listed`, which must stay
    /// for now.
    fn unlisted(&self, mount: MountId, before: i64, listed: RemovableRevocations) -> BoxFuture<'static, Result<bool>>;

    /// Returns the current or last tidy run.
    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>>;

    /// Returns the result stored under an idempotency key, which may have expired.
    fn answered(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>>;

    /// Removes up to `limit` requests that expired at or before `now` (epoch seconds); returns how many.
    fn sweep_recorded_responses(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::RecordedResponseSweep { now, limit }]))
    }

    /// Returns the metadata of a certificate.
    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>>;

    /// Returns up to `limit` serials after `after` with metadata, in ascending byte order.
    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;
}

fn single_changed_count(committed: BoxFuture<'static, Result<Vec<PkiOutcome>>>) -> BoxFuture<'static, Result<u32>> {
    let only = |outcomes: Vec<PkiOutcome>| match outcomes.as_slice() {
        [PkiOutcome::Changed(count)] => Ok(*count),
        _ => Err(Error::internal("the store did not return a count of changed rows")),
    };
    committed.map(move |outcomes| outcomes.and_then(only)).boxed()
}

#[cfg(test)]
pub(crate) mod testing;
