//! What the certificate authority engine needs of storage. Implemented by `storage`.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::documents::{Document, DocumentWrite, MountId};
use crate::error::{Error, Result};
use crate::x509::foreign_crl::ON_HOLD;
use crate::x509::serial::Serial;

/// One issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRow {
    /// The mount that issued it.
    pub mount: MountId,
    /// Its serial number, unique within the mount.
    pub serial: Serial,
    /// The issuer's id.
    pub issuer: String,
    /// The role, when one was used.
    pub role: Option<String>,
    /// The subject's common name, when it has one.
    pub common_name: Option<String>,
    /// Start of validity, epoch seconds.
    pub not_before: i64,
    /// End of validity, epoch seconds.
    pub not_after: i64,
    /// When it was issued, epoch seconds.
    pub issued_at: i64,
    /// Who asked for it, in a short text of whoever knows callers.
    pub requester: String,
    /// The certificate, DER.
    pub der: Vec<u8>,
}

/// One revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationRow {
    /// The mount.
    pub mount: MountId,
    /// The revoked serial.
    pub serial: Serial,
    /// The issuer whose CRL lists it; empty when no issuer of the mount signed it.
    pub issuer: String,
    /// When it was revoked.
    pub revoked_at: Time,
    /// End of validity of the certificate, epoch seconds.
    pub not_after: i64,
    /// CRL reason code (RFC 5280 5.3.1); `None` is unspecified.
    pub reason: Option<u8>,
    /// Invalidity date (RFC 5280 5.3.2), epoch seconds.
    pub invalidity_date: Option<i64>,
}

/// Returns `true` if a CRL reason code says that the key is known to others: keyCompromise or cACompromise (RFC 5280
/// 5.3.1).
pub fn is_compromise(reason: Option<u8>) -> bool {
    matches!(reason, Some(1 | 2))
}

/// What is said of a revocation beside its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grounds {
    /// CRL reason code (RFC 5280 5.3.1); `None` is unspecified.
    pub reason: Option<u8>,
    /// Invalidity date (RFC 5280 5.3.2), epoch seconds.
    pub invalidity_date: Option<i64>,
}

impl Grounds {
    /// Whether nothing is said.
    pub fn are_unsaid(&self) -> bool {
        *self == Self::default()
    }

    /// What stands after `later` ones of the same certificate; `None` when they change nothing. That a key is known
    /// to others may be found out after the certificate was revoked for something else, and takes its place
    /// (CA/B BR 7.2.2); of what was on hold everything else does, too: it is revoked for good (RFC 5280 5.3.1).
    pub fn amended_by(self, later: Self) -> Option<Self> {
        let compromised = |one: Self| is_compromise(one.reason);
        let held = |one: Self| one.reason == Some(ON_HOLD);
        let amends = (compromised(later) && !compromised(self)) || (held(self) && !held(later));
        let invalidity_date = later.invalidity_date.or(self.invalidity_date);
        amends.then_some(Self { invalidity_date, ..later })
    }
}

impl RevocationRow {
    /// What is said of it.
    pub fn grounds(&self) -> Grounds {
        Grounds { reason: self.reason, invalidity_date: self.invalidity_date }
    }

    /// What stands of this revocation after a `later` one of the same certificate ([`Grounds::amended_by`]); `None`
    /// when that changes nothing. When it was revoked stays.
    pub fn amended_by(&self, later: &Self) -> Option<Self> {
        let Grounds { reason, invalidity_date } = self.grounds().amended_by(later.grounds())?;
        Some(Self { reason, invalidity_date, ..self.clone() })
    }
}

/// A revocation as stored: with its place in the mount's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRevocation {
    /// What was revoked.
    pub row: RevocationRow,
    /// Its number in the mount's revocation sequence: 1, 2, 3 … without reuse; a lower number never
    /// becomes visible after a higher one. One whose reason is replaced moves to the next number, so that whoever
    /// reads on from the last one hears of it.
    pub sequence: u64,
}

/// Seconds by which thisUpdate of a CRL lies before the time at which it is made, as notBefore of certificates does.
pub const CRL_BACKDATING: u64 = 30;

/// What is known of a published CRL; its body is rebuilt from the revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlRow {
    /// The mount.
    pub mount: MountId,
    /// The group of issuers that share the CRL (one subject and key).
    pub group: String,
    /// CRL number (RFC 5280 5.2.3); must be above the stored one.
    pub number: u64,
    /// Every revocation up to this sequence is on it.
    pub covers: u64,
    /// Epoch seconds.
    pub this_update: i64,
    /// Epoch seconds.
    pub next_update: i64,
    /// The signature bits.
    pub signature: Vec<u8>,
}

