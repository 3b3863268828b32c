//! The installation's own facts: its id and its wrapped data keys.

use super::query::{Failure, Session, execute, rows};
use crate::storage::backend::Fact;
use crate::storage::statements::{conflict, meta as sql};

pub(super) async fn insert(db: &Session, name: &str, value: &[u8]) -> Result<(), Failure> {
    match execute(db, sql::INSERT, &[&name, &value]).await? {
        0 => Err(Failure::Conflict(conflict::DATA_KEYS_CHANGED)),
        _ => Ok(()),
    }
}

pub(super) async fn all(db: &Session) -> Result<Vec<Fact>, Failure> {
    rows(db, sql::LIST, &[]).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
