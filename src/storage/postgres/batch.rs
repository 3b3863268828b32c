//! The units of one transaction, in order, dispatched to their domains. Certificates with their records, and
//! revocations, are collected and sent in one statement each at the end, followed by the counters.
//!
//! A unit that can fail half-way runs inside a savepoint. Repeated requests, which any caller can send, are found
//! before anything is sent (`answered`). Other failures appear only at the end, such as a taken serial or a missing
//! mount. Then the transaction is rolled back, and repeated with a savepoint for every unit.

use super::gathered::{Place, Turn};
use super::query::{Failure, Session};
use super::transaction::Transaction;
use super::{answered, auth, meta, pki};
use crate::documents::SYSTEM;
use crate::error::Result;
use crate::pki::store::{PkiOutcome, StoredRevocation};
use crate::storage::backend::{Outcomes, Unit};

pub(super) type Answers = Vec<Result<Outcomes>>;

pub(super) struct Batch<'a> {
    tx: Transaction<'a>,
    /// `true` if every unit gets a savepoint.
    careful: bool,
    answers: Answers,
}

impl<'a> Batch<'a> {
    pub(super) fn new(db: &'a Session, node: i64, counter: i64, careful: bool) -> Self {
        Self { tx: Transaction::new(db, node, counter), careful, answers: Vec::new() }
    }

    /// Runs everything between BEGIN and COMMIT.
    pub(super) async fn run(mut self, units: &'a [Unit]) -> Result<Answers, Failure> {
        let repeats = answered::repeats(self.tx.db, units).await?;
        for (at, unit) in units.iter().enumerate() {
            let answer = if repeats.contains(&at) {
                unit.serial_taken()
            } else if self.careful || fails_half_way(unit) {
                self.guarded(unit).await?
            } else {
                self.plain(unit).await?
            };
            self.answers.push(answer);
        }
        let Self { tx, mut answers, .. } = self;
        put_in_place(tx.finish().await?, &mut answers);
        Ok(answers)
    }

    /// Runs a unit that leaves nothing to undo when it fails.
    async fn plain(&mut self, unit: &'a Unit) -> Result<Result<Outcomes>, Failure> {
        if any(unit, |turn| self.tx.gathered.holds_up(turn)) {
            self.tx.flush().await?;
        }
        let before = self.tx.gathered.mark();
        match self.unit(unit).await {
            Ok(outcomes) => Ok(Ok(outcomes)),
            Err(failure @ Failure::Conflict(_)) => {
                self.tx.gathered.back_to(before);
                Ok(refusal(failure, unit))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Runs a unit inside a savepoint. Collected rows of earlier units must be sent before it.
    async fn guarded(&mut self, unit: &'a Unit) -> Result<Result<Outcomes>, Failure> {
        let flushes = self.careful || any(unit, |turn| self.tx.gathered.holds_up(turn));
        if flushes {
            self.tx.flush().await?;
        }
        let before = self.tx.savepoint().await?;
        let mut result = self.unit(unit).await;
        if flushes && result.is_ok() {
            result = self.tx.flush().await.and(result);
        }
        match result {
            Ok(outcomes) => {
                self.tx.keep().await?;
                Ok(Ok(outcomes))
            }
            Err(failure) if failure.is_of_one_unit() => {
                self.tx.undo(before).await?;
                Ok(refusal(failure, unit))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn unit(&mut self, unit: &'a Unit) -> Result<Outcomes, Failure> {
        let (index, tx) = (self.answers.len(), &mut self.tx);
        match unit {
            Unit::Pki(writes) => {
                let mut outcomes = Vec::with_capacity(writes.len());
                for (at, write) in writes.iter().enumerate() {
                    wait(tx, pki::turn(write)).await?;
                    outcomes.push(pki::write(tx, Place(index, at), write).await?);
                }
                Ok(Outcomes::Pki(outcomes))
            }
            Unit::Auth { writes, now } => {
                let mut outcomes = Vec::with_capacity(writes.len());
                for write in writes {
                    wait(tx, auth::turn(write)).await?;
                    outcomes.push(auth::write(tx, write, *now).await?);
                }
                Ok(Outcomes::Auth(outcomes))
            }
            Unit::Documents(writes) => {
                for write in writes {
                    wait(tx, Turn::AtOnce).await?;
                    tx.document(write).await?;
                }
                Ok(Outcomes::Done)
            }
            Unit::Facts(facts) => {
                meta::write(tx.db, facts).await?;
                // Other nodes read the data keys again when the system scope has changed.
                tx.marks(SYSTEM).documents = true;
                Ok(Outcomes::Done)
            }
            // Session work has its own connections in this engine.
            Unit::Work(..) => Err(Failure::Unreadable("work of another engine")),
        }
    }
}

/// Sends the collected rows if a write depends on them.
async fn wait(tx: &mut Transaction<'_>, turn: Turn) -> Result<(), Failure> {
    if tx.gathered.holds_up(turn) { tx.flush().await } else { Ok(()) }
}

/// Puts the stored revocations into the outcomes of their writes; a rejected unit has none.
fn put_in_place(revoked: Vec<(Place, StoredRevocation, bool)>, answers: &mut Answers) {
    for (Place(unit, at), stored, fresh) in revoked {
        if let Some(Ok(Outcomes::Pki(outcomes))) = answers.get_mut(unit)
            && let Some(outcome) = outcomes.get_mut(at)
        {
            *outcome = PkiOutcome::Revoked { stored, fresh };
        }
    }
}

fn refusal(failure: Failure, unit: &Unit) -> Result<Outcomes> {
    match failure {
        Failure::SerialTaken => unit.serial_taken(),
        other => Err(other.of_write()),
    }
}

/// Returns `true` if `is` holds for any write of a unit.
fn any(unit: &Unit, is: impl Fn(Turn) -> bool) -> bool {
    match unit {
        Unit::Pki(writes) => writes.iter().any(|write| is(pki::turn(write))),
        Unit::Auth { writes, .. } => writes.iter().any(|write| is(auth::turn(write))),
        Unit::Documents(_) | Unit::Facts(_) | Unit::Work(..) => is(Turn::AtOnce),
    }
}

/// Returns `true` if a write of the unit may have to be undone because a later one fails. Collected rows are not sent
/// yet, and a single write leaves nothing behind when its condition fails, unless it has several steps.
fn fails_half_way(unit: &Unit) -> bool {
    let several = match unit {
        Unit::Pki(writes) => writes.len() > 1,
        Unit::Auth { writes, .. } => writes.len() > 1,
        Unit::Documents(writes) => writes.len() > 1,
        Unit::Facts(facts) => facts.len() > 1,
        Unit::Work(..) => false,
    };
    several && any(unit, |turn| turn != Turn::Gathered) || any(unit, |turn| turn == Turn::AfterAll)
}
