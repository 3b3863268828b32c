//! SQL of tokens.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::leases;
use super::query::{SqliteError, prepare, time};
use crate::auth::store::{MAX_TOKENS_PER_REVOCATION, RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, tokens as sql};

/// Removes the parent from some tokens.
const DETACH_CHILDREN: &str =
    "UPDATE token SET parent = NULL WHERE hash IN (SELECT hash FROM token WHERE parent = $1 LIMIT $2)";
const SELECT_LIVE: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS NOT 0";
const MARK_REVOKED: &str = "UPDATE token SET uses = 0 WHERE hash = $1";
const REVOKE_CHILDREN: &str = "UPDATE token SET uses = 0
    WHERE hash IN (SELECT hash FROM token WHERE parent = $1 AND uses IS NOT 0 LIMIT $2) RETURNING hash";
const SELECT_CHILDREN: &str = "SELECT hash FROM token WHERE parent = $1";
const SELECT_USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1";
/// Searched per mount, because the index starts with it. Tokens of a dropped mount are removed with it.
const SELECT_EXPIRED: &str = "SELECT token.hash FROM (SELECT id FROM mount UNION ALL SELECT NULL) m
    CROSS JOIN token ON token.mount IS m.id AND token.expires_at_micros <= $1 LIMIT $2";
/// Number of children of a token that are ended per statement.
const CHILDREN_PER_STATEMENT: i64 = 100;

