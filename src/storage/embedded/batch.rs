//! Dispatch of the writes of a unit to their domains.

use rusqlite::Connection;

use super::mounts::MountCache;
use super::query::{SqliteError, resolve};
use super::{auth, pki, session};
use crate::storage::backend::{Outcomes, WriteUnit};
use crate::storage::tables::{documents, facts};

/// Runs the writes of a unit in order. After a failure the caller must undo the writes and restore `touched`.
pub(super) fn apply_unit(db: &Connection, touched: &mut MountCache, unit: &WriteUnit) -> Result<Outcomes, SqliteError> {
    match unit {
        WriteUnit::Pki(writes) => {
            let outcomes = writes.iter().map(|write| pki::write(db, touched, write));
            outcomes.collect::<Result<_, _>>().map(Outcomes::Pki)
        }
        WriteUnit::Auth { writes, now } => {
            let outcomes = writes.iter().map(|write| auth::write(db, touched, write, *now));
            outcomes.collect::<Result<_, _>>().map(Outcomes::Auth)
        }
        WriteUnit::Documents(writes) => {
            for write in writes {
                touched.mount(db, write.key.mount)?;
                resolve(documents::write(db, write))?;
            }
            Ok(Outcomes::Done)
        }
        WriteUnit::Facts(facts) => {
            resolve(facts::write(db, facts))?;
            Ok(Outcomes::Done)
        }
        WriteUnit::Work(_, work) => {
            session::in_savepoint(db, work)?;
            Ok(Outcomes::Done)
        }
    }
}
