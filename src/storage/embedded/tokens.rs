//! SQL of tokens.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::query::{SqliteError, prepare, read_time};
use crate::auth::store::{MAX_TOKENS_PER_REVOCATION, RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::engine::WriteConnection;
use crate::storage::statements::{conflict, tokens as sql};

/// Turns at most `$2` children of a token into tokens without a parent.
const DETACH_CHILDREN: &str =
    "UPDATE token SET parent = NULL WHERE hash IN (SELECT hash FROM token WHERE parent = $1 LIMIT $2)";
const SELECT_LIVE: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS NOT 0";
const MARK_REVOKED: &str = "UPDATE token SET uses = 0 WHERE hash = $1";
const REVOKE_CHILDREN: &str = "UPDATE token SET uses = 0
    WHERE hash IN (SELECT hash FROM token WHERE parent = $1 AND uses IS NOT 0 LIMIT $2) RETURNING hash";
const SELECT_CHILDREN: &str = "SELECT hash FROM token WHERE parent = $1";
const SELECT_USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1";
/// Searches the tokens of each mount separately, because the index starts with the mount. So it does not find the
/// tokens of dropped mounts; background work removes these.
const SELECT_EXPIRED: &str = "SELECT token.hash FROM (SELECT id FROM mount UNION ALL SELECT NULL) m
    CROSS JOIN token ON token.mount IS m.id AND token.expires_at_micros <= $1 LIMIT $2";
const INSERT_ENDED_TOKEN: &str = "INSERT INTO ended_token (hash)
    SELECT $1 WHERE EXISTS (SELECT 1 FROM lease WHERE lease.token = $1 AND lease.ending = 0)
    ON CONFLICT (hash) DO NOTHING";
/// Maximum number of child tokens that one statement revokes by setting their uses to 0.
const CHILDREN_PER_STATEMENT: i64 = 100;

impl WriteConnection for Connection {
    const REMOVED_ROWS_PER_STEP: u32 = 200;

    async fn lock_mount_exclusively(&self, _: MountId) -> Result<(), SqliteError> {
        Ok(())
    }

    async fn insert_token(&self, row: &TokenRow) -> Result<(), SqliteError> {
        // A child is only created under a live parent: a child created during the revocation of its parent would never
        // be revoked.
        if let Some(parent) = &row.parent
            && !prepare(self, SELECT_LIVE)?.exists([parent])?
        {
            return Err(SqliteError::Conflict(conflict::PARENT_GONE));
        }
        let expires_at = row.expires_at.map(micros);
        let mount = row.mount.map(|mount| mount.0);
        let values =
            params![row.hash, row.accessor_hash, row.parent, expires_at, row.uses, mount, row.entity, row.body];
        match prepare(self, sql::INSERT)?.execute(values)? {
            0 => Err(SqliteError::Conflict(conflict::TOKEN_EXISTS)),
            _ => Ok(()),
        }
    }

    async fn renew_token(
        &self,
        hash: &TokenHash,
        expires_at: Option<Time>,
        body: &[u8],
        now: Time,
    ) -> Result<bool, SqliteError> {
        let changed = prepare(self, sql::UPDATE)?.execute(params![expires_at.map(micros), body, hash, micros(now)])?;
        Ok(changed > 0)
    }

    async fn spend_token(&self, hash: &TokenHash) -> Result<Option<u32>, SqliteError> {
        let left = prepare(self, sql::SPEND)?.query_row([hash], |row| row.get(0)).optional()?;
        if left == Some(0) {
            record_ended_token(self, hash)?;
        }
        Ok(left)
    }

    async fn delete_usable_token(&self, hash: &TokenHash) -> Result<(), SqliteError> {
        match prepare(self, sql::DELETE_USABLE)?.execute([hash])? {
            0 => Err(SqliteError::Conflict(conflict::TOKEN_NOT_USABLE)),
            _ => Ok(()),
        }
    }

    async fn revoke_tokens(&self, hashes: &[TokenHash]) -> Result<RevokedTokens, SqliteError> {
        let mut end_children = prepare(self, REVOKE_CHILDREN)?;
        let mut children_of = prepare(self, SELECT_CHILDREN)?;
        let mut delete = prepare(self, sql::DELETE)?;
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
                prepare(self, MARK_REVOKED)?.execute([hash])?;
                left.push(hash);
            } else {
                let ended = children.len();
                children = collect_hashes(children_of.query_map([hash], |row| row.get(0))?)?;
                met |= children.len() > ended;
                if delete.execute([hash])? > 0 {
                    record_ended_token(self, &hash)?;
                    gone.push(hash);
                }
            }
            looked_at += 1 + children.len();
            left.extend(children);
        }
        Ok(RevokedTokens { gone, left, met })
    }

    async fn revoke_token_alone(&self, hash: &TokenHash) -> Result<RevokedTokens, SqliteError> {
        if !prepare(self, SELECT_LIVE)?.exists([hash])? {
            return Ok(RevokedTokens::default());
        }
        if prepare(self, DETACH_CHILDREN)?.execute(params![hash, MAX_TOKENS_PER_REVOCATION as i64])?
            == MAX_TOKENS_PER_REVOCATION
        {
            return Ok(RevokedTokens { left: vec![*hash], ..RevokedTokens::default() });
        }
        prepare(self, sql::DELETE)?.execute([hash])?;
        record_ended_token(self, hash)?;
        Ok(RevokedTokens { gone: vec![*hash], ..RevokedTokens::default() })
    }

    async fn sweep_tokens(&self, now: Time, limit: u32) -> Result<RevokedTokens, SqliteError> {
        let mut some = query_hashes(self, SELECT_EXPIRED, params![micros(now), limit])?;
        some.extend(query_hashes(self, SELECT_USED_UP, params![limit])?);
        self.revoke_tokens(&some).await
    }

    async fn revoke_tokens_of_mount(&self, mount: MountId) -> Result<bool, SqliteError> {
        let some = query_hashes(self, sql::SELECT_OF_MOUNT, params![mount.0, Self::REMOVED_ROWS_PER_STEP])?;
        self.revoke_tokens(&some).await?;
        Ok(!some.is_empty())
    }
}

