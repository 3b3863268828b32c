//! SQL of tokens.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::leases;
use super::query::{PostgresClient, PostgresError, execute, exists, read_time, row, rows};
use crate::auth::store::{MAX_TOKENS_PER_REVOCATION, RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::engine::WriteConnection;
use crate::storage::statements::{conflict, tokens as sql};

/// Locks a live parent token until its new child is committed. A concurrent revocation of the parent waits for the
/// lock, and then finds the child.
const LOCK_PARENT: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS DISTINCT FROM 0 FOR KEY SHARE";
/// Locks tokens in the order of their hashes, so that two nodes cannot deadlock. Sweeps skip locked tokens.
const LOCK_TOKENS: &str = "SELECT 1 FROM token WHERE hash = ANY($1) ORDER BY hash FOR UPDATE";
const MARK_REVOKED: &str = "UPDATE token SET uses = 0 WHERE hash = ANY($1) AND uses IS DISTINCT FROM 0";
/// Revokes up to 200 children of tokens, by setting their uses to 0. The limited subquery also locks the children, so
/// that children that another node removes concurrently do not count towards the limit. The order matches the index, so
/// that no plan scans the table if there are no children.
const REVOKE_CHILDREN: &str = "UPDATE token SET uses = 0 WHERE hash = ANY (ARRAY (
        SELECT child.hash FROM UNNEST($1::bytea[]) AS p (hash) CROSS JOIN LATERAL (
            SELECT hash FROM token WHERE parent BETWEEN p.hash AND p.hash AND uses IS DISTINCT FROM 0
            ORDER BY parent LIMIT 200 FOR UPDATE) AS child
        LIMIT 200))
    RETURNING hash";
const SELECT_CHILDREN: &str = "SELECT hash FROM token WHERE parent = ANY($1)";
/// Turns at most `$2` children of a token into tokens without a parent. Uses the index, even if most tokens have the
/// same parent.
const DETACH_CHILDREN: &str = "UPDATE token SET parent = NULL WHERE hash = ANY (ARRAY (
        SELECT hash FROM token WHERE parent BETWEEN $1 AND $1 ORDER BY parent LIMIT $2 FOR UPDATE))";
const LOCK_LIVE: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS DISTINCT FROM 0 FOR UPDATE";
const DELETE_ALL: &str = "DELETE FROM token WHERE hash = ANY($1) RETURNING hash";
/// Selects tokens without remaining uses. Skips locked tokens, so concurrent sweeps of several nodes select different
/// ones.
const SELECT_USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1 FOR UPDATE SKIP LOCKED";
const SELECT_EXPIRED: &str = "SELECT hash FROM token WHERE expires_at_micros <= $1 ORDER BY expires_at_micros LIMIT $2
    FOR UPDATE SKIP LOCKED";
/// Waits for transactions that hold the shared lock of a mount, and excludes new ones.
const LOCK_MOUNT_EXCLUSIVELY: &str = "SELECT pg_advisory_xact_lock($1)";
/// Number of tokens that one step of a revocation processes, and maximum number of their children that [one
/// statement](REVOKE_CHILDREN) revokes.
const TOKENS_PER_STEP: usize = 200;

impl WriteConnection for PostgresClient {
    const REMOVED_ROWS_PER_STEP: u32 = 500;

    async fn lock_mount_exclusively(&self, mount: MountId) -> Result<(), PostgresError> {
        row(self, LOCK_MOUNT_EXCLUSIVELY, &[&mount.0]).await.map(drop)
    }

    async fn insert_token(&self, row: &TokenRow) -> Result<(), PostgresError> {
        // A child is only created under a live parent: a child created during the revocation of its parent would never
        // be revoked.
        if let Some(parent) = &row.parent
            && !exists(self, LOCK_PARENT, &[&&parent[..]]).await?
        {
            return Err(PostgresError::Conflict(conflict::PARENT_GONE));
        }
        let expires_at = row.expires_at.map(micros);
        let uses = row.uses.map(i64::from);
        let hash = &row.hash[..];
        let accessor = &row.accessor_hash[..];
        let parent = row.parent.as_ref().map(|p| &p[..]);
        let mount = row.mount.map(|mount| mount.0);
        let values: [&(dyn ToSql + Sync); 8] =
            [&hash, &accessor, &parent, &expires_at, &uses, &mount, &row.entity, &row.body];
        match execute(self, sql::INSERT, &values).await? {
            0 => Err(PostgresError::Conflict(conflict::TOKEN_EXISTS)),
            _ => Ok(()),
        }
    }

    async fn renew_token(
        &self,
        hash: &TokenHash,
        expires_at: Option<Time>,
        body: &[u8],
        now: Time,
    ) -> Result<bool, PostgresError> {
        let changed = execute(self, sql::UPDATE, &[&expires_at.map(micros), &body, &&hash[..], &micros(now)]).await?;
        Ok(changed > 0)
    }

    async fn spend_token(&self, hash: &TokenHash) -> Result<Option<u32>, PostgresError> {
        let Some(spent) = row(self, sql::SPEND, &[&&hash[..]]).await? else { return Ok(None) };
        let left = read_uses(spent.try_get(0)?)?;
        if left == 0 {
            leases::record_ended_tokens(self, &[&hash[..]]).await?;
        }
        Ok(Some(left))
    }

    async fn delete_usable_token(&self, hash: &TokenHash) -> Result<(), PostgresError> {
        match execute(self, sql::DELETE_USABLE, &[&&hash[..]]).await? {
            0 => Err(PostgresError::Conflict(conflict::TOKEN_NOT_USABLE)),
            _ => Ok(()),
        }
    }