/// Ids of leases between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRange {
    /// Only those of this mount; `None` for any.
    pub mount: Option<MountId>,
    /// None of these mounts.
    pub without: Vec<MountId>,
    /// The ids are above this text,
    pub after: String,
    /// and below this one.
    pub below: String,
}

impl LeaseRange {
    /// The ids in `without`, as the statements of both engines take them: `,1,2,`.
    pub fn without_text(&self) -> String {
        self.without.iter().fold(",".to_owned(), |text, mount| format!("{text}{},", mount.0))
    }
}

/// A lease of a certificate: whoever revokes the lease revokes the certificate, and so does the end of
/// the token that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// `<path of the request>/<random>`, ASCII.
    pub id: String,
    /// The mount of the certificate.
    pub mount: MountId,
    /// The certificate.
    pub serial: Serial,
    /// The hash of the token that asked for it.
    pub token: [u8; 32],
    /// When it was made, epoch seconds.
    pub issued_at: i64,
    /// When it ends, epoch seconds: with the certificate.
    pub expires_at: i64,
}

/// What a caller attached to a certificate. The body is sealed by the storage layer.
#[derive(Clone, PartialEq, Eq)]
pub struct MetadataRow {
    /// The mount.
    pub mount: MountId,
    /// The certificate.
    pub serial: Serial,
    /// End of validity of the certificate, epoch seconds.
    pub not_after: i64,
    /// Everything else, JSON. It is the caller's own matter, so this type has no `Debug`.
    pub body: Vec<u8>,
}

/// What came of a request that its caller may send again. It holds nothing of what the caller said but hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredRow {
    /// What the caller called the request, hashed with the mount and who asked.
    pub key: [u8; 32],
    /// What was asked for, hashed.
    pub request: [u8; 32],
    /// The certificate, which is stored in the same unit.
    pub serial: Serial,
    /// The id of its lease, when it has one.
    pub lease: Option<String>,
    /// When the key is free again, epoch seconds: [`AnsweredRow::LIFE`] after the request.
    pub expires_at: i64,
}

impl AnsweredRow {
    /// Seconds for which a request is remembered.
    pub const LIFE: i64 = 24 * 3600;

    /// When it was answered, epoch seconds.
    pub fn answered_at(&self) -> i64 {
        self.expires_at - Self::LIFE
    }
}

/// Who tidies a mount, or did so last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidyRow {
    /// The mount.
    pub mount: MountId,
    /// The run, by a number of its own; never 0.
    pub run: i64,
    /// Until when it counts as under way, epoch seconds; its holder moves this on. 0 once it has ended.
    pub valid_until: i64,
    /// Whether somebody asked it to end.
    pub cancelled: bool,
    /// What it is to do and has done, JSON.
    pub report: Vec<u8>,
}

/// What one step of tidy removes. Ends of validity are epoch seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Certificates that ended before `before`; of those that are revoked only those that ended before
    /// `revoked_before` as well. Their revocations stay. Looks at them in the order of their end, from
    /// behind `after` on.
    Certificates {
        /// End of those that go.
        before: i64,
        /// End of those that go although they are revoked.
        revoked_before: i64,
        /// The last one that was looked at: its end and its serial.
        after: Option<(i64, Serial)>,
    },
    /// These revocations, with the certificates.
    Revocations(Listed),
    /// What is attached to certificates that ended before this.
    Metadata {
        /// End of the certificates.
        before: i64,
    },
    /// These certificates, whenever they end; not those that are revoked and end at `revoked_before` or
    /// later.
    Named {
        /// The certificates.
        serials: Vec<Serial>,
        /// End of those that go although they are revoked.
        revoked_before: i64,
    },
}

/// Revocations that complete CRLs hold which were issued after the end of the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Those of certificates that ended before this, epoch seconds, …
    pub before: i64,
    /// … up to this number of their sequence.
    pub up_to: u64,
}

impl Default for Listed {
    fn default() -> Self {
        Self::NONE
    }
}