/// Records a token as ended if it has leases, so that these leases are revoked later.
fn record_ended_token(db: &Connection, hash: &TokenHash) -> rusqlite::Result<()> {
    prepare(db, INSERT_ENDED_TOKEN)?.execute([hash]).map(drop)
}

fn query_hashes(db: &Connection, statement: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<TokenHash>> {
    collect_hashes(prepare(db, statement)?.query_map(values, |row| row.get(0))?)
}

fn collect_hashes(hashes: impl Iterator<Item = rusqlite::Result<TokenHash>>) -> rusqlite::Result<Vec<TokenHash>> {
    hashes.collect()
}

/// Finds a token with the statement `sql`, by the hash of the token or of its accessor.
pub(super) fn by_hash(db: &Connection, sql: &str, hash: &TokenHash) -> rusqlite::Result<Option<TokenRow>> {
    prepare(db, sql)?.query_row([hash], read_token).optional()
}

/// Reads at most `limit` tokens whose accessor hashes follow `after`, in the order of these hashes.
pub(super) fn page(db: &Connection, after: &TokenHash, limit: u32) -> rusqlite::Result<Vec<TokenRow>> {
    prepare(db, sql::PAGE)?.query_map(params![after, limit], read_token)?.collect()
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        hash: row.get(0)?,
        accessor_hash: row.get(1)?,
        parent: row.get(2)?,
        uses: row.get(3)?,
        body: row.get(4)?,
        expires_at: row.get::<_, Option<i64>>(5)?.map(|_| read_time(row, 5)).transpose()?,
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
            let plan = super::super::fixture::query_plan(&db, sql);
            assert_eq!(plan.last().map(String::as_str), Some(steps), "{plan:?}");
        }
        let plan = super::super::fixture::query_plan(&db, sql::COUNT_NEVER_EXPIRING).join("\n");
        assert!(plan.contains("USING INDEX token_mount_end (mount=? AND expires_at_micros=?)"), "{plan}");
    }
}
