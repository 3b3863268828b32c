//! SQL of tokens.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::leases;
use super::query::{Failure, prepared, time};
use crate::auth::store::{AT_ONCE, Revoked, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, tokens as sql};

/// Removes the parent from some tokens.
const ORPHAN: &str = "UPDATE token SET parent = NULL WHERE hash IN (SELECT hash FROM token WHERE parent = $1 LIMIT $2)";
const STANDS: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS NOT 0";
const END: &str = "UPDATE token SET uses = 0 WHERE hash = $1";
const END_CHILDREN: &str = "UPDATE token SET uses = 0
    WHERE hash IN (SELECT hash FROM token WHERE parent = $1 AND uses IS NOT 0 LIMIT $2) RETURNING hash";
const CHILDREN_OF: &str = "SELECT hash FROM token WHERE parent = $1";
const USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1";
/// Searched per mount, because the index starts with it. Tokens of a dropped mount are removed with it.
const ENDED: &str = "SELECT token.hash FROM (SELECT id FROM mount UNION ALL SELECT NULL) m
    CROSS JOIN token ON token.mount IS m.id AND token.expires_at_micros <= $1 LIMIT $2";
/// Number of children of a token that are ended per statement.
const CHILDREN: i64 = 100;

pub(super) fn insert(db: &Connection, row: &TokenRow) -> Result<(), Failure> {
    // A child created while its parent is revoked would never be revoked.
    if let Some(parent) = &row.parent
        && !prepared(db, STANDS)?.exists([parent])?
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

/// Renews a token; returns `true` if there is one that has not expired.
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

/// Takes one use; returns the remaining number, or `None` if there was no use to take.
pub(super) fn spend(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<u32>> {
    let left = prepared(db, sql::SPEND)?.query_row([hash], |row| row.get(0)).optional()?;
    if left == Some(0) {
        leases::token_ended(db, hash)?;
    }
    Ok(left)
}

/// Removes a token that has uses left.
pub(super) fn take(db: &Connection, hash: &TokenHash) -> Result<(), Failure> {
    match prepared(db, sql::TAKE)?.execute([hash])? {
        0 => Err(Failure::Conflict(conflict::TOKEN_TAKEN)),
        _ => Ok(()),
    }
}

/// Revokes tokens and their descendants depth-first, some children at a time. First it sets the uses of children to 0;
/// a row is removed only when none of its children has uses left. So deep or cyclic data is harmless, and an
/// interrupted revocation loses no descendant. Children without uses were left by a revocation that was not continued.
pub(super) fn revoke(db: &Connection, hashes: &[TokenHash]) -> rusqlite::Result<Revoked> {
    let (mut end_children, mut children_of) = (prepared(db, END_CHILDREN)?, prepared(db, CHILDREN_OF)?);
    let mut delete = prepared(db, sql::DELETE)?;
    let (mut gone, mut left, mut looked_at) = (Vec::new(), hashes.to_vec(), 0);
    let mut met = false;
    while looked_at < AT_ONCE
        && let Some(hash) = left.pop()
    {
        let mut children = all(end_children.query_map(params![hash, CHILDREN], |row| row.get(0))?)?;
        if children.len() as i64 == CHILDREN {
            prepared(db, END)?.execute([hash])?;
            left.push(hash);
        } else {
            let ended = children.len();
            children = all(children_of.query_map([hash], |row| row.get(0))?)?;
            met |= children.len() > ended;
            if delete.execute([hash])? > 0 {
                leases::token_ended(db, &hash)?;
                gone.push(hash);
            }
        }
        looked_at += 1 + children.len();
        left.extend(children);
    }
    Ok(Revoked { gone, left, met })
}

/// Removes a token and detaches its children, or detaches as many of them as fit into one step. Skips a revoked token,
/// because its children are revoked as well.
pub(super) fn revoke_alone(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Revoked> {
    if !prepared(db, STANDS)?.exists([hash])? {
        return Ok(Revoked::default());
    }
    if prepared(db, ORPHAN)?.execute(params![hash, AT_ONCE as i64])? == AT_ONCE {
        return Ok(Revoked { left: vec![*hash], ..Revoked::default() });
    }
    prepared(db, sql::DELETE)?.execute([hash])?;
    leases::token_ended(db, hash)?;
    Ok(Revoked { gone: vec![*hash], ..Revoked::default() })
}

pub(super) fn sweep(db: &Connection, now: Time, limit: u32) -> rusqlite::Result<Revoked> {
    let mut some = found(db, ENDED, params![micros(now), limit])?;
    some.extend(found(db, USED_UP, params![limit])?);
    revoke(db, &some)
}

/// Revokes at most `limit` tokens of a mount, with their descendants; returns `true` if there were any.
pub(super) fn end_of_mount(db: &Connection, mount: i64, limit: i64) -> rusqlite::Result<bool> {
    let some = found(db, sql::SOME_OF_MOUNT, params![mount, limit])?;
    revoke(db, &some)?;
    Ok(!some.is_empty())
}

fn found(db: &Connection, statement: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<TokenHash>> {
    all(prepared(db, statement)?.query_map(values, |row| row.get(0))?)
}

fn all(hashes: impl Iterator<Item = rusqlite::Result<TokenHash>>) -> rusqlite::Result<Vec<TokenHash>> {
    hashes.collect()
}

pub(super) fn by_hash(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepared(db, sql::BY_HASH)?.query_row([hash], read).optional()
}

pub(super) fn by_accessor(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepared(db, sql::BY_ACCESSOR)?.query_row([hash], read).optional()
}

/// Reads the tokens after this accessor hash, in order.
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
            (END_CHILDREN, "SEARCH token USING INDEX token_parent (parent=?)"),
            (CHILDREN_OF, "SEARCH token USING INDEX token_parent (parent=?)"),
        ] {
            let plan = super::super::fixture::plan(&db, sql);
            assert_eq!(plan.last().map(String::as_str), Some(steps), "{plan:?}");
        }
    }
}
