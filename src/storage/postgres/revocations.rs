//! SQL of revocations, which are idempotent. Their sequence numbers are assigned without gaps.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::changes::marked;
use super::query::{PostgresClient, PostgresError, execute, exists, read_serial, read_time, row, rows};
use crate::documents::MountId;
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, revocations as sql};
use crate::x509::serial::Serial;

/// Locks the row of a mount, so that only one transaction at a time revokes certificates of the mount. The lock is
/// taken before the lookup of existing revocations, so that no other node can insert one after the lookup. Inserts of
/// certificates do not take this lock.
const LOCK_MOUNT: &str = "SELECT rev_seq FROM mount WHERE id = $1 FOR NO KEY UPDATE";
const SELECT_EXISTING: &str = "SELECT seq, serial, issuer, revoked_at_micros, not_after, reason, invalidity_date
    FROM revocation WHERE mount = $1 AND serial = ANY($2)";
const NEXT_SEQUENCES: &str =
    concat!("UPDATE mount SET rev_seq = rev_seq + $2, ", marked!(), " WHERE id = $1 RETURNING rev_seq");
const INSERT: &str = "INSERT INTO revocation
    (mount, serial, seq, issuer, revoked_at_micros, not_after, reason, invalidity_date)
    SELECT $1, UNNEST($2::BYTEA[]), UNNEST($3::BIGINT[]), UNNEST($4::TEXT[]), UNNEST($5::BIGINT[]),
        UNNEST($6::BIGINT[]), UNNEST($7::BIGINT[]), UNNEST($8::BIGINT[])";
const AMEND: &str = "UPDATE revocation SET seq = new.seq, reason = new.reason, invalidity_date = new.invalidity_date
    FROM UNNEST($2::BYTEA[], $3::BIGINT[], $4::BIGINT[], $5::BIGINT[]) AS new (serial, seq, reason, invalidity_date)
    WHERE revocation.mount = $1 AND revocation.serial = new.serial";

pub(super) struct InsertedRevocation {
    pub(super) stored: StoredRevocation,
    /// `true` if this call inserted the revocation; `false` if it existed before.
    pub(super) fresh: bool,
}

/// Inserts revocations of one mount, or amends the stored revocations of the same serials. Returns the stored
/// revocations in the order of `all`, and `true` if any was inserted or amended. The sequence numbers come from the
/// mount's row in the same transaction, so a failed transaction releases them, and numbers become visible in ascending
/// order.
pub(super) async fn insert_all(
    db: &PostgresClient,
    mount: MountId,
    all: &[&RevocationRow],
) -> Result<(Vec<InsertedRevocation>, bool), PostgresError> {
    if !exists(db, LOCK_MOUNT, &[&mount.0]).await? {
        return Err(PostgresError::Conflict(conflict::MOUNT_GONE));
    }
    let serials: Vec<&[u8]> = all.iter().map(|row| row.serial.octets()).collect();
    let mut stored_rows = HashMap::new();
    for found in rows(db, SELECT_EXISTING, &[&mount.0, &serials]).await? {
        let stored = read_revocation(mount, &found, 0)?;
        stored_rows.insert(stored.row.serial, stored);
    }
    let (fresh, amended) = assign_sequences(db, mount, split_new_and_amended(all, &stored_rows)).await?;
    insert(db, mount, &fresh).await?;
    amend(db, mount, &amended).await?;
    let changed = !fresh.is_empty() || !amended.is_empty();
    let mut new: HashSet<Serial> = fresh.iter().map(|stored| stored.row.serial).collect();
    stored_rows.extend(fresh.into_iter().chain(amended).map(|stored| (stored.row.serial, stored)));
    let to_inserted = |row: &&RevocationRow| {
        let stored = stored_rows
            .get(&row.serial)
            .cloned()
            .ok_or(PostgresError::Unreadable("defect: a new revocation is missing among the stored ones"))?;
        // If a serial number occurs twice in `all`, only its first occurrence is reported as new.
        Ok(InsertedRevocation { stored, fresh: new.remove(&row.serial) })
    };
    Ok((all.iter().map(to_inserted).collect::<Result<_, PostgresError>>()?, changed))
}

