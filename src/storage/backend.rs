//! The interface between the store and a database engine: units of writes, their outcomes, and the reads that the store
//! itself needs. The reads of a domain are in its own trait.
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
        /// The writes.
        writes: Vec<AuthWrite>,
        /// The time of the request; tokens that have expired by then are not renewed.
        now: Time,
    },
    /// System documents of a domain that has no other writes.
    Documents(Vec<DocumentWrite>),
    /// Changes of installation facts ([`Fact`]), which never run concurrently. `Conflict` if the current value of a
    /// fact is not the expected one.
    Facts(Vec<FactWrite>),
    /// Work of a SQL session that writes, for an engine with only this one writer. Work that fails is rolled back and
    /// reports its failure itself. The caller id keeps the commit queue fair between callers.
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

    /// `true` if the unit drops a mount, whose rows are then removed in the background.
    pub(crate) fn drops_mount(&self) -> bool {
        let drops = |write: &AuthWrite| matches!(write, AuthWrite::MountDelete(_));
        if let Self::Auth { writes, .. } = self { writes.iter().any(drops) } else { false }
    }

    /// The result for a unit that was not stored because a serial number is taken.
    pub(crate) fn serial_taken(&self) -> Result<Outcomes> {
        match self {
            Self::Pki(writes) => Ok(Outcomes::Pki(writes.iter().map(|_| PkiOutcome::SerialTaken).collect())),
            _ => Err(Error::internal("defect: the store reported a duplicate serial number for a write that has none")),
        }
    }
}

/// The outcomes of a unit: one for each write, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcomes {
    /// Outcomes of [`WriteUnit::Pki`].
    Pki(Vec<PkiOutcome>),
    /// Outcomes of [`WriteUnit::Auth`].
    Auth(Vec<AuthOutcome>),
    /// A unit without individual outcomes.
    Done,
}

/// The single writer of a store.
pub(crate) trait StoreBackend: Send + Unpin + 'static {
    /// Commits a batch and returns one result per unit, in order. A unit that fails leaves no trace and does not affect
    /// the others: the backend then retries the units one by one.
    fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<Outcomes>>>;

    /// Duration of session work in the last batch, without the commit.
    fn work_duration(&self) -> Duration {
        Duration::ZERO
    }

    /// `true` if background work (removing rows of dropped mounts) is left.
    fn has_background_work(&self) -> bool;

    /// Runs one short step of the background work.
    fn run_background_step(&mut self) -> BoxFuture<'_, ()>;

    /// Releases the database. The embedded engine first merges its log into the database file.
    fn close(self) -> BoxFuture<'static, Result<()>>;
}

/// An installation fact, such as the installation id or a wrapped data key: name and value.
pub(crate) type Fact = (String, Vec<u8>);

/// A compare-and-set change of a fact, or only a comparison.
pub(crate) struct FactWrite {
    /// The fact's name.
    pub(crate) name: String,
    /// The required current value; `None` if the fact must be absent.
    pub(crate) expected: Option<Vec<u8>>,
    /// The new value; `None` leaves the fact unchanged.
    pub(crate) value: Option<Vec<u8>>,
}

impl FactWrite {
    /// Inserts a fact that must be absent.
    pub(crate) fn new((name, value): Fact) -> Self {
        Self { name, expected: None, value: Some(value) }
    }

    /// Requires that a fact is unchanged since `facts` was read, and sets a new value if there is one.
    pub(crate) fn if_unchanged(facts: &[Fact], name: &str, value: Option<Vec<u8>>) -> Self {
        let expected = facts.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        Self { name: name.to_owned(), expected, value }
    }
}

/// A document as stored, with its sealed body.
pub(crate) struct SealedDocument {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) body: Vec<u8>,
}

/// The reads of the store itself. All reads, also of the domains, see every write committed before they began.
pub(crate) trait StoreReader: Send + Sync + 'static {
    /// Reads all installation facts.
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>>;

    /// Reads the documents of a mount, of one kind or all.
    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>>;

    /// The lock that pauses checkpoints, if the engine has a database file.
    fn checkpoint_lock(&self) -> Option<CheckpointLock> {
        None
    }

    /// Rejects later reads, including those of the domains, and releases the store.
    fn close(&self);
}

/// Converts to epoch microseconds, the resolution of stored times. Rounds down.
pub(crate) fn micros(at: Time) -> i64 {
    // The year 9999 is 2.6e17 µs, well within the range.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// Ten minutes before `now`, in epoch microseconds. Every node has learned of anything that ended before that time.
pub(crate) fn known_to_all_nodes_before(now: Time) -> i64 {
    micros(now).saturating_sub(600_000_000)
}

/// Converts from epoch microseconds; `None` outside the range of [`Time`].
pub(crate) fn from_micros(micros: i64) -> Option<Time> {
    Time::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
}

/// Rounds a time to the resolution of storage.
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
