//! Writes and reads of entities and their aliases.

use futures_util::future::try_join_all;

use super::{TableConnection, TableError, TableResult, column, done_or_absent, exists, swept_outcome};
use crate::auth::store::{
    AliasEntry, AliasRow, AuthOutcome, EntityBy, EntityEntry, EntityPage, EntityRow, IdentityRows,
};
use crate::clock::Time;
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, entities as sql};

pub(crate) async fn put<C: TableConnection>(db: &C, row: &EntityRow) -> TableResult<C, AuthOutcome> {
    let EntityRow { id, name, version, body, kept_until } = row.clone();
    let version = version as i64;
    let stored = if version == 1 {
        let values: [SqlValue; 5] = [id.into(), name.into(), version.into(), body.into(), kept_until.into()];
        db.execute(sql::INSERT, &values).await?
    } else {
        let before = version - 1;
        let values: [SqlValue; 6] =
            [name.into(), version.into(), body.into(), kept_until.into(), id.into(), before.into()];
        db.execute(sql::UPDATE, &values).await?
    };
    if stored == 0 { Err(TableError::Conflict(conflict::ENTITY_CHANGED)) } else { Ok(AuthOutcome::Done) }
}

pub(crate) async fn put_alias<C: TableConnection>(db: &C, row: &AliasRow) -> TableResult<C, AuthOutcome> {
    let AliasRow { id, accessor, name, entity, version, body } = row.clone();
    if !exists(db, sql::LOCK_ENTITY, &[entity.clone().into()]).await? {
        return Err(TableError::Conflict(conflict::ENTITY_GONE));
    }
    let version = version as i64;
    let stored = if version == 1 {
        let values: [SqlValue; 6] =
            [id.into(), accessor.into(), name.into(), entity.into(), version.into(), body.into()];
        db.execute(sql::INSERT_ALIAS, &values).await?
    } else {
        let before = version - 1;
        let values: [SqlValue; 7] =
            [accessor.into(), name.into(), entity.into(), version.into(), body.into(), id.into(), before.into()];
        db.execute(sql::UPDATE_ALIAS, &values).await?
    };
    if stored == 0 { Err(TableError::Conflict(conflict::ALIAS_CHANGED)) } else { Ok(AuthOutcome::Done) }
}

pub(crate) async fn extend_retention<C: TableConnection>(db: &C, id: &str, until: Time) -> TableResult<C, AuthOutcome> {
    let extended = db.execute(sql::EXTEND_RETENTION, &[until.into(), id.into()]).await? > 0;
    Ok(done_or_absent(extended || exists(db, sql::EXISTS, &[id.into()]).await?))
}

pub(crate) async fn delete<C: TableConnection>(db: &C, id: &str) -> TableResult<C, AuthOutcome> {
    Ok(done_or_absent(delete_all(db, vec![id.to_owned()]).await? > 0))
}

/// Removes entities with their aliases, and returns the number of removed entities. The entities are removed before the
/// aliases, so that a concurrent insert of another alias waits.
async fn delete_all<C: TableConnection>(db: &C, ids: Vec<String>) -> TableResult<C, u64> {
    let ids: [SqlValue; 1] = [ids.into()];
    let found = db.execute(sql::DELETE_ALL, &ids).await?;
    db.execute(sql::DELETE_ALIASES_OF_ALL, &ids).await?;
    Ok(found)
}

pub(crate) async fn delete_alias<C: TableConnection>(db: &C, id: &str) -> TableResult<C, AuthOutcome> {
    Ok(done_or_absent(db.execute(sql::DELETE_ALIAS, &[id.into()]).await? > 0))
}

