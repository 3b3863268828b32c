//! Runs the units of one transaction in order, each with the code of its domain. New rows of certificates, of the
//! records that belong to them, and of revocations are collected, and inserted at the end with one statement per table,
//! followed by the counters.
//!
//! A unit that can fail half-way runs inside a savepoint. Any caller can repeat an idempotency key, so units with a
//! repeated key are found before anything is sent (`recorded_responses`). Other failures, such as a taken serial number
//! or a missing mount, appear only at the end. Then the transaction is repeated with a savepoint for every unit.

use super::collected_rows::{OutcomePosition, SendOrder};
use super::query::{PostgresClient, PostgresError, execute};
use super::recorded_responses;
use super::transaction::Transaction;
use crate::documents::SYSTEM_MOUNT;
use crate::error::Result;
use crate::pki::store::{PkiOutcome, StoredRevocation};
use crate::storage::backend::{UnitOutcomes, WriteUnit};
use crate::storage::engine::WriteTransaction as _;
use crate::storage::tables::{documents, facts};
use crate::storage::{auth, pki};

/// Locks the facts, so that a concurrent transaction cannot change a fact between the check of its value and the write.
const LOCK_FACTS: &str = "UPDATE meta SET value = value WHERE name = 'installation'";

pub(super) type UnitResults = Vec<Result<UnitOutcomes>>;

pub(super) struct WriteBatch<'a> {
    tx: Transaction<'a>,
    /// `true` if every unit runs in its own savepoint.
    with_savepoints: bool,
    answers: UnitResults,
}

impl<'a> WriteBatch<'a> {
    pub(super) fn new(db: &'a PostgresClient, node: i64, counter: i64, with_savepoints: bool) -> Self {
        Self { tx: Transaction::new(db, node, counter), with_savepoints, answers: Vec::new() }
    }

    /// Runs all statements between BEGIN and COMMIT.
    pub(super) async fn run(mut self, units: &'a [WriteUnit]) -> Result<UnitResults, PostgresError> {
        let repeats = recorded_responses::find_repeated_units(self.tx.db, units).await?;
        for (at, unit) in units.iter().enumerate() {
            let answer = if repeats.contains(&at) {
                unit.serial_taken_result()
            } else if self.with_savepoints || can_fail_halfway(unit) {
                self.run_in_savepoint(unit).await?
            } else {
                self.run_without_savepoint(unit).await?
            };
            self.answers.push(answer);
        }
        let Self { tx, mut answers, .. } = self;
        fill_outcomes(tx.finish().await?, &mut answers);
        Ok(answers)
    }

