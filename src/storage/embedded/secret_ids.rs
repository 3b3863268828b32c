//! SQL of secret ids.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::mounts::MountCache;
use super::query::{SqliteError, count, prepare, time};
use crate::auth::store::{AuthOutcome, SecretIdKey, SecretIdRow, SecretIdWrite};
use crate::clock::Time;
use crate::documents::MountId;
use crate::storage::backend::{known_to_all_nodes_before, micros};
use crate::storage::statements::{conflict, secret_ids as sql};

pub(super) fn write(
    db: &Connection,
    touched: &mut MountCache,
    write: &SecretIdWrite,
    now: Time,
) -> Result<AuthOutcome, SqliteError> {
    Ok(match write {
        SecretIdWrite::Insert(row) => {
            touched.mount(db, row.mount)?;
            insert(db, row)?
        }
        SecretIdWrite::Spend { mount, hash, now } => {
            let left = prepare(db, sql::SPEND)?
                .query_row(params![micros(*now), mount.0, hash], |row| row.get(0))
                .optional()?;
            if left == Some(0) {
                prepare(db, sql::REMOVE)?.execute(params![mount.0, hash])?;
            }
            left.map_or(AuthOutcome::Absent, AuthOutcome::UsesLeft)
        }
        SecretIdWrite::Remove { mount, hash } => match prepare(db, sql::REMOVE)?.execute(params![mount.0, hash])? {
            0 => AuthOutcome::Absent,
            _ => AuthOutcome::Done,
        },
        SecretIdWrite::DeleteRole { mount, role } => {
            touched.mount(db, *mount)?;
            prepare(db, sql::END_ROLE)?.execute(params![mount.0, role, micros(now)])?;
            AuthOutcome::Done
        }
        SecretIdWrite::Sweep { now, limit } => {
            let ended = prepare(db, sql::SWEEP)?.execute(params![micros(*now), limit])?;
            let of_ended = prepare(db, sql::SWEEP_ENDED)?.execute([limit])?;
            prepare(db, sql::FORGET_ROLES)?.execute([known_to_all_nodes_before(*now)])?;
            AuthOutcome::Swept(count(ended + of_ended))
        }
    })
}

fn insert(db: &Connection, row: &SecretIdRow) -> Result<AuthOutcome, SqliteError> {
    let mount = row.mount.0;
    let expires_at = row.expires_at.map(micros);
    let updated_at = micros(row.updated_at);
    if prepare(db, sql::ROLE_HAS_ENDED)?.exists(params![mount, row.role])? {
        return Ok(AuthOutcome::Absent);
    }
    prepare(db, sql::FREE)?.execute(params![mount, row.hash, updated_at])?;
    let values = params![mount, row.hash, row.role, row.accessor, expires_at, row.uses, updated_at, row.body];
    match prepare(db, sql::INSERT)?.execute(values)? {
        0 => Err(SqliteError::Conflict(conflict::SECRET_ID_EXISTS)),
        _ => Ok(AuthOutcome::Done),
    }
}

pub(super) fn find(
    db: &Connection,
    mount: MountId,
    role: i64,
    key: &SecretIdKey,
) -> rusqlite::Result<Option<SecretIdRow>> {
    match key {
        SecretIdKey::Hash(hash) => prepare(db, sql::BY_HASH)?.query_row(params![mount.0, role, hash], read),
        SecretIdKey::Accessor(text) => prepare(db, sql::BY_ACCESSOR)?.query_row(params![mount.0, role, text], read),
    }
    .optional()
}

pub(super) fn accessors(
    db: &Connection,
    mount: MountId,
    role: i64,
    after: &str,
    now: Time,
    limit: u32,
) -> rusqlite::Result<Vec<String>> {
    let asked = params![mount.0, role, after, micros(now), limit];
    prepare(db, sql::ACCESSORS)?.query_map(asked, |row| row.get(0))?.collect()
}

pub(super) fn is_role_live(db: &Connection, mount: MountId, role: i64) -> rusqlite::Result<bool> {
    prepare(db, sql::ROLE_STANDS)?.exists(params![mount.0, role])
}

fn read(row: &Row<'_>) -> rusqlite::Result<SecretIdRow> {
    Ok(SecretIdRow {
        mount: MountId(row.get(0)?),
        role: row.get(1)?,
        hash: row.get(2)?,
        accessor: row.get(3)?,
        expires_at: row.get::<_, Option<i64>>(4)?.map(|_| time(row, 4)).transpose()?,
        uses: row.get(5)?,
        updated_at: time(row, 6)?,
        body: row.get(7)?,
    })
}