/// Examines expired entities: removes those without tokens, and keeps the others until their last token expires. The
/// outcome contains the number of examined entities.
pub(crate) async fn sweep<C: TableConnection>(
    db: &C,
    now: Time,
    again: Time,
    limit: u32,
) -> TableResult<C, AuthOutcome> {
    let mut ended: Vec<String> = column(db, sql::SELECT_EXPIRED, &[now.into(), i64::from(limit).into()]).await?;
    let examined = swept_outcome(ended.len() as u64);
    if ended.is_empty() {
        return Ok(examined);
    }
    let again = micros(again);
    let mut extensions: Vec<[SqlValue; 2]> = Vec::new();
    for mut row in db.rows(sql::LAST_TOKEN_EXPIRIES, &[again.into(), ended.clone().into()]).await? {
        let id: String = row.get()?;
        let last: i64 = row.get()?;
        ended.retain(|other| *other != id);
        extensions.push([last.max(again).into(), id.into()]);
    }
    // The statements run concurrently, because an engine may pipeline them.
    try_join_all(extensions.iter().map(|values| db.execute(sql::EXTEND_RETENTION, values))).await?;
    delete_all(db, ended).await?;
    Ok(examined)
}

pub(crate) async fn identity<C: TableConnection>(db: &C, by: EntityBy) -> TableResult<C, Option<IdentityRows>> {
    let found = match by {
        EntityBy::Id(id) => db.rows(sql::BY_ID, &[id.into()]).await?,
        EntityBy::Name(name) => db.rows(sql::BY_NAME, &[name.into()]).await?,
        EntityBy::AliasId(id) => db.rows(sql::BY_ALIAS_ID, &[id.into()]).await?,
        EntityBy::Alias { accessor, name } => db.rows(sql::BY_ALIAS, &[accessor.into(), name.into()]).await?,
    };
    let mut identity: Option<IdentityRows> = None;
    for mut row in found {
        let entity = read_entity(&mut row)?;
        let alias = read_alias(&mut row, entity.id.clone())?;
        identity.get_or_insert_with(|| IdentityRows { entity, aliases: Vec::new() }).aliases.extend(alias);
    }
    Ok(identity)
}

fn read_entity(row: &mut SqlRow) -> Result<EntityRow, SqlError> {
    Ok(EntityRow { id: row.get()?, name: row.get()?, version: row.get()?, body: row.get()?, kept_until: row.get()? })
}

/// Reads the alias columns of a row, which are NULL if the entity has no alias.
fn read_alias(row: &mut SqlRow, entity: String) -> Result<Option<AliasRow>, SqlError> {
    let Some(id) = row.get()? else { return Ok(None) };
    let accessor = row.get()?;
    let name = row.get()?;
    Ok(Some(AliasRow { id, accessor, name, entity, version: row.get()?, body: row.get()? }))
}

pub(crate) async fn page<C: TableConnection>(db: &C, page: EntityPage) -> TableResult<C, Vec<EntityEntry>> {
    let sql = if page.by_name { sql::PAGE_BY_NAME } else { sql::PAGE_BY_ID };
    let mut entries: Vec<EntityEntry> = Vec::new();
    for mut row in db.rows(sql, &[page.after.into(), i64::from(page.limit).into()]).await? {
        let id: String = row.get()?;
        let name = row.get()?;
        if entries.last().is_none_or(|last| last.id != id) {
            entries.push(EntityEntry { id: id.clone(), name, aliases: Vec::new() });
        }
        if let (Some(entry), Some(alias)) = (entries.last_mut(), row.get()?) {
            entry.aliases.push(AliasEntry { id: alias, accessor: row.get()?, name: row.get()?, entity: id });
        }
    }
    Ok(entries)
}

pub(crate) async fn aliases<C: TableConnection>(db: &C, after: String, limit: u32) -> TableResult<C, Vec<AliasEntry>> {
    let found = db.rows(sql::ALIASES, &[after.into(), i64::from(limit).into()]).await?;
    let read =
        |mut row: SqlRow| Ok(AliasEntry { id: row.get()?, accessor: row.get()?, name: row.get()?, entity: row.get()? });
    found.into_iter().map(read).collect()
}