pub(super) fn insert(db: &Connection, row: &TokenRow) -> Result<(), SqliteError> {
    // A child created while its parent is revoked would never be revoked.
    if let Some(parent) = &row.parent
        && !prepare(db, SELECT_LIVE)?.exists([parent])?
    {
        return Err(SqliteError::Conflict(conflict::PARENT_GONE));
    }
    let expires_at = row.expires_at.map(micros);
    let mount = row.mount.map(|mount| mount.0);
    let values = params![row.hash, row.accessor_hash, row.parent, expires_at, row.uses, mount, row.entity, row.body];
    match prepare(db, sql::INSERT)?.execute(values)? {
        0 => Err(SqliteError::Conflict(conflict::TOKEN_EXISTS)),
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
    let changed = prepare(db, sql::UPDATE)?.execute(params![expires_at.map(micros), body, hash, micros(now)])?;
    Ok(changed > 0)
}

/// Takes one use; returns the remaining number, or `None` if there was no use to take.
pub(super) fn spend(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<u32>> {
    let left = prepare(db, sql::SPEND)?.query_row([hash], |row| row.get(0)).optional()?;
    if left == Some(0) {
        leases::record_ended_token(db, hash)?;
    }
    Ok(left)
}

/// Removes a token that has uses left.
pub(super) fn take(db: &Connection, hash: &TokenHash) -> Result<(), SqliteError> {
    match prepare(db, sql::TAKE)?.execute([hash])? {
        0 => Err(SqliteError::Conflict(conflict::TOKEN_TAKEN)),
        _ => Ok(()),
    }
}

/// Revokes tokens and their descendants depth-first, some children at a time. First it sets the uses of children to 0;
/// a row is removed only when none of its children has uses left. So deep or cyclic data is harmless, and an
/// interrupted revocation loses no descendant. Children without uses were left by a revocation that was not continued.
pub(super) fn revoke(db: &Connection, hashes: &[TokenHash]) -> rusqlite::Result<RevokedTokens> {
    let mut end_children = prepare(db, REVOKE_CHILDREN)?;
    let mut children_of = prepare(db, SELECT_CHILDREN)?;
    let mut delete = prepare(db, sql::DELETE)?;
    let mut gone = Vec::new();
    let mut left = hashes.to_vec();
    let mut looked_at = 0;
    let mut met = false;
    while looked_at < MAX_TOKENS_PER_REVOCATION
        && let Some(hash) = left.pop()
    {
        let mut children =
            collect_hashes(end_children.query_map(params![hash, CHILDREN_PER_STATEMENT], |row| row.get(0))?)?;
        if children.len() as i64 == CHILDREN_PER_STATEMENT {
            prepare(db, MARK_REVOKED)?.execute([hash])?;
            left.push(hash);
        } else {
            let ended = children.len();
            children = collect_hashes(children_of.query_map([hash], |row| row.get(0))?)?;
            met |= children.len() > ended;
            if delete.execute([hash])? > 0 {
                leases::record_ended_token(db, &hash)?;
                gone.push(hash);
            }
        }
        looked_at += 1 + children.len();
        left.extend(children);
    }
    Ok(RevokedTokens { gone, left, met })
}

/// Removes a token and detaches its children, or detaches as many of them as fit into one step. Skips a revoked token,
/// because its children are revoked as well.
pub(super) fn revoke_alone(db: &Connection, hash: &TokenHash) -> rusqlite::Result<RevokedTokens> {
    if !prepare(db, SELECT_LIVE)?.exists([hash])? {
        return Ok(RevokedTokens::default());
    }
    if prepare(db, DETACH_CHILDREN)?.execute(params![hash, MAX_TOKENS_PER_REVOCATION as i64])?
        == MAX_TOKENS_PER_REVOCATION
    {
        return Ok(RevokedTokens { left: vec![*hash], ..RevokedTokens::default() });
    }
    prepare(db, sql::DELETE)?.execute([hash])?;
    leases::record_ended_token(db, hash)?;
    Ok(RevokedTokens { gone: vec![*hash], ..RevokedTokens::default() })
}

pub(super) fn sweep(db: &Connection, now: Time, limit: u32) -> rusqlite::Result<RevokedTokens> {
    let mut some = query_hashes(db, SELECT_EXPIRED, params![micros(now), limit])?;
    some.extend(query_hashes(db, SELECT_USED_UP, params![limit])?);
    revoke(db, &some)
}

/// Revokes at most `limit` tokens of a mount, with their descendants; returns `true` if there were any.
pub(super) fn revoke_of_mount(db: &Connection, mount: i64, limit: i64) -> rusqlite::Result<bool> {
    let some = query_hashes(db, sql::SELECT_OF_MOUNT, params![mount, limit])?;
    revoke(db, &some)?;
    Ok(!some.is_empty())
}

fn query_hashes(db: &Connection, statement: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<TokenHash>> {
    collect_hashes(prepare(db, statement)?.query_map(values, |row| row.get(0))?)
}

fn collect_hashes(hashes: impl Iterator<Item = rusqlite::Result<TokenHash>>) -> rusqlite::Result<Vec<TokenHash>> {
    hashes.collect()
}

pub(super) fn by_hash(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepare(db, sql::BY_HASH)?.query_row([hash], read).optional()
}

pub(super) fn by_accessor(db: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepare(db, sql::BY_ACCESSOR)?.query_row([hash], read).optional()
}

/// Reads the tokens after this accessor hash, in order.
pub(super) fn page(db: &Connection, after: &TokenHash, limit: u32) -> rusqlite::Result<Vec<TokenRow>> {
    prepare(db, sql::PAGE)?.query_map(params![after, limit], read)?.collect()
}

pub(super) fn count_endless(db: &Connection) -> rusqlite::Result<u64> {
    prepare(db, sql::ENDLESS)?.query_row([], |row| row.get::<_, u32>(0)).map(u64::from)
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
    fn token_queries_by_time_mount_and_parent_use_an_index() {
        let mut db = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&mut db).unwrap();
        for (sql, steps) in [
            (SELECT_EXPIRED, "SEARCH token USING INDEX token_mount_end (mount=? AND expires_at_micros<?)"),
            (sql::SELECT_OF_MOUNT, "SEARCH token USING INDEX token_mount_end (mount=?)"),
            (REVOKE_CHILDREN, "SEARCH token USING INDEX token_parent (parent=?)"),
            (SELECT_CHILDREN, "SEARCH token USING INDEX token_parent (parent=?)"),
        ] {
            let plan = super::super::fixture::plan(&db, sql);
            assert_eq!(plan.last().map(String::as_str), Some(steps), "{plan:?}");
        }
        let plan = super::super::fixture::plan(&db, sql::ENDLESS).join("\n");
        assert!(plan.contains("USING INDEX token_mount_end (mount=? AND expires_at_micros=?)"), "{plan}");
    }
}
