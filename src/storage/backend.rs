//! The seam between the store and a database engine: units of writes, what became of them, and the few reads
//! that the store itself needs of every engine. What a domain reads is that domain's own trait.
//!
//! A [`Backend`] is the single writer; the commit actor owns it and feeds it whole batches. Reads run beside
//! it, so that a read never queues behind a commit. Bodies of documents, tokens and attachments are sealed
//! before they come here and opened after they leave: no engine ever sees a plain one.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::auth::store::{AuthOutcome, AuthWrite};
use crate::clock::Time;
use crate::documents::{DocumentWrite, MountId};
use crate::error::{Error, Result};
use crate::pki::store::{PkiOutcome, PkiWrite};
use crate::sql::Work;
use crate::storage::file_hold::FileHold;
use crate::turns::Asker;

/// Writes that happen together or not at all. They are of one domain, with their bodies sealed.
pub(crate) enum Unit {
    /// The certificate authority engine's.
    Pki(Vec<PkiWrite>),
    /// Authentication's.
    Auth {
        /// The writes.
        writes: Vec<AuthWrite>,
        /// When they were asked for: a token that has ended by then is not renewed.
        now: Time,
    },
    /// System documents, of a domain that has nothing else.
    Documents(Vec<DocumentWrite>),
    /// Changes of the installation's facts; `Conflict` when one of them is not as it was read. Two such units take
    /// turns.
    Facts(Vec<FactWrite>),
    /// Work of a session of SQL, where the engine has no sessions of its own for it. What it refuses it
    /// undoes, and tells on its own way. Of several each asker's are done in turn.
    Work(Asker, Work),
}

impl Unit {
    /// `true` for a unit that writes nothing, as that of a health probe, which asks whether the store can be reached.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Pki(writes) => writes.is_empty(),
            Self::Auth { writes, .. } => writes.is_empty(),
            Self::Documents(writes) => writes.is_empty(),
            Self::Facts(writes) => writes.is_empty(),
            Self::Work(..) => false,
        }
    }

    /// Whether it ends a mount: its rows are then background work.
    pub(crate) fn drops_mount(&self) -> bool {
        let drops = |write: &AuthWrite| matches!(write, AuthWrite::MountDrop(_));
        if let Self::Auth { writes, .. } = self { writes.iter().any(drops) } else { false }
    }

    /// What is answered when a serial of it is taken, and so nothing of it was stored.
    pub(crate) fn serial_taken(&self) -> Result<Outcomes> {
        match self {
            Self::Pki(writes) => Ok(Outcomes::Pki(writes.iter().map(|_| PkiOutcome::SerialTaken).collect())),
            _ => Err(Error::internal("a serial is taken where there is none")),
        }
    }
}

/// What became of a unit: an outcome for each write, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcomes {
    /// Of [`Unit::Pki`].
    Pki(Vec<PkiOutcome>),
    /// Of [`Unit::Auth`].
    Auth(Vec<AuthOutcome>),
    /// Of a unit that has nothing to tell.
    Done,
}

/// The one writer of a store.
pub(crate) trait Backend: Send + Unpin + 'static {
    /// Makes a batch durable in one commit and answers each unit in order. A unit that fails leaves
    /// nothing behind and does not touch the others: the backend replays the units singly then.
    fn apply(&mut self, units: Vec<Unit>) -> BoxFuture<'_, Vec<Result<Outcomes>>>;

    /// How long the work of sessions took in the last batch, the commit not counted.
    fn worked(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether background work (rows of dropped mounts) is left to do.
    fn has_chores(&self) -> bool;

    /// One short step of the background work.
    fn chore(&mut self) -> BoxFuture<'_, ()>;

    /// Brings everything into the main store and lets go of it.
    fn close(self) -> BoxFuture<'static, Result<()>>;
}

/// One of the installation's own facts (its id, a wrapped data key): name and value.
pub(crate) type Fact = (String, Vec<u8>);

/// A change of a fact, or the condition that it is as it was.
pub(crate) struct FactWrite {
    /// Its name.
    pub(crate) name: String,
    /// What must be stored; `None` when it must not be there.
    pub(crate) expected: Option<Vec<u8>>,
    /// What is stored then; `None` leaves it as it is.
    pub(crate) value: Option<Vec<u8>>,
}

impl FactWrite {
    /// A fact that is not there yet.
    pub(crate) fn new((name, value): Fact) -> Self {
        Self { name, expected: None, value: Some(value) }
    }

    /// That a fact is as it was read, and another value for it if there is one.
    pub(crate) fn over(facts: &[Fact], name: &str, value: Option<Vec<u8>>) -> Self {
        let expected = facts.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        Self { name: name.to_owned(), expected, value }
    }
}

/// A document as stored.
pub(crate) struct SealedDocument {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) body: Vec<u8>,
}

/// What the store itself reads, of whatever engine. Each read, as those of the domains, sees everything that
/// was answered as committed before it began.
pub(crate) trait Reader: Send + Sync + 'static {
    /// All of the installation's own facts.
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>>;

    /// The documents of a mount, of one kind or of all.
    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>>;

    /// What keeps the database file as it is, where the engine has one.
    fn file_hold(&self) -> Option<FileHold> {
        None
    }

    /// Refuses all later reads, the domains' too, and lets go of the store.
    fn close(&self);
}

/// Epoch microseconds, rounded down: the resolution of stored times.
pub(crate) fn micros(at: Time) -> i64 {
    // Years up to 9999 are 2.6e17 µs: far inside the range.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// Epoch microseconds: of what ended before, every node has heard by `now`.
pub(crate) fn forgotten_before(now: Time) -> i64 {
    micros(now).saturating_sub(600_000_000)
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
