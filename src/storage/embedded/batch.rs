//! Dispatch of the writes of a unit to their domains.

use rusqlite::Connection;

use super::mounts::Touched;
use super::query::Failure;
use super::{auth, documents, meta, pki, session};
use crate::storage::backend::{Outcomes, Unit};

/// Runs the writes of a unit in order. After a failure the caller must undo the writes and restore `touched`.
pub(super) fn unit(db: &Connection, touched: &mut Touched, unit: &Unit) -> Result<Outcomes, Failure> {
    match unit {
        Unit::Pki(writes) => {
            let outcomes = writes.iter().map(|write| pki::write(db, touched, write));
            outcomes.collect::<Result<_, _>>().map(Outcomes::Pki)
        }
        Unit::Auth { writes, now } => {
            let outcomes = writes.iter().map(|write| auth::write(db, touched, write, *now));
            outcomes.collect::<Result<_, _>>().map(Outcomes::Auth)
        }
        Unit::Documents(writes) => {
            for write in writes {
                touched.mount(db, write.key.mount)?;
                documents::write(db, write)?;
            }
            Ok(Outcomes::Done)
        }
        Unit::Facts(facts) => {
            facts.iter().try_for_each(|fact| meta::write(db, fact))?;
            Ok(Outcomes::Done)
        }
        Unit::Work(_, work) => {
            session::in_savepoint(db, work)?;
            Ok(Outcomes::Done)
        }
    }
}
