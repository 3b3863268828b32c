//! Mounts, their removal, and the counters of their certificates and revocations.
//!
//! A dropped mount disappears immediately: the transaction that drops it removes its documents, CRLs and counters, and
//! reads skip rows of missing mounts. There may be millions of certificates, revocations and tokens, so these are
//! removed in short steps between commits. The drop includes the first step for tokens, so that the leases of a mount
//! with few tokens end without delay.

use super::{TableConnection, TableError, TableResult, column, exists, map_row};
use crate::documents::{MountId, SYSTEM_MOUNT};
use crate::sql::SqlRow;
use crate::storage::engine::WriteConnection;
use crate::storage::statements::{DELETE_FEW_ROWS_OF_MOUNT, DELETE_MANY_ROWS_OF_MOUNT, conflict, mounts as sql};

pub(crate) async fn create<C: TableConnection>(db: &C, mount: MountId) -> TableResult<C, ()> {
    let id = [mount.into()];
    if exists(db, sql::IS_DROPPED, &id).await? || db.execute(sql::CREATE, &id).await? == 0 {
        return Err(TableError::Conflict(conflict::MOUNT_EXISTS));
    }
    Ok(())
}

pub(crate) async fn mount_exists<C: TableConnection>(db: &C, mount: MountId) -> TableResult<C, bool> {
    exists(db, sql::EXISTS, &[mount.into()]).await
}

pub(crate) async fn drop_mount<C: WriteConnection>(db: &C, mount: MountId) -> TableResult<C, ()> {
    if mount == SYSTEM_MOUNT {
        return Err(TableError::Conflict(conflict::MOUNT_GONE));
    }
    db.lock_mount_exclusively(mount).await?;
    if !mount_exists(db, mount).await? {
        return Err(TableError::Conflict(conflict::MOUNT_GONE));
    }
    for statement in DELETE_FEW_ROWS_OF_MOUNT.into_iter().chain([sql::DROP, sql::MARK_DROPPED]) {
        db.execute(statement, &[mount.into()]).await?;
    }
    db.revoke_tokens_of_mount(mount).await.map(drop)
}

pub(crate) async fn has_dropped<C: TableConnection>(db: &C) -> TableResult<C, bool> {
    exists(db, sql::ANY_DROPPED, &[]).await
}

/// Removes a few rows of a dropped mount; returns `true` if more are left.
pub(crate) async fn remove_rows_of_dropped_mount<C: WriteConnection>(db: &C) -> TableResult<C, bool> {
    let next: Vec<MountId> = column(db, sql::NEXT_DROPPED, &[]).await?;
    let Some(mount) = next.first().copied() else { return Ok(false) };
    if db.revoke_tokens_of_mount(mount).await? {
        return Ok(true);
    }
    for statement in DELETE_MANY_ROWS_OF_MOUNT {
        if db.execute(statement, &[mount.into(), i64::from(C::REMOVED_ROWS_PER_STEP).into()]).await? > 0 {
            return Ok(true);
        }
    }
    db.execute(sql::DELETE_DROPPED, &[mount.into()]).await?;
    has_dropped(db).await
}

/// Reads the numbers of stored certificates and revocations of a mount.
pub(crate) async fn read_counts<C: TableConnection>(db: &C, mount: MountId) -> TableResult<C, (u64, u64)> {
    let read = |row: &mut SqlRow| Ok((row.get::<i64>()? as u64, row.get::<i64>()? as u64));
    map_row(db, sql::SELECT_COUNTS, &[mount.into()], read)
        .await?
        .ok_or(TableError::Unreadable("the query for the counters of a mount returned no row"))
}
