//! SQL of revocations: idempotent, numbered without gaps.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;

use super::changes::marked;
use super::query::{Failure, Session, count, execute, exists, page, row, rows, serial, time};
use crate::documents::MountId;
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::storage::backend::micros;
use crate::storage::statements::{conflict, revocations as sql};
use crate::x509::serial::Serial;

/// Revocations of a mount take turns from here on, before they look for earlier ones: so no other node
/// can come between the look and the insert. Batches of certificates do not touch this row.
const LOCK: &str = "SELECT rev_seq FROM mount WHERE id = $1 FOR NO KEY UPDATE";
const EXISTING: &str = "SELECT seq, serial, issuer, revoked_at_micros, not_after, reason, invalidity_date
    FROM revocation WHERE mount = $1 AND serial = ANY($2)";
const NEXT: &str = concat!("UPDATE mount SET rev_seq = rev_seq + $2, ", marked!(), " WHERE id = $1 RETURNING rev_seq");
const INSERT: &str = "INSERT INTO revocation
    (mount, serial, seq, issuer, revoked_at_micros, not_after, reason, invalidity_date)
    SELECT $1, UNNEST($2::BYTEA[]), UNNEST($3::BIGINT[]), UNNEST($4::TEXT[]), UNNEST($5::BIGINT[]),
        UNNEST($6::BIGINT[]), UNNEST($7::BIGINT[]), UNNEST($8::BIGINT[])";

/// The revocations of one mount that stand, in the order given, and which of them this call made. The
/// numbers come from the mount's row inside the same transaction: a transaction that fails gives them
/// back, and a lower number never appears after a higher one.
pub(super) async fn insert_all(
    db: &Session,
    mount: MountId,
    all: &[&RevocationRow],
) -> Result<Vec<(StoredRevocation, bool)>, Failure> {
    if !exists(db, LOCK, &[&mount.0]).await? {
        return Err(Failure::Conflict(conflict::MOUNT_GONE));
    }
    let serials: Vec<&[u8]> = all.iter().map(|row| row.serial.octets()).collect();
    let mut standing = HashMap::new();
    for found in rows(db, EXISTING, &[&mount.0, &serials]).await? {
        let stored = read(mount, &found, 0)?;
        standing.insert(stored.row.serial, stored);
    }
    let fresh = number(db, mount, all, &standing).await?;
    insert(db, mount, &fresh).await?;
    let mut new: HashSet<Serial> = fresh.iter().map(|stored| stored.row.serial).collect();
    standing.extend(fresh.into_iter().map(|stored| (stored.row.serial, stored)));
    let stand = |row: &&RevocationRow| {
        let stored = standing.get(&row.serial).cloned().ok_or(Failure::Unreadable("a revocation just made"))?;
        // Repeated in the same batch, only the first one made it.
        Ok((stored, new.remove(&row.serial)))
    };
    all.iter().map(stand).collect()
}

/// Those that do not stand yet, each once, with the next numbers of the mount.
async fn number(
    db: &Session,
    mount: MountId,
    all: &[&RevocationRow],
    standing: &HashMap<Serial, StoredRevocation>,
) -> Result<Vec<StoredRevocation>, Failure> {
    let mut seen = HashSet::new();
    let fresh: Vec<_> =
        all.iter().filter(|row| !standing.contains_key(&row.serial) && seen.insert(row.serial)).collect();
    if fresh.is_empty() {
        return Ok(Vec::new());
    }
    let new = fresh.len() as i64;
    let last = row(db, NEXT, &[&mount.0, &new]).await?.ok_or(Failure::Conflict(conflict::MOUNT_GONE))?;
    let first = last.try_get::<_, i64>(0)? - new + 1;
    let numbered = fresh.into_iter().zip(first..);
    Ok(numbered.map(|(row, seq)| StoredRevocation { row: (*row).clone(), sequence: seq as u64 }).collect())
}

async fn insert(db: &Session, mount: MountId, all: &[StoredRevocation]) -> Result<(), Failure> {
    fn column<'a, T>(all: &'a [StoredRevocation], of: impl Fn(&'a StoredRevocation) -> T) -> Vec<T> {
        all.iter().map(of).collect()
    }
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

/// Gives a revocation another issuer; how many there were.
pub(super) async fn set_issuer(db: &Session, mount: MountId, serial: &Serial, issuer: &str) -> Result<u32, Failure> {
    execute(db, sql::SET_ISSUER, &[&issuer, &mount.0, &serial.octets()]).await.map(count)
}

pub(super) async fn serials(
    db: &Session,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> Result<Vec<Serial>, Failure> {
    page(db, sql::SERIALS, mount, after, limit).await
}

pub(super) async fn by_sequence(
    db: &Session,
    mount: MountId,
    after: u64,
    limit: u32,
) -> Result<Vec<StoredRevocation>, Failure> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let found = rows(db, sql::PAGE, &[&mount.0, &after, &i64::from(limit)]).await?;
    found.iter().map(|row| read(mount, row, 0)).collect()
}

/// Reads the columns seq, serial, issuer, revoked_at_micros, not_after, reason, invalidity_date from
/// `first` on.
pub(super) fn read(mount: MountId, row: &Row, first: usize) -> Result<StoredRevocation, Failure> {
    let reason = row.try_get::<_, Option<i64>>(first + 5)?;
    let reason = reason.map(u8::try_from).transpose().map_err(|_| Failure::Unreadable("a stored reason"))?;
    Ok(StoredRevocation {
        sequence: row.try_get::<_, i64>(first)? as u64,
        row: RevocationRow {
            mount,
            serial: serial(row, first + 1)?,
            issuer: row.try_get(first + 2)?,
            revoked_at: time(row.try_get(first + 3)?)?,
            not_after: row.try_get(first + 4)?,
            reason,
            invalidity_date: row.try_get(first + 6)?,
        },
    })
}