impl Listed {
    /// Where no list is kept.
    pub const ALL: Self = Self { before: i64::MAX, up_to: u64::MAX };
    /// Where one is to be kept and is not there.
    pub const NONE: Self = Self { before: i64::MIN, up_to: 0 };

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { before: self.before.min(other.before), up_to: self.up_to.min(other.up_to) }
    }

    /// The last number as stores have it.
    pub(crate) fn last(self) -> i64 {
        i64::try_from(self.up_to).unwrap_or(i64::MAX)
    }
}

/// What a step of tidy came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Certificates that went.
    pub certificates: u32,
    /// Revocations that went.
    pub revocations: u32,
    /// Attachments that went.
    pub metadata: u32,
    /// Rows that were looked at: fewer than the limit when there is no more.
    pub looked: u32,
    /// The last certificate that was looked at, for [`Removal::Certificates`].
    pub last: Option<(i64, Serial)>,
}

/// One change. The writes of one unit happen together or not at all.
#[derive(Clone)]
pub enum PkiWrite {
    /// A configuration document.
    Document(DocumentWrite),
    /// A new certificate.
    Certificate(CertificateRow),
    /// A revocation. Of a serial that is already revoked the first one stays, but for what
    /// [`RevocationRow::amended_by`] replaces.
    Revocation(RevocationRow),
    /// A published CRL; refused as `Conflict` when its number is not above the stored one, or when it
    /// covers fewer revocations.
    Crl(CrlRow),
    /// A new lease; its whole unit is refused as `Conflict` when its token has ended.
    Lease(LeaseRow),
    /// Marks leases as ending: from now on nobody is shown them.
    LeasesMark(Vec<String>),
    /// Removes leases.
    LeasesEnd(Vec<String>),
    /// Marks at most `limit` leases of tokens that have ended as ending.
    LeasesMarkEnded {
        /// Most leases that are marked.
        limit: u32,
    },
    /// Removes at most `limit` leases that ended at or before `now` (epoch seconds).
    LeasesSweep {
        /// The time.
        now: i64,
        /// Most leases that go.
        limit: u32,
    },
    /// What is attached to a new certificate.
    Metadata(MetadataRow),
    /// The request that a new certificate answers; its key is free, or what it stood for has expired.
    Answered(AnsweredRow),
    /// Removes at most `limit` answered requests that expired at or before `now` (epoch seconds).
    AnsweredSweep {
        /// The time.
        now: i64,
        /// Most that go.
        limit: u32,
    },
    /// Another issuer for a revocation: its CRL is to list it.
    RevocationIssuer {
        /// The mount.
        mount: MountId,
        /// The revoked certificate.
        serial: Serial,
        /// The issuer's id.
        issuer: String,
    },
    /// The begin of a run of tidy, unless one is under way at `now` (epoch seconds), or the last one is not
    /// the one that the caller has seen (0 for none).
    TidyBegin {
        /// The run.
        row: TidyRow,
        /// The last run, as far as the caller knows.
        seen: i64,
        /// The time.
        now: i64,
    },
    /// A run of tidy goes on, or ends; refused as `Conflict` when another one has taken its place.
    TidyKeep {
        /// The mount.
        mount: MountId,
        /// The run.
        run: i64,
        /// Until when it counts as under way, epoch seconds; 0 to end it.
        valid_until: i64,
        /// What it has done so far.
        report: Vec<u8>,
    },
    /// Asks the run of tidy to end that is under way at `now` (epoch seconds).
    TidyCancel {
        /// The mount.
        mount: MountId,
        /// The time.
        now: i64,
    },
    /// Removes what has expired, at most `limit` rows.
    Remove {
        /// The mount.
        mount: MountId,
        /// What goes.
        what: Removal,
        /// Most rows that are looked at.
        limit: u32,
    },
}

/// What became of one write.
#[derive(Debug, PartialEq, Eq)]
pub enum PkiOutcome {
    /// Stored.
    Done,
    /// A certificate, lease or attachment whose serial the mount already has, or a request whose key is taken;
    /// its whole unit was not stored.
    SerialTaken,
    /// The revocation that stands: the new one, or the earlier one (`fresh` is false), perhaps with the reason of
    /// this one.
    Revoked {
        /// The revocation that stands.
        stored: StoredRevocation,
        /// Whether this write made it.
        fresh: bool,
    },
    /// How many rows were changed or removed.
    Changed(u32),
    /// The run of tidy goes on; whether somebody asked it to end.
    Kept {
        /// Somebody did.
        cancelled: bool,
    },
    /// What a step of tidy removed.
    Removed(Removed),
}

