//! Storage interface of the PKI engine, implemented by the module `storage`.

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
    /// Mount of the issuer.
    pub mount: MountId,
    /// Serial number of the certificate, unique within the mount.
    pub serial: Serial,
    /// Id of the issuer.
    pub issuer: String,
    /// Name of the role that was used, if any.
    pub role: Option<String>,
    /// Common name of the subject, if any.
    pub common_name: Option<String>,
    /// Start of validity, epoch seconds.
    pub not_before: i64,
    /// End of validity, epoch seconds.
    pub not_after: i64,
    /// Time of issuance, epoch seconds.
    pub issued_at: i64,
    /// Short description of the caller that requested the certificate.
    pub requester: String,
    /// The certificate, DER.
    pub der: Vec<u8>,
}

/// A revocation of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationRow {
    /// Mount of the revocation.
    pub mount: MountId,
    /// Serial number of the revoked certificate.
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

/// Returns `true` if a CRL reason code means a compromised key: keyCompromise or cACompromise (RFC 5280 5.3.1).
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
    /// Returns `true` if neither reason nor invalidity date is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns reason and date after the certificate was revoked again with `later`; `None` if nothing changes.
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
    /// Returns the reason and the invalidity date of the revocation.
    pub fn revocation_reason(&self) -> RevocationReason {
        RevocationReason { reason: self.reason, invalidity_date: self.invalidity_date }
    }

    /// Returns this revocation as amended by a `later` one ([`RevocationReason::amended_by`]); `None` if nothing
    /// changes. The time of revocation stays the same.
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
    /// Number in the mount's revocation sequence: 1, 2, 3 …, never reused. A lower number never becomes visible after a
    /// higher one. An amended revocation gets the next number, so that incremental readers see the change.
    pub sequence: u64,
}

/// Seconds by which thisUpdate of a CRL is earlier than its creation, as for notBefore of certificates.
pub const CRL_BACKDATING_SECONDS: u64 = 30;

/// Metadata of a published CRL; the CRL itself is rebuilt from the revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlRow {
    /// Mount of the CRL's issuers.
    pub mount: MountId,
    /// Id of the group of issuers that share the CRL, because they have the same subject and key.
    pub group: String,
    /// CRL number (RFC 5280 5.2.3); must exceed the stored number.
    pub number: u64,
    /// Highest revocation sequence number such that the CRL lists every revocation up to it.
    pub covers: u64,
    /// thisUpdate, epoch seconds.
    pub this_update: i64,
    /// nextUpdate, epoch seconds.
    pub next_update: i64,
    /// Signature of the CRL.
    pub signature: Vec<u8>,
}

/// A range of lease ids in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRange {
    /// The only mount to search; `None` for all mounts.
    pub mount: Option<MountId>,
    /// Mounts whose leases are excluded.
    pub excluded_mounts: Vec<MountId>,
    /// Exclusive lower bound of the ids.
    pub after: String,
    /// Exclusive upper bound of the ids.
    pub below: String,
}

impl LeaseRange {
    /// Formats `excluded_mounts` for the SQL statements of both databases: `,1,2,`.
    pub fn excluded_mounts_text(&self) -> String {
        self.excluded_mounts.iter().fold(",".to_owned(), |text, mount| format!("{text}{},", mount.0))
    }
}

/// The lease of a certificate. If the lease is revoked or its token ends, the certificate is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// Lease id: `<path of the request>/<random>`, ASCII.
    pub id: String,
    /// Mount of the certificate.
    pub mount: MountId,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// Hash of the token that requested the lease.
    pub token: [u8; 32],
    /// Time of creation, epoch seconds.
    pub issued_at: i64,
    /// Expiry of the lease, epoch seconds: notAfter of the certificate.
    pub expires_at: i64,
}

/// Metadata that a caller attached to a certificate. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct MetadataRow {
    /// Mount of the certificate.
    pub mount: MountId,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// End of validity of the certificate, epoch seconds.
    pub not_after: i64,
    /// All other metadata fields as JSON. They may be confidential, so this type has no `Debug`.
    pub body: Vec<u8>,
}

