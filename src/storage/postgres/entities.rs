//! SQL of entities and their aliases.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::query::{PostgresClient, PostgresError, count, execute, exists, rows, time};
use crate::auth::store::{AliasEntry, AliasRow, EntityBy, EntityEntry, EntityPage, EntityRow, IdentityRows};
use crate::clock::Time;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, entities as sql};

/// Locks an entity until its alias is committed: a concurrent removal waits, and then finds the alias.
const LOCK_ENTITY: &str = "SELECT 1 FROM entity WHERE id = $1 FOR KEY SHARE";
/// Concurrent sweeps of several nodes take different entities.
const SELECT_EXPIRED: &str = "SELECT id FROM entity WHERE kept_until_micros <= $1 ORDER BY kept_until_micros LIMIT $2
    FOR UPDATE SKIP LOCKED";
/// The expiry of the last token of each entity that has one; `$1` if one has no expiry.
const SELECT_LAST_TOKEN_EXPIRIES: &str = "SELECT entity, MAX(COALESCE(expires_at_micros, $1)) FROM token
    WHERE entity = ANY($2) GROUP BY entity";
const EXTEND_RETENTIONS: &str = "UPDATE entity SET kept_until_micros = kept.until
    FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS kept (id, until) WHERE entity.id = kept.id";
const DROP_ALL: &str = "DELETE FROM entity WHERE id = ANY($1)";
const DROP_ALL_ALIASES: &str = "DELETE FROM entity_alias WHERE entity = ANY($1)";

pub(super) async fn put(db: &PostgresClient, row: &EntityRow) -> Result<(), PostgresError> {
    let version = row.version as i64;
    let before = row.version as i64 - 1;
    let kept_until = row.kept_until.map(micros);
    let stored = if version == 1 {
        execute(db, sql::INSERT, &[&row.id, &row.name, &version, &row.body, &kept_until]).await?
    } else {
        execute(db, sql::UPDATE, &[&row.name, &version, &row.body, &kept_until, &row.id, &before]).await?
    };
    if stored == 0 { Err(PostgresError::Conflict(conflict::ENTITY_CHANGED)) } else { Ok(()) }
}

pub(super) async fn put_alias(db: &PostgresClient, row: &AliasRow) -> Result<(), PostgresError> {
    if !exists(db, LOCK_ENTITY, &[&row.entity]).await? {
        return Err(PostgresError::Conflict(conflict::ENTITY_GONE));
    }
    let version = row.version as i64;
    let before = row.version as i64 - 1;
    let stored = if version == 1 {
        let values: [&(dyn ToSql + Sync); 6] = [&row.id, &row.accessor, &row.name, &row.entity, &version, &row.body];
        execute(db, sql::INSERT_ALIAS, &values).await?
    } else {
        let values: [&(dyn ToSql + Sync); 7] =
            [&row.accessor, &row.name, &row.entity, &version, &row.body, &row.id, &before];
        execute(db, sql::UPDATE_ALIAS, &values).await?
    };
    if stored == 0 { Err(PostgresError::Conflict(conflict::ALIAS_CHANGED)) } else { Ok(()) }
}

/// Returns `true` if the entity exists.
pub(super) async fn extend_retention(db: &PostgresClient, id: &str, until: Time) -> Result<bool, PostgresError> {
    Ok(execute(db, sql::KEEP, &[&micros(until), &id]).await? > 0 || exists(db, sql::EXISTS, &[&id]).await?)
}

/// Returns `true` if the entity existed. Removed before its aliases, so that an insert of an alias waits for it.
pub(super) async fn drop_entity(db: &PostgresClient, id: &str) -> Result<bool, PostgresError> {
    let found = execute(db, sql::DROP, &[&id]).await? > 0;
    execute(db, sql::DROP_ALIASES, &[&id]).await?;
    Ok(found)
}

/// Returns `true` if the alias existed.
pub(super) async fn drop_alias(db: &PostgresClient, id: &str) -> Result<bool, PostgresError> {
    Ok(execute(db, sql::DROP_ALIAS, &[&id]).await? > 0)
}