    /// The first statement locks the tokens and waits for concurrent inserts of children. Later, no child can be
    /// inserted under a token that is locked or has no uses left.
    async fn revoke_tokens(&self, hashes: &[TokenHash]) -> Result<RevokedTokens, PostgresError> {
        rows(self, LOCK_TOKENS, &[&as_slices(hashes)]).await?;
        let mut gone = Vec::new();
        let mut left = hashes.to_vec();
        let mut looked_at = 0;
        let mut met = false;
        while looked_at < MAX_TOKENS_PER_REVOCATION && !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(TOKENS_PER_STEP));
            let mut children = read_hashes(&rows(self, REVOKE_CHILDREN, &[&as_slices(&some)]).await?)?;
            looked_at += some.len() + children.len();
            if children.len() == TOKENS_PER_STEP {
                left.extend(some);
            } else {
                let ended = children.len();
                children = read_hashes(&rows(self, SELECT_CHILDREN, &[&as_slices(&some)]).await?)?;
                met |= children.len() > ended;
                gone.extend(read_hashes(&rows(self, DELETE_ALL, &[&as_slices(&some)]).await?)?);
            }
            left.extend(children);
        }
        if !left.is_empty() {
            execute(self, MARK_REVOKED, &[&as_slices(&left)]).await?;
        }
        if !gone.is_empty() {
            leases::record_ended_tokens(self, &as_slices(&gone)).await?;
        }
        Ok(RevokedTokens { gone, left, met })
    }

    /// The token is locked with a separate statement, so that the later statements see children that other nodes
    /// committed while this statement waited for the lock.
    async fn revoke_token_alone(&self, hash: &TokenHash) -> Result<RevokedTokens, PostgresError> {
        if row(self, LOCK_LIVE, &[&&hash[..]]).await?.is_none() {
            return Ok(RevokedTokens::default());
        }
        if execute(self, DETACH_CHILDREN, &[&&hash[..], &(MAX_TOKENS_PER_REVOCATION as i64)]).await?
            == MAX_TOKENS_PER_REVOCATION as u64
        {
            return Ok(RevokedTokens { left: vec![*hash], ..RevokedTokens::default() });
        }
        execute(self, sql::DELETE, &[&&hash[..]]).await?;
        leases::record_ended_tokens(self, &[&hash[..]]).await?;
        Ok(RevokedTokens { gone: vec![*hash], ..RevokedTokens::default() })
    }

    async fn sweep_tokens(&self, now: Time, limit: u32) -> Result<RevokedTokens, PostgresError> {
        let limit = i64::from(limit);
        let mut some = read_hashes(&rows(self, SELECT_EXPIRED, &[&micros(now), &limit]).await?)?;
        some.extend(read_hashes(&rows(self, SELECT_USED_UP, &[&limit]).await?)?);
        self.revoke_tokens(&some).await
    }

    async fn revoke_tokens_of_mount(&self, mount: MountId) -> Result<bool, PostgresError> {
        let limit = i64::from(Self::REMOVED_ROWS_PER_STEP);
        let some = read_hashes(&rows(self, sql::SELECT_OF_MOUNT, &[&mount.0, &limit]).await?)?;
        self.revoke_tokens(&some).await?;
        Ok(!some.is_empty())
    }
}

fn as_slices(hashes: &[TokenHash]) -> Vec<&[u8]> {
    hashes.iter().map(|hash| &hash[..]).collect()
}

/// Finds a token with the statement `sql`, by the hash of the token or of its accessor.
pub(super) async fn by_hash(
    db: &PostgresClient,
    sql: &str,
    hash: TokenHash,
) -> Result<Option<TokenRow>, PostgresError> {
    row(db, sql, &[&&hash[..]]).await?.as_ref().map(read_token).transpose()
}

/// Reads at most `limit` tokens whose accessor hashes follow `after`, in the order of these hashes.
pub(super) async fn page(db: &PostgresClient, after: TokenHash, limit: u32) -> Result<Vec<TokenRow>, PostgresError> {
    rows(db, sql::PAGE, &[&&after[..], &i64::from(limit)]).await?.iter().map(read_token).collect()
}

fn read_token(row: &Row) -> Result<TokenRow, PostgresError> {
    Ok(TokenRow {
        hash: read_hash(row.try_get(0)?)?,
        accessor_hash: read_hash(row.try_get(1)?)?,
        parent: row.try_get::<_, Option<&[u8]>>(2)?.map(read_hash).transpose()?,
        uses: row.try_get::<_, Option<i64>>(3)?.map(read_uses).transpose()?,
        body: row.try_get(4)?,
        expires_at: row.try_get::<_, Option<i64>>(5)?.map(read_time).transpose()?,
        mount: row.try_get::<_, Option<i64>>(6)?.map(MountId),
        entity: row.try_get(7)?,
    })
}

fn read_hashes(rows: &[Row]) -> Result<Vec<TokenHash>, PostgresError> {
    rows.iter().map(|row| read_hash(row.try_get(0)?)).collect()
}

fn read_hash(bytes: &[u8]) -> Result<TokenHash, PostgresError> {
    bytes.try_into().map_err(|_| PostgresError::Unreadable("a stored token hash is not 32 bytes long"))
}

fn read_uses(stored: i64) -> Result<u32, PostgresError> {
    u32::try_from(stored).map_err(|_| PostgresError::Unreadable("the stored number of uses of a token is out of range"))
}
