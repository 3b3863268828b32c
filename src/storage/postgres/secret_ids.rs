//! SQL of secret ids.

use tokio_postgres::Row;

use super::query::{PostgresClient, PostgresError, count, execute, exists, row, rows, time};
use super::transaction::Transaction;
use crate::auth::store::{AuthOutcome, SecretIdKey, SecretIdRow, SecretIdWrite};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::{known_to_all_nodes_before, micros};
use crate::storage::statements::{conflict, secret_ids as sql};

pub(super) async fn write(
    tx: &mut Transaction<'_>,
    write: &SecretIdWrite,
    now: Time,
) -> Result<AuthOutcome, PostgresError> {
    let db = tx.db;
    Ok(match write {
        SecretIdWrite::Insert(row) => {
            tx.hold(row.mount).await?;
            insert(db, row).await?
        }
        SecretIdWrite::Spend { mount, hash, now } => {
            let hash = &hash[..];
            // Waits for a concurrent use on another node, and then sees its result.
            let Some(spent) = row(db, sql::SPEND, &[&micros(*now), &mount.0, &hash]).await? else {
                return Ok(AuthOutcome::Absent);
            };
            let left = uses(spent.try_get(0)?)?;
            if left == 0 {
                execute(db, sql::REMOVE, &[&mount.0, &hash]).await?;
            }
            AuthOutcome::UsesLeft(left)
        }
        SecretIdWrite::Remove { mount, hash } => match execute(db, sql::REMOVE, &[&mount.0, &&hash[..]]).await? {
            0 => AuthOutcome::Absent,
            _ => AuthOutcome::Done,
        },
        SecretIdWrite::DeleteRole { mount, role } => {
            tx.hold(*mount).await?;
            execute(db, sql::END_ROLE, &[&mount.0, role, &micros(now)]).await?;
            AuthOutcome::Done
        }
        SecretIdWrite::Sweep { now, limit } => {
            let limit = i64::from(*limit);
            let ended = execute(db, sql::SWEEP, &[&micros(*now), &limit]).await?;
            let of_ended = execute(db, sql::SWEEP_ENDED, &[&limit]).await?;
            execute(db, sql::FORGET_ROLES, &[&known_to_all_nodes_before(*now)]).await?;
            AuthOutcome::Swept(count(ended + of_ended))
        }
    })
}

async fn insert(db: &PostgresClient, row: &SecretIdRow) -> Result<AuthOutcome, PostgresError> {
    let mount = row.mount.0;
    let hash = &row.hash[..];
    let updated_at = micros(row.updated_at);
    if exists(db, sql::ROLE_HAS_ENDED, &[&mount, &row.role]).await? {
        return Ok(AuthOutcome::Absent);
    }
    execute(db, sql::FREE, &[&mount, &hash, &updated_at]).await?;
    let expires_at = row.expires_at.map(micros);
    let uses = row.uses.map(i64::from);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
        [&mount, &hash, &row.role, &row.accessor, &expires_at, &uses, &updated_at, &row.body];
    match execute(db, sql::INSERT, &values).await? {
        0 => Err(PostgresError::Conflict(conflict::SECRET_ID_EXISTS)),
        _ => Ok(AuthOutcome::Done),
    }
}

pub(super) async fn find(
    db: &PostgresClient,
    mount: MountId,
    role: i64,
    key: SecretIdKey,
) -> Result<Option<SecretIdRow>, PostgresError> {
    let found = match key {
        SecretIdKey::Hash(hash) => row(db, sql::BY_HASH, &[&mount.0, &role, &&hash[..]]).await?,
        SecretIdKey::Accessor(text) => row(db, sql::BY_ACCESSOR, &[&mount.0, &role, &text]).await?,
    };
    found.as_ref().map(read).transpose()
}

pub(super) async fn accessors(
    db: &PostgresClient,
    mount: MountId,
    role: i64,
    after: String,
    now: Time,
    limit: u32,
) -> Result<Vec<String>, PostgresError> {
    let found = rows(db, sql::ACCESSORS, &[&mount.0, &role, &after, &micros(now), &i64::from(limit)]).await?;
    found.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn is_role_live(db: &PostgresClient, mount: MountId, role: i64) -> Result<bool, PostgresError> {
    exists(db, sql::ROLE_STANDS, &[&mount.0, &role]).await
}

fn read(row: &Row) -> Result<SecretIdRow, PostgresError> {
    let hash = row.try_get::<_, &[u8]>(2)?.try_into().map_err(|_| PostgresError::Unreadable("a stored secret id"))?;
    Ok(SecretIdRow {
        mount: MountId(row.try_get(0)?),
        role: row.try_get(1)?,
        hash,
        accessor: row.try_get(3)?,
        expires_at: row.try_get::<_, Option<i64>>(4)?.map(time).transpose()?,
        uses: row.try_get::<_, Option<i64>>(5)?.map(uses).transpose()?,
        updated_at: time(row.try_get(6)?)?,
        body: row.try_get(7)?,
    })
}

fn uses(stored: i64) -> Result<u32, PostgresError> {
    u32::try_from(stored).map_err(|_| PostgresError::Unreadable("the stored uses of a secret id"))
}
