//! SQL of leases, and of the records of tokens that ended while they had leases.

use super::query::{PostgresClient, PostgresError, column, execute, exists, insert};
use crate::auth::store::TokenHash;
use crate::pki::store::LeaseRow;

/// Locks a live token until its new lease is committed. A concurrent revocation or last use of the token waits for the
/// lock, and then finds the lease.
const LOCK_LIVE_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 AND (uses IS NULL OR uses > 0) FOR SHARE";
const INSERT: &str = "INSERT INTO lease (id, mount, serial, token, issued_at, expires_at)
    SELECT UNNEST($1::TEXT[]), UNNEST($2::BIGINT[]), UNNEST($3::BYTEA[]), UNNEST($4::BYTEA[]), UNNEST($5::BIGINT[]),
        UNNEST($6::BIGINT[])";
const INSERT_ENDED_TOKENS: &str = "INSERT INTO ended_token (hash)
    SELECT gone.hash FROM UNNEST($1::BYTEA[]) AS gone (hash)
    WHERE EXISTS (SELECT 1 FROM lease WHERE lease.token = gone.hash AND lease.ending = 0)
    ON CONFLICT (hash) DO NOTHING";

/// Returns `true` if a token is live, and locks it until the end of the transaction.
pub(super) async fn lock_live_token(db: &PostgresClient, token: &TokenHash) -> Result<bool, PostgresError> {
    exists(db, LOCK_LIVE_TOKEN, &[&&token[..]]).await
}

/// Inserts leases in one statement. Fails with `SerialTaken` if a lease id or serial number is taken, and then the
/// caller must roll back to its savepoint or the whole transaction. The tokens of the leases must be locked.
pub(super) async fn insert_all(db: &PostgresClient, all: &[&LeaseRow]) -> Result<(), PostgresError> {
    insert(
        db,
        INSERT,
        &[
            &column(all, |row| row.id.as_str()),
            &column(all, |row| row.mount.0),
            &column(all, |row| row.serial.octets()),
            &column(all, |row| &row.token[..]),
            &column(all, |row| row.issued_at),
            &column(all, |row| row.expires_at),
        ],
    )
    .await
}

/// Records the end of each of these tokens that has leases, so that the leases are revoked later.
pub(super) async fn record_ended_tokens(db: &PostgresClient, hashes: &[&[u8]]) -> Result<(), PostgresError> {
    execute(db, INSERT_ENDED_TOKENS, &[&hashes]).await.map(drop)
}