    /// Runs a unit whose failure leaves nothing in the database to undo.
    async fn run_without_savepoint(&mut self, unit: &'a WriteUnit) -> Result<Result<UnitOutcomes>, PostgresError> {
        if any_write(unit, |order| self.tx.collected.must_flush_before(order)) {
            self.tx.flush().await?;
        }
        let before = self.tx.collected.mark();
        match self.run_unit(unit).await {
            Ok(outcomes) => Ok(Ok(outcomes)),
            Err(failure @ PostgresError::Conflict(_)) => {
                self.tx.collected.truncate_to(before);
                Ok(unit_result(failure, unit))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Runs a unit inside a savepoint. First sends the collected rows of earlier units if necessary, because a rollback
    /// to the savepoint must not affect them.
    async fn run_in_savepoint(&mut self, unit: &'a WriteUnit) -> Result<Result<UnitOutcomes>, PostgresError> {
        let flushes = self.with_savepoints || any_write(unit, |order| self.tx.collected.must_flush_before(order));
        if flushes {
            self.tx.flush().await?;
        }
        let before = self.tx.savepoint().await?;
        let mut result = self.run_unit(unit).await;
        if flushes && result.is_ok() {
            result = self.tx.flush().await.and(result);
        }
        match result {
            Ok(outcomes) => {
                self.tx.release_savepoint().await?;
                Ok(Ok(outcomes))
            }
            Err(failure) if failure.concerns_one_unit() => {
                self.tx.roll_back_to(before).await?;
                Ok(unit_result(failure, unit))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn run_unit(&mut self, unit: &'a WriteUnit) -> Result<UnitOutcomes, PostgresError> {
        let index = self.answers.len();
        let tx = &mut self.tx;
        match unit {
            WriteUnit::Pki(writes) => {
                let mut outcomes = Vec::with_capacity(writes.len());
                for (at, write) in writes.iter().enumerate() {
                    flush_if_needed(tx, SendOrder::of_pki_write(write)).await?;
                    let collected = tx.collect(OutcomePosition(index, at), write).await?;
                    outcomes.push(if collected { PkiOutcome::Done } else { pki::write(tx, write).await? });
                }
                Ok(UnitOutcomes::Pki(outcomes))
            }
            WriteUnit::Auth { writes, now } => {
                let mut outcomes = Vec::with_capacity(writes.len());
                for write in writes {
                    flush_if_needed(tx, SendOrder::of_auth_write(write)).await?;
                    outcomes.push(auth::write(tx, write, *now).await?);
                }
                Ok(UnitOutcomes::Auth(outcomes))
            }
            WriteUnit::Documents(writes) => {
                for write in writes {
                    flush_if_needed(tx, SendOrder::Immediate).await?;
                    documents::write_in(tx, write).await?;
                }
                Ok(UnitOutcomes::Done)
            }
            WriteUnit::Facts(facts) => {
                execute(tx.db, LOCK_FACTS, &[]).await?;
                facts::write(tx.db, facts).await?;
                // Data keys are facts. An entry of the system scope in the change log makes other nodes load them
                // again.
                tx.mark_documents(SYSTEM_MOUNT);
                Ok(UnitOutcomes::Done)
            }
            // In this engine, session work has its own connections and is never part of a batch.
            WriteUnit::Work(..) => {
                Err(PostgresError::Unreadable("defect: a batch for PostgreSQL contains session work"))
            }
        }
    }
}

/// Sends the collected rows if a write depends on them.
async fn flush_if_needed(tx: &mut Transaction<'_>, order: SendOrder) -> Result<(), PostgresError> {
    if tx.collected.must_flush_before(order) { tx.flush().await } else { Ok(()) }
}

/// Puts the stored revocations into the outcomes of the writes that inserted them. Skips units that were rejected and
/// have no outcomes.
fn fill_outcomes(revoked: Vec<(OutcomePosition, StoredRevocation, bool)>, answers: &mut UnitResults) {
    for (OutcomePosition(unit, at), stored, fresh) in revoked {
        if let Some(Ok(UnitOutcomes::Pki(outcomes))) = answers.get_mut(unit)
            && let Some(outcome) = outcomes.get_mut(at)
        {
            *outcome = PkiOutcome::Revoked { stored, fresh };
        }
    }
}

fn unit_result(failure: PostgresError, unit: &WriteUnit) -> Result<UnitOutcomes> {
    match failure {
        PostgresError::SerialTaken => unit.serial_taken_result(),
        other => Err(other.into_write_error()),
    }
}

/// Returns `true` if `is` returns `true` for the send order of any write of the unit.
fn any_write(unit: &WriteUnit, is: impl Fn(SendOrder) -> bool) -> bool {
    match unit {
        WriteUnit::Pki(writes) => writes.iter().any(|write| is(SendOrder::of_pki_write(write))),
        WriteUnit::Auth { writes, .. } => writes.iter().any(|write| is(SendOrder::of_auth_write(write))),
        WriteUnit::Documents(_) | WriteUnit::Facts(_) | WriteUnit::Work(..) => is(SendOrder::Immediate),
    }
}

/// Returns `true` if a write of the unit may have to be undone because a later write fails. Rows that are only
/// collected need no undo. A single write whose condition fails leaves nothing to undo, except if it has several steps.
fn can_fail_halfway(unit: &WriteUnit) -> bool {
    let several = match unit {
        WriteUnit::Pki(writes) => writes.len() > 1,
        WriteUnit::Auth { writes, .. } => writes.len() > 1,
        WriteUnit::Documents(writes) => writes.len() > 1,
        WriteUnit::Facts(facts) => facts.len() > 1,
        WriteUnit::Work(..) => false,
    };
    several && any_write(unit, |order| order != SendOrder::Collected)
        || any_write(unit, |order| order == SendOrder::AfterAll)
}
