//! SQL of mounts, their removal, and the counters.
//!
//! A dropped mount disappears immediately: the same transaction removes its documents, CRLs and counters, and reads
//! skip rows of missing mounts. Certificates, revocations and tokens, perhaps millions, are removed in short steps
//! between commits. The first step for tokens is part of the drop, so that a few leases end without delay. A batch
//! holds a shared advisory lock on its mounts, for which a drop waits. Unlike a row lock, it writes nothing.

use futures_util::future::try_join;
use tokio_postgres::types::ToSql;

use super::query::{PostgresClient, PostgresError, execute, exists, row};
use super::tokens;
use crate::documents::{MountId, SYSTEM_MOUNT};
use crate::storage::statements::{DROP_PARTS, REMOVE_SOME, conflict, mounts as sql};

/// Rows per step.
const ROWS_PER_STEP: i64 = 500;

const LOCK_MOUNTS: &str = "SELECT pg_advisory_xact_lock_shared(UNNEST($1::BIGINT[]))";
const ALL_EXIST: &str = "SELECT COUNT(*) = CARDINALITY($1::BIGINT[]) FROM mount WHERE id = ANY($1)";
const LOCK_MOUNT_EXCLUSIVELY: &str = "SELECT pg_advisory_xact_lock($1)";

/// Net number of rows that a transaction inserted into a mount.
#[derive(Clone, Copy, Default)]
pub(super) struct PostgresInsertCounts {
    pub(super) certificates: i64,
    pub(super) revocations: i64,
}

pub(super) async fn create(db: &PostgresClient, mount: MountId) -> Result<(), PostgresError> {
    if exists(db, sql::IS_DROPPED, &[&mount.0]).await? || execute(db, sql::CREATE, &[&mount.0]).await? == 0 {
        return Err(PostgresError::Conflict(conflict::MOUNT_EXISTS));
    }
    Ok(())
}

/// Protects distinct mounts from being dropped until the transaction ends, and checks that they exist. The check is a
/// separate statement after the lock, so that it sees a drop that the lock waited for. Both are pipelined. The caller
/// may send rows before the response, but not COMMIT.
pub(super) async fn lock_existing(db: &PostgresClient, mounts: &[MountId]) -> Result<(), PostgresError> {
    let ids: Vec<i64> = mounts.iter().filter(|mount| **mount != SYSTEM_MOUNT).map(|mount| mount.0).collect();
    if ids.is_empty() {
        return Ok(());
    }
    // Both are prepared first, because preparing one in between would break the order.
    let lock = db.prepare_cached(LOCK_MOUNTS).await?;
    let look = db.prepare_cached(ALL_EXIST).await?;
    let ids: [&(dyn ToSql + Sync); 1] = [&ids];
    let (_, found) = try_join(db.query(&lock, &ids), db.query_one(&look, &ids)).await?;
    if found.try_get(0)? { Ok(()) } else { Err(PostgresError::Conflict(conflict::MOUNT_GONE)) }
}

pub(super) async fn drop_mount(db: &PostgresClient, mount: MountId) -> Result<(), PostgresError> {
    if mount == SYSTEM_MOUNT {
        return Err(PostgresError::Conflict(conflict::MOUNT_GONE));
    }
    row(db, LOCK_MOUNT_EXCLUSIVELY, &[&mount.0]).await?;
    if !exists(db, sql::EXISTS, &[&mount.0]).await? {
        return Err(PostgresError::Conflict(conflict::MOUNT_GONE));
    }
    for part in DROP_PARTS {
        execute(db, part, &[&mount.0]).await?;
    }
    execute(db, sql::DROP, &[&mount.0]).await?;
    execute(db, sql::MARK, &[&mount.0]).await?;
    tokens::revoke_of_mount(db, mount.0, ROWS_PER_STEP).await?;
    Ok(())
}

pub(super) async fn has_dropped(db: &PostgresClient) -> Result<bool, PostgresError> {
    exists(db, sql::ANY_DROPPED, &[]).await
}

/// Removes a few rows of a dropped mount; returns `true` if more are left.
pub(super) async fn remove_dropped_rows(db: &PostgresClient) -> Result<bool, PostgresError> {
    let Some(next) = row(db, sql::NEXT_DROPPED, &[]).await? else { return Ok(false) };
    let mount: i64 = next.try_get(0)?;
    if tokens::revoke_of_mount(db, mount, ROWS_PER_STEP).await? {
        return Ok(true);
    }
    for rows in REMOVE_SOME {
        if execute(db, rows, &[&mount, &ROWS_PER_STEP]).await? > 0 {
            return Ok(true);
        }
    }
    execute(db, sql::REMOVED, &[&mount]).await?;
    has_dropped(db).await
}

pub(super) async fn add_counts(
    db: &PostgresClient,
    mount: MountId,
    node: i64,
    inserted: PostgresInsertCounts,
) -> Result<(), PostgresError> {
    execute(db, sql::COUNT, &[&mount.0, &node, &inserted.certificates, &inserted.revocations]).await.map(drop)
}

pub(super) async fn mount_exists(db: &PostgresClient, mount: MountId) -> Result<bool, PostgresError> {
    exists(db, sql::EXISTS, &[&mount.0]).await
}

/// The numbers of stored certificates and revocations.
pub(super) async fn read_counts(db: &PostgresClient, mount: MountId) -> Result<(u64, u64), PostgresError> {
    let sums = row(db, sql::COUNTS, &[&mount.0]).await?.ok_or(PostgresError::Unreadable("the counters"))?;
    Ok((sums.try_get::<_, i64>(0)? as u64, sums.try_get::<_, i64>(1)? as u64))
}
