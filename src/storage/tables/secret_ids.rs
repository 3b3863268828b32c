//! Writes and reads of the secret ids of the `approle` method.

use super::{TableConnection, TableError, TableResult, column, done_or_absent, exists, row, swept_outcome};
use crate::auth::store::{AuthOutcome, SecretIdKey, SecretIdRow, SecretIdWrite};
use crate::clock::Time;
use crate::documents::MountId;
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::propagation_cutoff_micros;
use crate::storage::statements::{conflict, secret_ids as sql};

/// Returns the mount that must exist until the transaction of the write ends; `None` if the write needs none.
pub(crate) fn required_mount(write: &SecretIdWrite) -> Option<MountId> {
    match write {
        SecretIdWrite::Insert(row) => Some(row.mount),
        SecretIdWrite::DeleteRole { mount, .. } => Some(*mount),
        SecretIdWrite::Spend { .. } | SecretIdWrite::Remove { .. } | SecretIdWrite::Sweep { .. } => None,
    }
}

/// Runs a write. The caller has checked the [`required_mount`] of the write.
pub(crate) async fn write<C: TableConnection>(db: &C, write: &SecretIdWrite, now: Time) -> TableResult<C, AuthOutcome> {
    match write {
        SecretIdWrite::Insert(row) => insert(db, row).await,
        SecretIdWrite::Spend { mount, hash, now } => {
            // If another node uses the same secret id concurrently, the statement waits for that transaction and then
            // sees the remaining uses.
            let spent = row(db, sql::SPEND, &[(*now).into(), mount.0.into(), hash.to_vec().into()]).await?;
            let Some(mut spent) = spent else { return Ok(AuthOutcome::Absent) };
            let left: u32 = spent.get()?;
            if left == 0 {
                db.execute(sql::REMOVE, &[mount.0.into(), hash.to_vec().into()]).await?;
            }
            Ok(AuthOutcome::UsesLeft(left))
        }
        SecretIdWrite::Remove { mount, hash } => {
            let removed = db.execute(sql::REMOVE, &[mount.0.into(), hash.to_vec().into()]).await?;
            Ok(done_or_absent(removed > 0))
        }
        SecretIdWrite::DeleteRole { mount, role } => {
            db.execute(sql::END_ROLE, &[mount.0.into(), (*role).into(), now.into()]).await?;
            Ok(AuthOutcome::Done)
        }
        SecretIdWrite::Sweep { now, limit } => {
            let limit: SqlValue = i64::from(*limit).into();
            let ended = db.execute(sql::SWEEP, &[(*now).into(), limit.clone()]).await?;
            let of_ended = db.execute(sql::SWEEP_ENDED, &[limit]).await?;
            db.execute(sql::FORGET_ROLES, &[propagation_cutoff_micros(*now).into()]).await?;
            Ok(swept_outcome(ended + of_ended))
        }
    }
}

async fn insert<C: TableConnection>(db: &C, row: &SecretIdRow) -> TableResult<C, AuthOutcome> {
    let SecretIdRow { mount, role, hash, accessor, expires_at, uses, updated_at, body } = row.clone();
    let mount: SqlValue = mount.0.into();
    let hash: SqlValue = hash.to_vec().into();
    if exists(db, sql::ROLE_HAS_ENDED, &[mount.clone(), role.into()]).await? {
        return Ok(AuthOutcome::Absent);
    }
    db.execute(sql::DELETE_EXPIRED, &[mount.clone(), hash.clone(), updated_at.into()]).await?;
    let values: [SqlValue; 8] = [
        mount,
        hash,
        role.into(),
        accessor.into(),
        expires_at.into(),
        uses.map(i64::from).into(),
        updated_at.into(),
        body.into(),
    ];
    match db.execute(sql::INSERT, &values).await? {
        0 => Err(TableError::Conflict(conflict::SECRET_ID_EXISTS)),
        _ => Ok(AuthOutcome::Done),
    }
}

pub(crate) async fn find<C: TableConnection>(
    db: &C,
    mount: MountId,
    role: i64,
    key: SecretIdKey,
) -> TableResult<C, Option<SecretIdRow>> {
    let found = match key {
        SecretIdKey::Hash(hash) => row(db, sql::BY_HASH, &[mount.0.into(), role.into(), hash.to_vec().into()]).await?,
        SecretIdKey::Accessor(text) => row(db, sql::BY_ACCESSOR, &[mount.0.into(), role.into(), text.into()]).await?,
    };
    Ok(found.map(read_secret_id).transpose()?)
}

pub(crate) async fn accessors<C: TableConnection>(
    db: &C,
    mount: MountId,
    role: i64,
    after: String,
    now: Time,
    limit: u32,
) -> TableResult<C, Vec<String>> {
    let values: [SqlValue; 5] = [mount.0.into(), role.into(), after.into(), now.into(), i64::from(limit).into()];
    column(db, sql::ACCESSORS, &values).await
}

pub(crate) async fn is_role_live<C: TableConnection>(db: &C, mount: MountId, role: i64) -> TableResult<C, bool> {
    exists(db, sql::ROLE_EXISTS, &[mount.0.into(), role.into()]).await
}

fn read_secret_id(mut row: SqlRow) -> Result<SecretIdRow, SqlError> {
    Ok(SecretIdRow {
        mount: MountId(row.get()?),
        role: row.get()?,
        hash: row.get()?,
        accessor: row.get()?,
        expires_at: row.get()?,
        uses: row.get()?,
        updated_at: row.get()?,
        body: row.get()?,
    })
}
