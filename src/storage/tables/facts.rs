//! Writes and reads of installation facts, such as the installation id and the wrapped keys.

use super::{TableConnection, TableError, TableResult, exists};
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::{Fact, FactWrite};
use crate::storage::statements::{conflict, meta as sql};

pub(crate) async fn write<C: TableConnection>(db: &C, facts: &[FactWrite]) -> TableResult<C, ()> {
    for FactWrite { name, expected, value } in facts {
        let name: SqlValue = name.clone().into();
        let holds = match (expected.clone(), value.clone().or(expected.clone())) {
            (None, Some(value)) => db.execute(sql::INSERT, &[name, value.into()]).await? == 1,
            (Some(expected), Some(value)) => {
                db.execute(sql::UPDATE, &[value.into(), name, expected.into()]).await? == 1
            }
            (_, None) => !exists(db, sql::EXISTS, &[name]).await?,
        };
        if !holds {
            return Err(TableError::Conflict(conflict::DATA_KEYS_CHANGED));
        }
    }
    Ok(())
}

pub(crate) async fn all<C: TableConnection>(db: &C) -> TableResult<C, Vec<Fact>> {
    let read = |mut row: SqlRow| Ok::<_, SqlError>((row.get()?, row.get()?));
    Ok(db.rows(sql::LIST, &[]).await?.into_iter().map(read).collect::<Result<_, _>>()?)
}
