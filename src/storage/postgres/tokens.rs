//! SQL of tokens.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::leases;
use super::query::{PostgresClient, PostgresError, execute, exists, row, rows, time};
use crate::auth::store::{MAX_TOKENS_PER_REVOCATION, RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, tokens as sql};

/// Locks the parent until the child is committed: a concurrent revocation waits, and then finds the child.
const LOCK_PARENT: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS DISTINCT FROM 0 FOR KEY SHARE";
/// Locks in a fixed order, so that two nodes cannot deadlock, and sweeps skip the tokens.
const LOCK_TOKENS: &str = "SELECT 1 FROM token WHERE hash = ANY($1) ORDER BY hash FOR UPDATE";
const MARK_REVOKED: &str = "UPDATE token SET uses = 0 WHERE hash = ANY($1) AND uses IS DISTINCT FROM 0";
/// Locks below the limit, so that rows which another node removes concurrently do not count. The order matches the
/// index, so that no plan scans the table if there are no children.
const REVOKE_CHILDREN: &str = "UPDATE token SET uses = 0 WHERE hash = ANY (ARRAY (
        SELECT child.hash FROM UNNEST($1::bytea[]) AS p (hash) CROSS JOIN LATERAL (
            SELECT hash FROM token WHERE parent BETWEEN p.hash AND p.hash AND uses IS DISTINCT FROM 0
            ORDER BY parent LIMIT 200 FOR UPDATE) AS child
        LIMIT 200))
    RETURNING hash";
const SELECT_CHILDREN: &str = "SELECT hash FROM token WHERE parent = ANY($1)";
/// Removes the parent from some children, which are locked. Uses the index, even if few rows have another parent.
const DETACH_CHILDREN: &str = "UPDATE token SET parent = NULL WHERE hash = ANY (ARRAY (
        SELECT hash FROM token WHERE parent BETWEEN $1 AND $1 ORDER BY parent LIMIT $2 FOR UPDATE))";
const LOCK_LIVE: &str = "SELECT 1 FROM token WHERE hash = $1 AND uses IS DISTINCT FROM 0 FOR UPDATE";
const DELETE_ALL: &str = "DELETE FROM token WHERE hash = ANY($1) RETURNING hash";
/// Concurrent sweeps of several nodes take different tokens.
const SELECT_USED_UP: &str = "SELECT hash FROM token WHERE uses = 0 LIMIT $1 FOR UPDATE SKIP LOCKED";
const SELECT_EXPIRED: &str = "SELECT hash FROM token WHERE expires_at_micros <= $1 ORDER BY expires_at_micros LIMIT $2
    FOR UPDATE SKIP LOCKED";
/// Number of tokens per step, and maximum number of their children that [one statement](REVOKE_CHILDREN) ends.
const TOKENS_PER_STEP: usize = 200;

pub(super) async fn insert(db: &PostgresClient, row: &TokenRow) -> Result<(), PostgresError> {
    // A child created while its parent is revoked would never be revoked.
    if let Some(parent) = &row.parent
        && !exists(db, LOCK_PARENT, &[&&parent[..]]).await?
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
    match execute(db, sql::INSERT, &values).await? {
        0 => Err(PostgresError::Conflict(conflict::TOKEN_EXISTS)),
        _ => Ok(()),
    }
}

/// Renews a token; returns `true` if there is one that has not expired.
pub(super) async fn update(
    db: &PostgresClient,
    hash: &TokenHash,
    expires_at: Option<Time>,
    body: &[u8],
    now: Time,
) -> Result<bool, PostgresError> {
    let changed = execute(db, sql::UPDATE, &[&expires_at.map(micros), &body, &&hash[..], &micros(now)]).await?;
    Ok(changed > 0)
}

/// Takes one use; returns the remaining number, or `None` if there was no use to take.
pub(super) async fn spend(db: &PostgresClient, hash: &TokenHash) -> Result<Option<u32>, PostgresError> {
    let Some(spent) = row(db, sql::SPEND, &[&&hash[..]]).await? else { return Ok(None) };
    let left = uses(spent.try_get(0)?)?;
    if left == 0 {
        leases::record_ended_tokens(db, &[&hash[..]]).await?;
    }
    Ok(Some(left))
}

/// Removes a token that has uses left.
pub(super) async fn take(db: &PostgresClient, hash: &TokenHash) -> Result<(), PostgresError> {
    match execute(db, sql::TAKE, &[&&hash[..]]).await? {
        0 => Err(PostgresError::Conflict(conflict::TOKEN_TAKEN)),
        _ => Ok(()),
    }
}