/// The recorded response to a request with an idempotency key. Contains only hashes of the caller's data.
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
    /// Expiry of the idempotency key, epoch seconds: [`RecordedResponseRow::LIFETIME_SECONDS`] after the request.
    pub expires_at: i64,
}

impl RecordedResponseRow {
    /// Seconds for which the response to a request with an idempotency key is recorded.
    pub const LIFETIME_SECONDS: i64 = 24 * 3600;

    /// Returns the time of the recorded response, epoch seconds.
    pub fn responded_at(&self) -> i64 {
        self.expires_at - Self::LIFETIME_SECONDS
    }
}

/// The current or last tidy run of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidyRow {
    /// Mount of the run.
    pub mount: MountId,
    /// Random id of the run; never 0.
    pub run: i64,
    /// Expiry of the run's lease, epoch seconds. The node that executes the run extends the lease; 0 once the run has
    /// ended.
    pub valid_until: i64,
    /// `true` if cancellation of the run was requested.
    pub cancelled: bool,
    /// Options and progress of the run, JSON.
    pub report: Vec<u8>,
}

/// The rows that one step of a tidy run removes. All times are epoch seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Certificates that expired before `before`; revoked certificates only if they also expired before
    /// `revoked_before`. Their revocations remain. Certificates are visited in order of expiry, starting after `after`.
    Certificates {
        /// Exclusive upper bound of notAfter.
        before: i64,
        /// Exclusive upper bound of notAfter of revoked certificates.
        revoked_before: i64,
        /// notAfter and serial number of the last certificate that the previous step visited.
        after: Option<(i64, Serial)>,
    },
    /// Revocations within these limits, and the certificates that they revoke.
    Revocations(RemovableRevocations),
    /// Metadata of certificates that expired before `before`.
    Metadata {
        /// Exclusive upper bound of notAfter.
        before: i64,
    },
    /// The certificates with these serial numbers; revoked certificates only if they expired before `revoked_before`.
    Named {
        /// Serial numbers of the certificates.
        serials: Vec<Serial>,
        /// Exclusive upper bound of notAfter of revoked certificates.
        revoked_before: i64,
    },
}

/// Limits within which revocations may be removed. Each of these revocations was on a complete CRL that was issued
/// after the revoked certificate had expired (RFC 5280 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovableRevocations {
    /// Exclusive upper bound of notAfter of the revoked certificates, epoch seconds.
    pub before: i64,
    /// Highest number in the mount's revocation sequence that may be removed.
    pub up_to: u64,
}

impl Default for RemovableRevocations {
    fn default() -> Self {
        Self::NONE
    }
}

impl RemovableRevocations {
    /// Limits that permit every removal, for a mount that publishes no CRLs.
    pub const ALL: Self = Self { before: i64::MAX, up_to: u64::MAX };
    /// Limits that permit no removal, for a missing CRL.
    pub const NONE: Self = Self { before: i64::MIN, up_to: 0 };

    /// Returns the stricter one of both limits, for each field.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { before: self.before.min(other.before), up_to: self.up_to.min(other.up_to) }
    }

    /// Returns `up_to` as a signed number for SQL statements.
    pub(crate) fn up_to_sql(self) -> i64 {
        i64::try_from(self.up_to).unwrap_or(i64::MAX)
    }
}

/// Result of one step of a tidy run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalResult {
    /// Number of removed certificates.
    pub certificates: u32,
    /// Number of removed revocations.
    pub revocations: u32,
    /// Number of removed metadata rows.
    pub metadata: u32,
    /// Number of visited rows; below the limit if no more rows are left.
    pub visited: u32,
    /// notAfter and serial number of the last certificate visited, for [`Removal::Certificates`].
    pub last: Option<(i64, Serial)>,
}

