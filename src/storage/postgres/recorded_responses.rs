//! SQL of recorded responses: the result of each request with an idempotency key, stored under the key.

use std::collections::{HashMap, HashSet};

use super::query::{PostgresClient, PostgresError, column, execute, rows};
use crate::pki::store::{PkiWrite, RecordedResponseRow};
use crate::storage::backend::WriteUnit;

/// Inserts responses, or replaces expired ones. Waits if another node has an uncommitted row with the same key.
const INSERT: &str = "INSERT INTO answered_request (key, request, serial, lease, expires_at)
    SELECT UNNEST($1::BYTEA[]), UNNEST($2::BYTEA[]), UNNEST($3::BYTEA[]), UNNEST($4::TEXT[]), UNNEST($5::BIGINT[])
    ON CONFLICT (key) DO UPDATE SET request = excluded.request, serial = excluded.serial, lease = excluded.lease,
        expires_at = excluded.expires_at
    WHERE answered_request.expires_at <= $6";

const SELECT_RECORDED: &str = "SELECT key, expires_at FROM answered_request WHERE key = ANY($1)";

/// Returns the indexes of the units whose idempotency key is already stored, or used by an earlier unit of the batch.
/// Only these units are rejected, and the rows of the others are still inserted with one statement. [`insert_all`]
/// finds keys that another node stores later.
pub(super) async fn find_repeated_units(
    db: &PostgresClient,
    units: &[WriteUnit],
) -> Result<HashSet<usize>, PostgresError> {
    let keyed: Vec<(usize, &RecordedResponseRow)> =
        units.iter().enumerate().flat_map(|(at, unit)| rows_of_unit(unit).map(move |row| (at, row))).collect();
    if keyed.is_empty() {
        return Ok(HashSet::new());
    }
    let mut stored_rows = HashMap::new();
    let keys: Vec<&[u8]> = keyed.iter().map(|(_, row)| &row.key[..]).collect();
    for found in rows(db, SELECT_RECORDED, &[&keys]).await? {
        stored_rows.insert(found.try_get::<_, Vec<u8>>(0)?, found.try_get::<_, i64>(1)?);
    }
    let mut first = HashMap::new();
    let mut repeats = HashSet::new();
    for (at, row) in keyed {
        let is_recorded = stored_rows.get(&row.key[..]).is_some_and(|expires_at| *expires_at > row.responded_at());
        if is_recorded || *first.entry(row.key).or_insert(at) != at {
            repeats.insert(at);
        }
    }
    Ok(repeats)
}

fn rows_of_unit(unit: &WriteUnit) -> impl Iterator<Item = &RecordedResponseRow> {
    let writes = if let WriteUnit::Pki(writes) = unit { &writes[..] } else { &[] };
    writes.iter().filter_map(|write| if let PkiWrite::RecordedResponse(row) = write { Some(row) } else { None })
}

/// Inserts recorded responses in one statement. Fails with `SerialTaken` if a key is taken or occurs twice in `all`,
/// and then the caller must roll back to its savepoint or the whole transaction.
pub(super) async fn insert_all(db: &PostgresClient, all: &[&RecordedResponseRow]) -> Result<(), PostgresError> {
    // Sorted by key, so that two nodes that insert the same keys cannot deadlock.
    let mut all = all.to_vec();
    all.sort_unstable_by_key(|row| row.key);
    if all.windows(2).any(|pair| pair[0].key == pair[1].key) {
        return Err(PostgresError::SerialTaken);
    }
    let answered_at = all.iter().map(|row| row.responded_at()).min();
    let stored = execute(
        db,
        INSERT,
        &[
            &column(&all, |row| &row.key[..]),
            &column(&all, |row| &row.request[..]),
            &column(&all, |row| row.serial.octets()),
            &column(&all, |row| row.lease.as_deref()),
            &column(&all, |row| row.expires_at),
            &answered_at,
        ],
    )
    .await?;
    if stored < all.len() as u64 { Err(PostgresError::SerialTaken) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::store::AuthWrite;
    use crate::documents::MountId;
    use crate::pki::store::CertificateRow;
    use crate::storage::backend::StoreBackend as _;
    use crate::storage::postgres::fixture::Postgres;
    use crate::storage::postgres::open;
    use crate::storage::tests::contract::Fixture as _;
    use crate::x509::serial::Serial;

    const NOW: i64 = 1_800_000_000;

    fn unit(mount: MountId, key: Option<(u8, i64)>) -> WriteUnit {
        let serial = Serial::random();
        let row = CertificateRow {
            mount,
            serial,
            issuer: "issuer-1".into(),
            role: None,
            common_name: None,
            not_before: 0,
            not_after: 1,
            issued_at: 0,
            requester: String::new(),
            der: vec![0x30],
        };
        let answered = key.map(|(key, at)| {
            let expires_at = at + RecordedResponseRow::LIFETIME_SECONDS;
            PkiWrite::RecordedResponse(RecordedResponseRow {
                key: [key; 32],
                request: [0; 32],
                serial,
                lease: None,
                expires_at,
            })
        });
        WriteUnit::Pki(std::iter::once(PkiWrite::Certificate(row)).chain(answered).collect())
    }

    #[tokio::test]
    async fn repeated_idempotency_keys_do_not_split_the_insert() {
        let fixture = Postgres::new();
        let (mut writer, _reader) = open(fixture.url()).await.unwrap();
        let mount = MountId::random();
        let made = WriteUnit::Auth { writes: vec![AuthWrite::MountCreate(mount)], now: crate::clock::Time::UNIX_EPOCH };
        assert!(writer.apply(vec![made]).await[0].is_ok());
        // Counts the distinct transaction ids of the rows, because every savepoint would add an id.
        let numbers = || fixture.query_number("SELECT COUNT(DISTINCT xmin::text) FROM certificate");
        let end = NOW + RecordedResponseRow::LIFETIME_SECONDS;
        /// An idempotency key and the time of its use; `None` for a unit without a key.
        type Keyed = Option<(u8, i64)>;
        let batches: [(&[Keyed], &[bool]); 3] = [
            // Two units have the same key, and the second one is rejected.
            (&[None, Some((1, NOW)), None, Some((1, NOW)), Some((2, NOW))], &[true, true, true, false, true]),
            // A stored key is rejected until its last second.
            (&[None, Some((1, NOW)), Some((3, NOW)), Some((1, end - 1))], &[true, false, true, false]),
            // A stored key that has expired can be used again, once per batch.
            (&[Some((1, end)), None, Some((1, end)), Some((2, NOW))], &[true, true, false, false]),
        ];
        let mut stored = 0;
        for (transactions, (keys, accepted)) in (1..).zip(batches) {
            let answers = writer.apply(keys.iter().map(|key| unit(mount, *key)).collect()).await;
            for (answer, is_accepted) in answers.iter().zip(accepted) {
                let outcomes = format!("{:?}", answer.as_ref().unwrap());
                assert_eq!(outcomes.contains("SerialTaken"), !is_accepted, "batch {transactions}: {outcomes}");
            }
            stored += accepted.iter().filter(|is_accepted| **is_accepted).count() as i64;
            assert_eq!(fixture.query_number("SELECT COUNT(*) FROM certificate"), stored);
            assert_eq!(numbers(), transactions, "every unit of a batch is in its one transaction");
        }
    }
}
