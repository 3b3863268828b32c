//! SQL of tokens.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::leases;
use super::query::{Failure, count, prepared, time};
use crate::auth::store::{TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, tokens as sql};

const EXISTS: &str = "SELECT 1 FROM token WHERE hash = $1";
const DELETE_CHILDREN: &str = "DELETE FROM token WHERE parent = $1 RETURNING hash";
const USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1";
/// Mount by mount, and those of none, as their one index has them; what is of a mount that was dropped goes with it.
const ENDED: &str = "SELECT token.hash FROM (SELECT id FROM mount UNION ALL SELECT NULL) m
    CROSS JOIN token ON token.mount IS m.id AND token.expires_at_micros <= $1 LIMIT $2";

pub(super) fn insert(db: &Connection, row: &TokenRow) -> Result<(), Failure> {
    // A child made while its parent was being revoked would live on without one.
    if let Some(parent) = &row.parent
        && !prepared(db, EXISTS)?.exists([parent])?
    {
        return Err(Failure::Conflict(conflict::PARENT_GONE));
    }
    let expires_at = row.expires_at.map(micros);
    let mount = row.mount.map(|mount| mount.0);
    let values = params![row.hash, row.accessor_hash, row.parent, expires_at, row.uses, mount, row.entity, row.body];
    match prepared(db, sql::INSERT)?.execute(values)? {
        0 => Err(Failure::Conflict(conflict::TOKEN_EXISTS)),
        _ => Ok(()),
    }
}

/// Renews a token; whether there is one that has not ended.
pub(super) fn update(
    db: &Connection,
    hash: &TokenHash,
    expires_at: Option<Time>,
    body: &[u8],
    now: Time,
) -> rusqlite::Result<bool> {
    let changed = prepared(db, sql::UPDATE)?.execute(params![expires_at.map(micros), body, hash, micros(now)])?;
    Ok(changed > 0)
}

/// Takes one use; how many are left, unless there was none.
pub(super) fn spend(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<u32>> {
    let left = prepared(db, sql::SPEND)?.query_row([hash], |row| row.get(0)).optional()?;
    if left == Some(0) {
        leases::token_ended(db, hash)?;
    }
    Ok(left)
}

/// Removes a token that has a use left.
pub(super) fn take(db: &Connection, hash: &TokenHash) -> Result<(), Failure> {
    match prepared(db, sql::TAKE)?.execute([hash])? {
        0 => Err(Failure::Conflict(conflict::TOKEN_TAKEN)),
        _ => Ok(()),
    }
}

/// Removes a token and its descendants, level by level; each row is deleted as it is found, so
/// neither depth nor a loop in the data can do harm.
pub(super) fn revoke(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Vec<TokenHash>> {
    if prepared(db, sql::DELETE)?.execute([hash])? == 0 {
        return Ok(Vec::new());
    }
    let mut gone = vec![*hash];
    let mut children = prepared(db, DELETE_CHILDREN)?;
    let mut next = 0;
    while let Some(parent) = gone.get(next).copied() {
        for child in children.query_map([parent], |row| row.get(0))? {
            gone.push(child?);
        }
        leases::token_ended(db, &parent)?;
        next += 1;
    }
    Ok(gone)
}

/// Removes a token, whose children have no parent then.
pub(super) fn revoke_alone(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Vec<TokenHash>> {
    if prepared(db, sql::DELETE)?.execute([hash])? == 0 {
        return Ok(Vec::new());
    }
    prepared(db, sql::ORPHAN)?.execute([hash])?;
    leases::token_ended(db, hash)?;
    Ok(vec![*hash])
}

pub(super) fn sweep(db: &Connection, now: Time, limit: u32) -> rusqlite::Result<u32> {
    let ended = revoke_all(db, ENDED, params![micros(now), limit])?;
    let used_up = revoke_all(db, USED_UP, params![limit])?;
    Ok(count(ended + used_up))
}

/// Ends at most so many tokens of a mount, with their descendants; how many went.
pub(super) fn end_of_mount(db: &Connection, mount: i64, limit: i64) -> rusqlite::Result<usize> {
    revoke_all(db, sql::SOME_OF_MOUNT, params![mount, limit])
}

/// Revokes the tokens that a statement finds, with their descendants; how many went.
fn revoke_all(db: &Connection, found: &str, values: &[&dyn ToSql]) -> rusqlite::Result<usize> {
    let hashes: Vec<TokenHash> =
        prepared(db, found)?.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut gone = 0;
    for hash in hashes {
        gone += revoke(db, &hash)?.len();
    }
    Ok(gone)
}

pub(super) fn by_hash(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepared(db, sql::BY_HASH)?.query_row([hash], read).optional()
}

pub(super) fn by_accessor(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepared(db, sql::BY_ACCESSOR)?.query_row([hash], read).optional()
}

/// Tokens behind this hash of an accessor, in their order.
pub(super) fn page(db: &Connection, after: &TokenHash, limit: u32) -> rusqlite::Result<Vec<TokenRow>> {
    prepared(db, sql::PAGE)?.query_map(params![after, limit], read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        hash: row.get(0)?,
        accessor_hash: row.get(1)?,
        parent: row.get(2)?,
        uses: row.get(3)?,
        body: row.get(4)?,
        expires_at: row.get::<_, Option<i64>>(5)?.map(|_| time(row, 5)).transpose()?,
        mount: row.get::<_, Option<i64>>(6)?.map(MountId),
        entity: row.get(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_is_found_by_one_index_by_its_time_and_by_its_mount() {
        let mut db = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&mut db).unwrap();
        for (sql, steps) in [
            (ENDED, "SEARCH token USING INDEX token_mount_end (mount=? AND expires_at_micros<?)"),
            (sql::SOME_OF_MOUNT, "SEARCH token USING INDEX token_mount_end (mount=?)"),
        ] {
            let plan = super::super::fixture::plan(&db, sql);
            assert_eq!(plan.last().map(String::as_str), Some(steps), "{plan:?}");
        }
    }
}