/// Revokes tokens and their descendants depth-first, [`TOKENS_PER_STEP`] at a time. First it sets the uses of children
/// to 0; rows are removed only when none of their children has uses left. So deep or cyclic data is harmless, and an
/// interrupted revocation loses no descendant. Children without uses were left by a revocation that was not continued.
/// A token that is locked or has no uses gets no new children; a concurrent insert is waited for.
pub(super) async fn revoke(db: &PostgresClient, hashes: &[TokenHash]) -> Result<RevokedTokens, PostgresError> {
    rows(db, LOCK_TOKENS, &[&as_slices(hashes)]).await?;
    let mut gone = Vec::new();
    let mut left = hashes.to_vec();
    let mut looked_at = 0;
    let mut met = false;
    while looked_at < MAX_TOKENS_PER_REVOCATION && !left.is_empty() {
        let some = left.split_off(left.len().saturating_sub(TOKENS_PER_STEP));
        let mut children = read_hashes(&rows(db, REVOKE_CHILDREN, &[&as_slices(&some)]).await?)?;
        looked_at += some.len() + children.len();
        if children.len() == TOKENS_PER_STEP {
            left.extend(some);
        } else {
            let ended = children.len();
            children = read_hashes(&rows(db, SELECT_CHILDREN, &[&as_slices(&some)]).await?)?;
            met |= children.len() > ended;
            gone.extend(read_hashes(&rows(db, DELETE_ALL, &[&as_slices(&some)]).await?)?);
        }
        left.extend(children);
    }
    if !left.is_empty() {
        execute(db, MARK_REVOKED, &[&as_slices(&left)]).await?;
    }
    if !gone.is_empty() {
        leases::record_ended_tokens(db, &as_slices(&gone)).await?;
    }
    Ok(RevokedTokens { gone, left, met })
}

/// Removes a token and detaches its children, or detaches as many as fit into one step. Skips a revoked token, because
/// its children are revoked as well. Later statements see a child that another node commits before the lock is granted.
pub(super) async fn revoke_alone(db: &PostgresClient, hash: &TokenHash) -> Result<RevokedTokens, PostgresError> {
    if row(db, LOCK_LIVE, &[&&hash[..]]).await?.is_none() {
        return Ok(RevokedTokens::default());
    }
    if execute(db, DETACH_CHILDREN, &[&&hash[..], &(MAX_TOKENS_PER_REVOCATION as i64)]).await?
        == MAX_TOKENS_PER_REVOCATION as u64
    {
        return Ok(RevokedTokens { left: vec![*hash], ..RevokedTokens::default() });
    }
    execute(db, sql::DELETE, &[&&hash[..]]).await?;
    leases::record_ended_tokens(db, &[&hash[..]]).await?;
    Ok(RevokedTokens { gone: vec![*hash], ..RevokedTokens::default() })
}

pub(super) async fn sweep(db: &PostgresClient, now: Time, limit: u32) -> Result<RevokedTokens, PostgresError> {
    let limit = i64::from(limit);
    let mut some = read_hashes(&rows(db, SELECT_EXPIRED, &[&micros(now), &limit]).await?)?;
    some.extend(read_hashes(&rows(db, SELECT_USED_UP, &[&limit]).await?)?);
    revoke(db, &some).await
}

/// Revokes at most `limit` tokens of a mount, with their descendants; returns `true` if there were any.
pub(super) async fn revoke_of_mount(db: &PostgresClient, mount: i64, limit: i64) -> Result<bool, PostgresError> {
    let some = read_hashes(&rows(db, sql::SELECT_OF_MOUNT, &[&mount, &limit]).await?)?;
    revoke(db, &some).await?;
    Ok(!some.is_empty())
}

fn as_slices(hashes: &[TokenHash]) -> Vec<&[u8]> {
    hashes.iter().map(|hash| &hash[..]).collect()
}

pub(super) async fn by_hash(db: &PostgresClient, hash: TokenHash) -> Result<Option<TokenRow>, PostgresError> {
    row(db, sql::BY_HASH, &[&&hash[..]]).await?.as_ref().map(read).transpose()
}

pub(super) async fn by_accessor(db: &PostgresClient, hash: TokenHash) -> Result<Option<TokenRow>, PostgresError> {
    row(db, sql::BY_ACCESSOR, &[&&hash[..]]).await?.as_ref().map(read).transpose()
}

/// Reads the tokens after this accessor hash, in order.
pub(super) async fn page(db: &PostgresClient, after: TokenHash, limit: u32) -> Result<Vec<TokenRow>, PostgresError> {
    rows(db, sql::PAGE, &[&&after[..], &i64::from(limit)]).await?.iter().map(read).collect()
}

pub(super) async fn count_endless(db: &PostgresClient) -> Result<u64, PostgresError> {
    let count = row(db, sql::ENDLESS, &[]).await?.ok_or(PostgresError::Unreadable("the number of tokens"))?;
    Ok(count.try_get::<_, i64>(0)? as u64)
}

fn read(row: &Row) -> Result<TokenRow, PostgresError> {
    Ok(TokenRow {
        hash: hash(row.try_get(0)?)?,
        accessor_hash: hash(row.try_get(1)?)?,
        parent: row.try_get::<_, Option<&[u8]>>(2)?.map(hash).transpose()?,
        uses: row.try_get::<_, Option<i64>>(3)?.map(uses).transpose()?,
        body: row.try_get(4)?,
        expires_at: row.try_get::<_, Option<i64>>(5)?.map(time).transpose()?,
        mount: row.try_get::<_, Option<i64>>(6)?.map(MountId),
        entity: row.try_get(7)?,
    })
}

fn read_hashes(rows: &[Row]) -> Result<Vec<TokenHash>, PostgresError> {
    rows.iter().map(|row| hash(row.try_get(0)?)).collect()
}

fn hash(bytes: &[u8]) -> Result<TokenHash, PostgresError> {
    bytes.try_into().map_err(|_| PostgresError::Unreadable("a stored token hash"))
}

fn uses(stored: i64) -> Result<u32, PostgresError> {
    u32::try_from(stored).map_err(|_| PostgresError::Unreadable("the stored uses of a token"))
}