/// A certificate read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The row.
    pub row: CertificateRow,
    /// Its revocation, if there is one.
    pub revocation: Option<StoredRevocation>,
}

/// What is known of a serial number; neither when it was never used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerialStatus {
    /// The issuer's id of the certificate, while that is stored.
    pub issuer: Option<String>,
    /// Its revocation, which may outlast the stored certificate.
    pub revocation: Option<StoredRevocation>,
}

/// What a serial number stands for already, for whoever brings revocations from elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSerial {
    /// The issuer's id and the end of validity (epoch seconds) of the certificate, while that is stored.
    pub certificate: Option<(String, i64)>,
    /// The issuer's id of its revocation.
    pub revocation: Option<String>,
}

/// A stored certificate by serial and DER alone.
pub type SerialAndDer = (Serial, Vec<u8>);

/// The store of one server, as the engine sees it. All calls are safe to repeat; all errors are
/// `Unavailable`, `Busy`, or `Conflict` (a document's or CRL's version moved on).
pub trait PkiStore: Send + Sync {
    /// Makes one unit of writes durable, all or none; one outcome per write, in order. Units of many
    /// callers share a commit. Resolves only when the unit is on disk.
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>>;

    /// That a unit would find room at this moment: whoever has a lot to do before there is a unit asks first, so that
    /// what is refused costs little. It may be refused all the same.
    ///
    /// # Errors
    /// `Busy` when it would not.
    fn require_room(&self) -> Result<()>;

    /// Whether a mount exists: of one that does not, reads find nothing.
    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>>;

    /// All documents of a mount.
    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// The documents of a mount of one kind.
    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// A certificate by serial; a revocation without a stored certificate is not found here.
    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>>;

    /// What is known of a serial number, without the certificate itself.
    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>>;

    /// What is known of each of these serial numbers, in their order.
    fn known(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>>;

    /// At most `limit` serials after `after`, ascending by bytes.
    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// At most `limit` revoked serials after `after`, ascending by bytes.
    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;

    /// At most `limit` revocations with a sequence above `after`, ascending.
    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>>;

    /// The last published CRL of every group.
    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>>;

    /// Every CRL number that is used from now on is above this one. Of what was published since the copy was taken
    /// a restored store knows nothing; 0 for a store that was never restored.
    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>>;

    /// Exact numbers of stored certificates and of revocations, from the counters.
    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>>;

    /// A lease that is not ending.
    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>>;

    /// At most `limit` ids of leases in a range that are not ending, ascending by bytes.
    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>>;

    /// At most `limit` leases that are ending, above `after` and below `below`, ascending by bytes.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>>;

    /// Marks at most `limit` leases of tokens that have ended as ending; returns how many.
    fn mark_ended(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        changed(self.commit(vec![PkiWrite::LeasesMarkEnded { limit }]))
    }

    /// Removes at most `limit` leases that ended at or before `now` (epoch seconds); returns how many.
    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        changed(self.commit(vec![PkiWrite::LeasesSweep { now, limit }]))
    }

    /// At most `limit` certificates after `after`, ascending by bytes of the serial: serials and DER.
    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// At most `limit` certificates that end at `from` (epoch seconds) or later, the next to end first: serials and DER.
    fn ending(&self, mount: MountId, from: i64, limit: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>>;

    /// Whether there is a revocation of a certificate that ended before `before` and has not been `listed` since.
    fn unlisted(&self, mount: MountId, before: i64, listed: Listed) -> BoxFuture<'static, Result<bool>>;

    /// The run of tidy that is under way, or the last one.
    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>>;

    /// What came of the request with this key; it may have expired.
    fn answered(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<AnsweredRow>>>;

    /// Removes at most `limit` answered requests that expired at or before `now` (epoch seconds); returns how many.
    fn sweep_answered(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        changed(self.commit(vec![PkiWrite::AnsweredSweep { now, limit }]))
    }

    /// What is attached to a certificate.
    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>>;

    /// At most `limit` serials after `after` that have something attached, ascending by bytes.
    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>>;
}

/// How many rows the only write of a unit changed.
fn changed(committed: BoxFuture<'static, Result<Vec<PkiOutcome>>>) -> BoxFuture<'static, Result<u32>> {
    let only = |outcomes: Vec<PkiOutcome>| match outcomes.as_slice() {
        [PkiOutcome::Changed(count)] => Ok(*count),
        _ => Err(Error::internal("the store answered another write")),
    };
    committed.map(move |outcomes| outcomes.and_then(only)).boxed()
}
