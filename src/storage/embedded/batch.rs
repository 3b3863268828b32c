//! Runs the writes of a unit, each with the code of its domain.

use rusqlite::Connection;

use super::query::{SqliteError, resolve_ready};
use super::session;
use super::transaction::{MountCache, SqliteTransaction};
use crate::storage::backend::{UnitOutcomes, WriteUnit};
use crate::storage::tables::{documents, facts};
use crate::storage::{auth, pki};

/// Runs the writes of a unit in order. After a failure the caller must roll back and restore the previous state of the
/// cache `known`.
pub(super) fn apply_unit(
    db: &Connection,
    known: &mut MountCache,
    unit: &WriteUnit,
) -> Result<UnitOutcomes, SqliteError> {
    let mut tx = SqliteTransaction { db, known };
    match unit {
        WriteUnit::Pki(writes) => {
            let outcomes = writes.iter().map(|write| match tx.insert(write)? {
                Some(outcome) => Ok(outcome),
                None => resolve_ready(pki::write(&mut tx, write)),
            });
            outcomes.collect::<Result<_, _>>().map(UnitOutcomes::Pki)
        }
        WriteUnit::Auth { writes, now } => {
            let outcomes = writes.iter().map(|write| resolve_ready(auth::write(&mut tx, write, *now)));
            outcomes.collect::<Result<_, _>>().map(UnitOutcomes::Auth)
        }
        WriteUnit::Documents(writes) => {
            for write in writes {
                resolve_ready(documents::write_in(&mut tx, write))?;
            }
            Ok(UnitOutcomes::Done)
        }
        WriteUnit::Facts(facts) => {
            resolve_ready(facts::write(db, facts))?;
            Ok(UnitOutcomes::Done)
        }
        WriteUnit::Work(_, work) => {
            session::run_work_in_savepoint(db, work)?;
            Ok(UnitOutcomes::Done)
        }
    }
}
