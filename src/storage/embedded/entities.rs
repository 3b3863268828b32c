//! SQL of entities and their aliases.

use rusqlite::{Connection, Row, params};

use super::query::{SqliteError, count, prepare, time};
use crate::auth::store::{AliasEntry, AliasRow, EntityBy, EntityEntry, EntityPage, EntityRow, IdentityRows};
use crate::clock::Time;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, entities as sql};

const SELECT_EXPIRED: &str = "SELECT id FROM entity WHERE kept_until_micros <= $1 ORDER BY kept_until_micros LIMIT $2";
/// The expiry of an entity's last token; `$1` if one has no expiry.
const SELECT_LAST_TOKEN_EXPIRY: &str = "SELECT MAX(COALESCE(expires_at_micros, $1)) FROM token WHERE entity = $2";

pub(super) fn put(db: &Connection, row: &EntityRow) -> Result<(), SqliteError> {
    let version = row.version as i64;
    let kept_until = row.kept_until.map(micros);
    let stored = if version == 1 {
        prepare(db, sql::INSERT)?.execute(params![row.id, row.name, version, row.body, kept_until])?
    } else {
        let values = params![row.name, version, row.body, kept_until, row.id, version - 1];
        prepare(db, sql::UPDATE)?.execute(values)?
    };
    if stored == 0 { Err(SqliteError::Conflict(conflict::ENTITY_CHANGED)) } else { Ok(()) }
}

pub(super) fn put_alias(db: &Connection, row: &AliasRow) -> Result<(), SqliteError> {
    if !prepare(db, sql::EXISTS)?.exists([&row.entity])? {
        return Err(SqliteError::Conflict(conflict::ENTITY_GONE));
    }
    let version = row.version as i64;
    let stored = if version == 1 {
        let values = params![row.id, row.accessor, row.name, row.entity, version, row.body];
        prepare(db, sql::INSERT_ALIAS)?.execute(values)?
    } else {
        let values = params![row.accessor, row.name, row.entity, version, row.body, row.id, version - 1];
        prepare(db, sql::UPDATE_ALIAS)?.execute(values)?
    };
    if stored == 0 { Err(SqliteError::Conflict(conflict::ALIAS_CHANGED)) } else { Ok(()) }
}

/// Returns `true` if the entity exists.
pub(super) fn extend_retention(db: &Connection, id: &str, until: Time) -> rusqlite::Result<bool> {
    let kept = prepare(db, sql::KEEP)?.execute(params![micros(until), id])? > 0;
    Ok(kept || prepare(db, sql::EXISTS)?.exists([id])?)
}

/// Returns `true` if the entity existed.
pub(super) fn drop_entity(db: &Connection, id: &str) -> rusqlite::Result<bool> {
    let found = prepare(db, sql::DROP)?.execute([id])? > 0;
    prepare(db, sql::DROP_ALIASES)?.execute([id])?;
    Ok(found)
}

/// Returns `true` if the alias existed.
pub(super) fn drop_alias(db: &Connection, id: &str) -> rusqlite::Result<bool> {
    Ok(prepare(db, sql::DROP_ALIAS)?.execute([id])? > 0)
}

/// Returns the number of entities that were examined.
pub(super) fn sweep(db: &Connection, now: Time, again: Time, limit: u32) -> Result<u32, SqliteError> {
    let ended: Vec<String> = prepare(db, SELECT_EXPIRED)?
        .query_map(params![micros(now), limit], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let again = micros(again);
    for id in &ended {
        let last: Option<i64> =
            prepare(db, SELECT_LAST_TOKEN_EXPIRY)?.query_row(params![again, id], |row| row.get(0))?;
        match last {
            Some(end) => drop(prepare(db, sql::KEEP)?.execute(params![end.max(again), id])?),
            None => drop(drop_entity(db, id)?),
        }
    }
    Ok(count(ended.len()))
}

pub(super) fn identity(db: &Connection, by: &EntityBy) -> rusqlite::Result<Option<IdentityRows>> {
    match by {
        EntityBy::Id(id) => query_identity(db, sql::BY_ID, &[id]),
        EntityBy::Name(name) => query_identity(db, sql::BY_NAME, &[name]),
        EntityBy::AliasId(id) => query_identity(db, sql::BY_ALIAS_ID, &[id]),
        EntityBy::Alias { accessor, name } => query_identity(db, sql::BY_ALIAS, &[accessor, name]),
    }
}

fn query_identity(db: &Connection, sql: &str, by: &[&str]) -> rusqlite::Result<Option<IdentityRows>> {
    let mut statement = prepare(db, sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(by))?;
    let mut found: Option<IdentityRows> = None;
    while let Some(row) = rows.next()? {
        let identity = match &mut found {
            Some(identity) => identity,
            none => none.insert(IdentityRows { entity: entity(row)?, aliases: Vec::new() }),
        };
        let entity = identity.entity.id.clone();
        identity.aliases.extend(alias(row, entity)?);
    }
    Ok(found)
}

fn entity(row: &Row<'_>) -> rusqlite::Result<EntityRow> {
    Ok(EntityRow {
        id: row.get(0)?,
        name: row.get(1)?,
        version: row.get::<_, i64>(2)? as u64,
        body: row.get(3)?,
        kept_until: row.get::<_, Option<i64>>(4)?.map(|_| time(row, 4)).transpose()?,
    })
}

fn alias(row: &Row<'_>, entity: String) -> rusqlite::Result<Option<AliasRow>> {
    let Some(id) = row.get(5)? else { return Ok(None) };
    let version = row.get::<_, i64>(8)? as u64;
    Ok(Some(AliasRow { id, accessor: row.get(6)?, name: row.get(7)?, entity, version, body: row.get(9)? }))
}

pub(super) fn page(db: &Connection, page: &EntityPage) -> rusqlite::Result<Vec<EntityEntry>> {
    let mut statement = prepare(db, if page.by_name { sql::PAGE_BY_NAME } else { sql::PAGE_BY_ID })?;
    let mut rows = statement.query(params![page.after, page.limit])?;
    let mut entries: Vec<EntityEntry> = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        if entries.last().is_none_or(|last| last.id != id) {
            entries.push(EntityEntry { id: id.clone(), name: row.get(1)?, aliases: Vec::new() });
        }
        if let (Some(entry), Some(alias)) = (entries.last_mut(), row.get(2)?) {
            entry.aliases.push(AliasEntry { id: alias, accessor: row.get(3)?, name: row.get(4)?, entity: id });
        }
    }
    Ok(entries)
}

pub(super) fn aliases(db: &Connection, after: &str, limit: u32) -> rusqlite::Result<Vec<AliasEntry>> {
    let entry = |row: &Row<'_>| {
        Ok(AliasEntry { id: row.get(0)?, accessor: row.get(1)?, name: row.get(2)?, entity: row.get(3)? })
    };
    prepare(db, sql::ALIASES)?.query_map(params![after, limit], entry)?.collect()
}