/// One write. The writes of a unit are stored all together or not at all.
#[derive(Clone)]
pub enum PkiWrite {
    /// Writes a configuration document.
    Document(DocumentWrite),
    /// Stores a new certificate.
    Certificate(CertificateRow),
    /// Stores a revocation. A second revocation of the same serial number changes only what
    /// [`RevocationRow::amended_by`] replaces.
    Revocation(RevocationRow),
    /// Stores a published CRL. Fails with `Conflict` unless its number is higher than the stored one and it covers at
    /// least as many revocations.
    Crl(CrlRow),
    /// Stores a new lease. The whole unit fails with `Conflict` if the lease's token has ended.
    Lease(LeaseRow),
    /// Marks the leases with these ids as ending. They are no longer listed, and their certificates are revoked later.
    LeasesMark(Vec<String>),
    /// Removes the leases with these ids.
    LeasesEnd(Vec<String>),
    /// Marks as ending up to `limit` leases whose tokens have ended.
    LeasesMarkEnded {
        /// Maximum number of leases.
        limit: u32,
    },
    /// Removes up to `limit` leases that expired at or before `now`.
    LeasesSweep {
        /// Current time, epoch seconds.
        now: i64,
        /// Maximum number of leases.
        limit: u32,
    },
    /// Stores the metadata of a new certificate.
    Metadata(MetadataRow),
    /// Records the response to a request with an idempotency key; the key must be unused or expired.
    RecordedResponse(RecordedResponseRow),
    /// Removes up to `limit` recorded responses that expired at or before `now`.
    RecordedResponseSweep {
        /// Current time, epoch seconds.
        now: i64,
        /// Maximum number of recorded responses.
        limit: u32,
    },
    /// Assigns a revocation to another issuer, whose CRL then lists the certificate.
    RevocationIssuer {
        /// Mount of the revocation.
        mount: MountId,
        /// Serial number of the revoked certificate.
        serial: Serial,
        /// Id of the new issuer.
        issuer: String,
    },
    /// Starts a tidy run. Changes nothing if another run is active at `now`, or if the last stored run is not `seen`.
    TidyBegin {
        /// Row of the new run.
        row: TidyRow,
        /// Id of the last run that the caller has read; 0 for none.
        seen: i64,
        /// Current time, epoch seconds.
        now: i64,
    },
    /// Extends or ends the lease of a tidy run. Fails with `Conflict` if another run has replaced this one.
    TidyRenew {
        /// Mount of the run.
        mount: MountId,
        /// Id of the run.
        run: i64,
        /// New expiry of the run's lease, epoch seconds; 0 to end the run.
        valid_until: i64,
        /// Report of the run, JSON.
        report: Vec<u8>,
    },
    /// Requests cancellation of the tidy run that is active at `now`.
    TidyCancel {
        /// Mount of the run.
        mount: MountId,
        /// Current time, epoch seconds.
        now: i64,
    },
    /// Removes expired rows of a mount.
    Remove {
        /// Mount of the rows.
        mount: MountId,
        /// The rows to remove.
        what: Removal,
        /// Maximum number of rows visited.
        limit: u32,
    },
}

/// Outcome of one write.
#[derive(Debug, PartialEq, Eq)]
pub enum PkiOutcome {
    /// The write is stored and has no further result.
    Done,
    /// The unit is not stored: the serial number of a certificate, lease or metadata row exists already, or the
    /// idempotency key is in use.
    SerialTaken,
    /// The serial number is revoked, by this write or an earlier one.
    Revoked {
        /// The stored revocation: the new one, or the earlier one, possibly amended.
        stored: StoredRevocation,
        /// `true` if this write created the revocation.
        fresh: bool,
    },
    /// Number of rows changed or removed.
    Changed(u32),
    /// The lease of the tidy run is renewed.
    TidyRenewed {
        /// `true` if cancellation of the run was requested.
        cancelled: bool,
    },
    /// Result of a step of a tidy run.
    Removed(RemovalResult),
}

/// A stored certificate and its revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The certificate.
    pub row: CertificateRow,
    /// Revocation of the certificate, if any.
    pub revocation: Option<StoredRevocation>,
}

