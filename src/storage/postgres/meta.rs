//! Installation facts: the installation id, the wrapped keys, and their usage.

use super::query::{PostgresClient, PostgresError, execute, exists, rows};
use crate::storage::backend::{Fact, FactWrite};
use crate::storage::statements::{conflict, meta as sql};

/// Serializes changes of facts, so that concurrent transactions cannot invalidate the conditions of each other.
const LOCK_FACTS: &str = "UPDATE meta SET value = value WHERE name = 'installation'";

pub(super) async fn write(db: &PostgresClient, facts: &[FactWrite]) -> Result<(), PostgresError> {
    execute(db, LOCK_FACTS, &[]).await?;
    for FactWrite { name, expected, value } in facts {
        let holds = match (expected, value.as_ref().or(expected.as_ref())) {
            (None, Some(value)) => execute(db, sql::INSERT, &[name, value]).await? == 1,
            (Some(expected), Some(value)) => execute(db, sql::UPDATE, &[value, name, expected]).await? == 1,
            (_, None) => !exists(db, sql::EXISTS, &[name]).await?,
        };
        if !holds {
            return Err(PostgresError::Conflict(conflict::DATA_KEYS_CHANGED));
        }
    }
    Ok(())
}

pub(super) async fn all(db: &PostgresClient) -> Result<Vec<Fact>, PostgresError> {
    rows(db, sql::LIST, &[]).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
