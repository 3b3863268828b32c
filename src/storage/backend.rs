//! The interface between the store and a database engine: units of writes, their outcomes, and the reads of the store
//! itself. The reads of each domain are in the domain's own trait.
//!
//! A [`StoreBackend`] is the single writer. The commit actor owns it and passes it whole batches. Reads run on other
//! connections, so they never wait for a commit. Engines only see sealed bodies.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::auth::store::{AuthOutcome, AuthWrite};
use crate::clock::Time;
use crate::documents::{DocumentWrite, MountId};
use crate::error::{Error, Result};
use crate::pki::store::{PkiOutcome, PkiWrite};
use crate::rationing::CallerId;
use crate::sql::SqlWork;
use crate::storage::checkpoint_lock::CheckpointLock;

/// Writes of one domain that are committed together or not at all. Their bodies are sealed.
pub(crate) enum WriteUnit {
    /// Writes of the certificate authority engine.
    Pki(Vec<PkiWrite>),
    /// Writes of authentication.
    Auth {
        /// The writes, in order.
        writes: Vec<AuthWrite>,
        /// The time of the request; tokens that have expired by then are not renewed.
        now: Time,
    },
    /// Writes of a domain that only stores documents of the system scope.
    Documents(Vec<DocumentWrite>),
    /// Changes of installation facts ([`Fact`]). Units of this kind never run concurrently. The unit fails with
    /// `Conflict` if the stored value of a fact is not the expected one.
    Facts(Vec<FactWrite>),
    /// Writing work of a SQL session, for an engine with a single writer. Work that fails is rolled back and reports
    /// its failure itself. The commit queue uses the caller id to be fair between callers.
    Work(CallerId, SqlWork),
}

impl WriteUnit {
    /// `true` for a unit without writes, such as a health probe of the store's connection.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Pki(writes) => writes.is_empty(),
            Self::Auth { writes, .. } => writes.is_empty(),
            Self::Documents(writes) => writes.is_empty(),
            Self::Facts(writes) => writes.is_empty(),
            Self::Work(..) => false,
        }
    }

    /// Returns `true` if the unit drops a mount. The rows of that mount are then removed in the background.
    pub(crate) fn drops_mount(&self) -> bool {
        let drops = |write: &AuthWrite| matches!(write, AuthWrite::MountDelete(_));
        if let Self::Auth { writes, .. } = self { writes.iter().any(drops) } else { false }
    }

    /// Returns the result of a unit that was not stored because a serial number is taken.
    pub(crate) fn serial_taken_result(&self) -> Result<UnitOutcomes> {
        match self {
            Self::Pki(writes) => Ok(UnitOutcomes::Pki(writes.iter().map(|_| PkiOutcome::SerialTaken).collect())),
            _ => Err(Error::internal("defect: the store reported a duplicate serial number for a write that has none")),
        }
    }
}

/// The outcomes of a unit: one for each write, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnitOutcomes {
    /// Outcomes of [`WriteUnit::Pki`].
    Pki(Vec<PkiOutcome>),
    /// Outcomes of [`WriteUnit::Auth`].
    Auth(Vec<AuthOutcome>),
    /// The unit was stored; it has no outcomes of single writes.
    Done,
}

/// The single writer of a store, which the commit actor owns.
pub(crate) trait StoreBackend: Send + Unpin + 'static {
    /// Commits a batch and returns one result per unit, in order. A unit that fails leaves no trace and does not affect
    /// the others: the backend then repeats the batch with a savepoint for each unit.
    fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<UnitOutcomes>>>;

    /// Returns the time that session work took in the last batch, without the commit.
    fn work_duration(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns `true` if background work (removing rows of dropped mounts) remains.
    fn has_background_work(&self) -> bool;

    /// Runs one short step of the background work.
    fn run_background_step(&mut self) -> BoxFuture<'_, ()>;

    /// Releases the database. The embedded engine first merges its log into the database file.
    fn close(self) -> BoxFuture<'static, Result<()>>;
}

/// An installation fact, such as the installation id or a wrapped data key: name and value.
pub(crate) type Fact = (String, Vec<u8>);

/// A change of a fact on the condition that it has the expected value (compare-and-set), or only a check of the value.
pub(crate) struct FactWrite {
    /// The fact's name.
    pub(crate) name: String,
    /// The value that the fact must have; `None` if the fact must be absent.
    pub(crate) expected: Option<Vec<u8>>,
    /// The new value; `None` leaves the fact unchanged.
    pub(crate) value: Option<Vec<u8>>,
}

impl FactWrite {
    /// Creates the write that inserts a fact, which must be absent.
    pub(crate) fn new((name, value): Fact) -> Self {
        Self { name, expected: None, value: Some(value) }
    }

    /// Creates a write on the condition that the stored value of a fact is still the value in `facts`. If `value` is
    /// `None`, the write only checks this condition; otherwise it also stores `value`.
    pub(crate) fn if_unchanged(facts: &[Fact], name: &str, value: Option<Vec<u8>>) -> Self {
        let expected = facts.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        Self { name: name.to_owned(), expected, value }
    }
}

/// A stored document whose body is still sealed.
pub(crate) struct SealedDocument {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) body: Vec<u8>,
}

/// The reads of the store itself. Like the reads of the domains, they see every write committed before they began.
pub(crate) trait StoreReader: Send + Sync + 'static {
    /// Reads all installation facts.
    fn facts(&self) -> BoxFuture<'static, Result<Vec<Fact>>>;

    /// Reads the documents of a mount: those of one kind, or all.
    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>>;

    /// Returns the lock that pauses checkpoints; `None` if the engine has no database file.
    fn checkpoint_lock(&self) -> Option<CheckpointLock> {
        None
    }

    /// Rejects later reads, including those of the domains, and releases the database.
    fn close(&self);
}

/// Converts a time to epoch microseconds, the resolution of stored times. Rounds down.
pub(crate) fn micros(at: Time) -> i64 {
    // The year 9999 is 2.6e17 µs, well within the range.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// Returns the time ten minutes before `now`, in epoch microseconds. All nodes have applied every change made before
/// it.
pub(crate) fn propagation_cutoff_micros(now: Time) -> i64 {
    micros(now).saturating_sub(600_000_000)
}

/// Converts epoch microseconds to a time; `None` outside the range of [`Time`].
pub(crate) fn from_micros(micros: i64) -> Option<Time> {
    Time::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
}

/// Rounds a time down to whole microseconds, the resolution of stored times.
pub(crate) fn round_to_micros(at: Time) -> Time {
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
            let stored = round_to_micros(at);
            prop_assert!(stored <= at && at - stored < time::Duration::MICROSECOND);
            prop_assert_eq!(round_to_micros(stored), stored);
        }
    }
}