/// Splits rows into new revocations and amendments of stored ones. Repetitions in `all` are merged, so that each serial
/// number occurs once in the result.
fn split_new_and_amended(
    all: &[&RevocationRow],
    stored_rows: &HashMap<Serial, StoredRevocation>,
) -> (Vec<RevocationRow>, Vec<RevocationRow>) {
    let mut changed: Vec<RevocationRow> = Vec::with_capacity(all.len());
    let mut indices = HashMap::new();
    for row in all {
        let index = indices.get(&row.serial).copied();
        let previous =
            index.map(|at: usize| &changed[at]).or_else(|| stored_rows.get(&row.serial).map(|stored| &stored.row));
        let next = match previous {
            None => Some((*row).clone()),
            Some(previous) => previous.amended_by(row),
        };
        match (next, index) {
            (Some(next), Some(at)) => changed[at] = next,
            (Some(next), None) => {
                indices.insert(row.serial, changed.len());
                changed.push(next);
            }
            (None, _) => {}
        }
    }
    changed.into_iter().partition(|row| !stored_rows.contains_key(&row.serial))
}

/// Assigns the next sequence numbers of the mount to new and amended revocations.
async fn assign_sequences(
    db: &PostgresClient,
    mount: MountId,
    (fresh, amended): (Vec<RevocationRow>, Vec<RevocationRow>),
) -> Result<(Vec<StoredRevocation>, Vec<StoredRevocation>), PostgresError> {
    let new = (fresh.len() + amended.len()) as i64;
    if new == 0 {
        return Ok(Default::default());
    }
    let last =
        row(db, NEXT_SEQUENCES, &[&mount.0, &new]).await?.ok_or(PostgresError::Conflict(conflict::MOUNT_GONE))?;
    let mut sequence = last.try_get::<_, i64>(0)? - new;
    let mut numbered = |row| {
        sequence += 1;
        StoredRevocation { row, sequence: sequence as u64 }
    };
    let fresh = fresh.into_iter().map(&mut numbered).collect();
    Ok((fresh, amended.into_iter().map(numbered).collect()))
}

fn column<'a, T>(all: &'a [StoredRevocation], of: impl Fn(&'a StoredRevocation) -> T) -> Vec<T> {
    all.iter().map(of).collect()
}

async fn insert(db: &PostgresClient, mount: MountId, all: &[StoredRevocation]) -> Result<(), PostgresError> {
    if all.is_empty() {
        return Ok(());
    }
    execute(
        db,
        INSERT,
        &[
            &mount.0,
            &column(all, |stored| stored.row.serial.octets()),
            &column(all, |stored| stored.sequence as i64),
            &column(all, |stored| stored.row.issuer.as_str()),
            &column(all, |stored| micros(stored.row.revoked_at)),
            &column(all, |stored| stored.row.not_after),
            &column(all, |stored| stored.row.reason.map(i64::from)),
            &column(all, |stored| stored.row.invalidity_date),
        ],
    )
    .await
    .map(drop)
}

async fn amend(db: &PostgresClient, mount: MountId, all: &[StoredRevocation]) -> Result<(), PostgresError> {
    if all.is_empty() {
        return Ok(());
    }
    execute(
        db,
        AMEND,
        &[
            &mount.0,
            &column(all, |stored| stored.row.serial.octets()),
            &column(all, |stored| stored.sequence as i64),
            &column(all, |stored| stored.row.reason.map(i64::from)),
            &column(all, |stored| stored.row.invalidity_date),
        ],
    )
    .await
    .map(drop)
}

pub(super) async fn by_sequence(
    db: &PostgresClient,
    mount: MountId,
    after: i64,
    limit: u32,
) -> Result<Vec<StoredRevocation>, PostgresError> {
    let found = rows(db, sql::PAGE, &[&mount.0, &after, &i64::from(limit)]).await?;
    found.iter().map(|row| read_revocation(mount, row, 0)).collect()
}

/// Reads a revocation from column `first` on: seq, serial, issuer, revoked_at_micros, not_after, reason and
/// invalidity_date.
pub(super) fn read_revocation(mount: MountId, row: &Row, first: usize) -> Result<StoredRevocation, PostgresError> {
    let reason = row.try_get::<_, Option<i64>>(first + 5)?;
    let reason = reason
        .map(u8::try_from)
        .transpose()
        .map_err(|_| PostgresError::Unreadable("a stored revocation reason is invalid"))?;
    Ok(StoredRevocation {
        sequence: row.try_get::<_, i64>(first)? as u64,
        row: RevocationRow {
            mount,
            serial: read_serial(row, first + 1)?,
            issuer: row.try_get(first + 2)?,
            revoked_at: read_time(row.try_get(first + 3)?)?,
            not_after: row.try_get(first + 4)?,
            reason,
            invalidity_date: row.try_get(first + 6)?,
        },
    })
}