/// Returns the number of entities that were examined.
pub(super) async fn sweep(db: &PostgresClient, now: Time, again: Time, limit: u32) -> Result<u32, PostgresError> {
    let ended = rows(db, SELECT_EXPIRED, &[&micros(now), &i64::from(limit)]).await?;
    let ended: Vec<String> = ended.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if ended.is_empty() {
        return Ok(0);
    }
    let again = micros(again);
    let mut living = Vec::new();
    let mut ends = Vec::new();
    for row in rows(db, SELECT_LAST_TOKEN_EXPIRIES, &[&again, &ended]).await? {
        living.push(row.try_get::<_, String>(0)?);
        ends.push(row.try_get::<_, i64>(1)?.max(again));
    }
    execute(db, EXTEND_RETENTIONS, &[&living, &ends]).await?;
    let gone: Vec<&String> = ended.iter().filter(|id| !living.contains(id)).collect();
    execute(db, DROP_ALL, &[&gone]).await?;
    execute(db, DROP_ALL_ALIASES, &[&gone]).await?;
    Ok(count(ended.len() as u64))
}

pub(super) async fn identity(db: &PostgresClient, by: EntityBy) -> Result<Option<IdentityRows>, PostgresError> {
    let found = match &by {
        EntityBy::Id(id) => rows(db, sql::BY_ID, &[id]).await?,
        EntityBy::Name(name) => rows(db, sql::BY_NAME, &[name]).await?,
        EntityBy::AliasId(id) => rows(db, sql::BY_ALIAS_ID, &[id]).await?,
        EntityBy::Alias { accessor, name } => rows(db, sql::BY_ALIAS, &[accessor, name]).await?,
    };
    let Some(first) = found.first() else { return Ok(None) };
    let entity = entity(first)?;
    let aliases = found.iter().filter_map(|row| alias(row, &entity.id).transpose()).collect::<Result<_, _>>()?;
    Ok(Some(IdentityRows { entity, aliases }))
}

fn entity(row: &Row) -> Result<EntityRow, PostgresError> {
    Ok(EntityRow {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        version: row.try_get::<_, i64>(2)? as u64,
        body: row.try_get(3)?,
        kept_until: row.try_get::<_, Option<i64>>(4)?.map(time).transpose()?,
    })
}

fn alias(row: &Row, entity: &str) -> Result<Option<AliasRow>, PostgresError> {
    let Some(id) = row.try_get(5)? else { return Ok(None) };
    Ok(Some(AliasRow {
        id,
        accessor: row.try_get(6)?,
        name: row.try_get(7)?,
        entity: entity.to_owned(),
        version: row.try_get::<_, i64>(8)? as u64,
        body: row.try_get(9)?,
    }))
}

pub(super) async fn page(db: &PostgresClient, page: EntityPage) -> Result<Vec<EntityEntry>, PostgresError> {
    let sql = if page.by_name { sql::PAGE_BY_NAME } else { sql::PAGE_BY_ID };
    let mut entries: Vec<EntityEntry> = Vec::new();
    for row in rows(db, sql, &[&page.after, &i64::from(page.limit)]).await? {
        let id: String = row.try_get(0)?;
        if entries.last().is_none_or(|last| last.id != id) {
            entries.push(EntityEntry { id: id.clone(), name: row.try_get(1)?, aliases: Vec::new() });
        }
        if let (Some(entry), Some(alias)) = (entries.last_mut(), row.try_get(2)?) {
            entry.aliases.push(AliasEntry { id: alias, accessor: row.try_get(3)?, name: row.try_get(4)?, entity: id });
        }
    }
    Ok(entries)
}

pub(super) async fn aliases(db: &PostgresClient, after: String, limit: u32) -> Result<Vec<AliasEntry>, PostgresError> {
    let found = rows(db, sql::ALIASES, &[&after, &i64::from(limit)]).await?;
    let entry = |row: &Row| {
        Ok(AliasEntry {
            id: row.try_get(0)?,
            accessor: row.try_get(1)?,
            name: row.try_get(2)?,
            entity: row.try_get(3)?,
        })
    };
    found.iter().map(entry).collect()
}