/// Issuer and revocation of a serial number; both `None` if the number is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerialStatus {
    /// Id of the issuer; `None` if the certificate is not stored.
    pub issuer: Option<String>,
    /// Revocation, which may outlive the stored certificate.
    pub revocation: Option<StoredRevocation>,
}

/// The stored data about a serial number that an import of revocations needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSerial {
    /// Issuer id and notAfter (epoch seconds) of the certificate; `None` if it is not stored.
    pub certificate: Option<(String, i64)>,
    /// Issuer id of the revocation, if any.
    pub revocation: Option<String>,
}

/// Serial number and DER of a stored certificate.
pub type SerialAndDer = (Serial, Vec<u8>);

/// The store of certificates and revocations. All calls are safe to repeat. Errors are `Unavailable`, `Busy`, or
/// `Conflict` (the version of a document or CRL has changed).
pub trait PkiStore: Send + Sync {
    /// Commits one unit of writes, all or none, and returns one outcome per write, in order. Resolves when the unit is
    /// on disk. Units of several callers may share a transaction.
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>>;

    /// Checks that a unit of writes would be accepted now. Called before expensive work, so that a rejection is cheap;
    /// the commit itself may still be rejected.
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

    /// Returns a stored certificate by serial number. A revocation without a stored certificate is not found.
    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>>;

    /// Returns the issuer and revocation of a serial number, without the certificate.
    fn serial_status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>>;

    /// Returns what is stored about each of these serial numbers, in the same order.
    fn known_serials(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>>;

    /// Returns up to `limit` serial numbers of certificates after `after`, in ascending byte order.
    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// Returns up to `limit` revoked serial numbers after `after`, in ascending byte order.
    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// Returns up to `limit` revocations with a sequence number above `after`, in ascending order.
    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>>;

    /// Returns the last published CRL of every group of issuers.
    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>>;

    /// Returns a number that new CRL numbers must exceed, because a store that was restored from a backup lacks the
    /// CRLs published after that backup; 0 if the store was never restored.
    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>>;

    /// Returns the exact numbers of stored certificates and of revocations, which the store counts on writes.
    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>>;

    /// Returns a lease by its id, unless the lease is marked as ending.
    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>>;

    /// Returns up to `limit` ids of leases in `range` that are not marked as ending, in ascending byte order.
    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Returns up to `limit` leases marked as ending between the ids `after` and `below`, both exclusive, in ascending
    /// byte order.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>>;

    /// Marks as ending up to `limit` leases whose tokens have ended; returns their number.
    fn mark_leases_of_ended_tokens(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::LeasesMarkEnded { limit }]))
    }

    /// Removes up to `limit` leases that expired at or before `now` (epoch seconds); returns their number.
    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::LeasesSweep { now, limit }]))
    }

    /// Returns serial numbers and DER of up to `limit` certificates after `after`, in ascending byte order of the
    /// serial.
    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// Returns serial numbers and DER of up to `limit` certificates that expire at `from` (epoch seconds) or later, the
    /// soonest first.
    fn certificates_by_expiry(
        &self,
        mount: MountId,
        from: i64,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// Returns `true` if the revocation of a certificate that expired before `before` is outside the limits `listed`
    /// and thus cannot be removed yet.
    fn has_unlisted_revocations(
        &self,
        mount: MountId,
        before: i64,
        listed: RemovableRevocations,
    ) -> BoxFuture<'static, Result<bool>>;

    /// Returns the current or last tidy run of a mount.
    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>>;

    /// Returns the response recorded under the hash of an idempotency key, which may have expired.
    fn recorded_response(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>>;

    /// Removes up to `limit` recorded responses that expired at or before `now` (epoch seconds); returns their number.
    fn sweep_recorded_responses(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        single_changed_count(self.commit(vec![PkiWrite::RecordedResponseSweep { now, limit }]))
    }

    /// Returns the metadata of a certificate.
    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>>;

    /// Returns up to `limit` serial numbers of certificates with metadata after `after`, in ascending byte order.
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
