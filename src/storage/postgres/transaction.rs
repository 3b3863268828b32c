//! A write transaction on PostgreSQL: the mounts and tokens that it has locked, the rows collected for insertion in
//! batches, the inserted revocations, and the counters and change log entries to write at its end.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join;
use tokio_postgres::types::ToSql;

use super::changes::ChangeMarks;
use super::collected_rows::{CollectedMark, CollectedRows, OutcomePosition};
use super::query::{PostgresClient, PostgresError, SqlParameters, execute};
use super::revocations::InsertedRevocation;
use super::{changes, leases, revocations};
use crate::auth::store::TokenHash;
use crate::documents::{MountId, SYSTEM_MOUNT};
use crate::pki::store::{PkiWrite, RevocationRow, StoredRevocation};
use crate::storage::engine::{InsertCounts, WriteTransaction};
use crate::storage::statements::{conflict, mounts as sql};

const LOCK_MOUNTS: &str = "SELECT pg_advisory_xact_lock_shared(UNNEST($1::BIGINT[]))";
const SELECT_ALL_MOUNTS_EXIST: &str = "SELECT COUNT(*) = CARDINALITY($1::BIGINT[]) FROM mount WHERE id = ANY($1)";

pub(super) struct Transaction<'a> {
    pub(super) db: &'a PostgresClient,
    pub(super) collected: CollectedRows<'a>,
    /// This node's id in the change log.
    node: i64,
    /// Index of the counter row that this node updates. Each mount has up to 64 rows, whose sum is its number of
    /// certificates and revocations, so that nodes rarely wait for each other.
    counter: i64,
    known: RestorableState,
    /// The inserted or amended revocations: the position of the write, the stored revocation, and `true` if it is new.
    revoked: Vec<(OutcomePosition, StoredRevocation, bool)>,
}

/// The state that must be restored after a rollback to a savepoint.
#[derive(Clone, Default)]
struct RestorableState {
    mounts: HashMap<MountId, InsertCounts>,
    /// Tokens that are live and locked until the end of the transaction.
    tokens: HashSet<TokenHash>,
    /// Mounts to mark as changed at the end of the transaction, sorted so that two nodes cannot deadlock.
    marks: BTreeMap<MountId, ChangeMarks>,
    /// `true` if a revocation was inserted or amended, so that other nodes must be notified.
    revoked: bool,
}

pub(super) struct Savepoint {
    known: RestorableState,
    collected: CollectedMark,
    revoked: usize,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(db: &'a PostgresClient, node: i64, counter: i64) -> Self {
        let collected = CollectedRows::default();
        let known = RestorableState::default();
        Self { db, collected, node, counter, known, revoked: Vec::new() }
    }

    pub(super) async fn savepoint(&mut self) -> Result<Savepoint, PostgresError> {
        let point =
            Savepoint { known: self.known.clone(), collected: self.collected.mark(), revoked: self.revoked.len() };
        self.db.batch_execute("SAVEPOINT unit").await?;
        Ok(point)
    }

    pub(super) async fn release_savepoint(&mut self) -> Result<(), PostgresError> {
        Ok(self.db.batch_execute("RELEASE SAVEPOINT unit").await?)
    }

    /// Rolls back to a savepoint. The rollback releases the locks that were taken after the savepoint, so the sets of
    /// locked mounts and tokens are restored as well.
    pub(super) async fn roll_back_to(&mut self, point: Savepoint) -> Result<(), PostgresError> {
        self.db.batch_execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit").await?;
        self.known = point.known;
        self.collected.truncate_to(point.collected);
        self.revoked.truncate(point.revoked);
        Ok(())
    }

    /// Collects a certificate, a row that belongs to a certificate, or a revocation. The outcome of a revocation is
    /// known only when it is sent. For any other write, returns `false` and does nothing.
    pub(super) async fn collect(
        &mut self,
        position: OutcomePosition,
        write: &'a PkiWrite,
    ) -> Result<bool, PostgresError> {
        match write {
            PkiWrite::Certificate(row) => self.collected.certificates.push(row),
            PkiWrite::Lease(row) => {
                self.lock_token(row.token).await?;
                self.collected.leases.push(row);
            }
            PkiWrite::Metadata(row) => self.collected.metadata.push(row),
            PkiWrite::RecordedResponse(row) => self.collected.answered.push(row),
            PkiWrite::Revocation(row) => self.collected.revocations.push((position, row)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that a token is live and locks it until the end of the transaction, with one query per token.
    async fn lock_token(&mut self, token: TokenHash) -> Result<(), PostgresError> {
        if !self.known.tokens.contains(&token) {
            if !leases::lock_live_token(self.db, &token).await? {
                return Err(PostgresError::Conflict(conflict::TOKEN_GONE));
            }
            self.known.tokens.insert(token);
        }
        Ok(())
    }

    fn marks(&mut self, mount: MountId) -> &mut ChangeMarks {
        self.known.marks.entry(mount).or_default()
    }

    pub(super) async fn flush(&mut self) -> Result<(), PostgresError> {
        let collected = std::mem::take(&mut self.collected);
        let new = self.unlocked_mounts(&collected);
        try_join(lock_existing_mounts(self.db, &new), collected.send(self.db)).await?;
        self.known.mounts.extend(new.into_iter().map(|mount| (mount, InsertCounts::default())));
        self.count_certificates(&collected);
        // Sorted by mount, so that two nodes cannot deadlock.
        let mut by_mount: BTreeMap<MountId, (Vec<OutcomePosition>, Vec<&RevocationRow>)> = BTreeMap::new();
        for (position, row) in collected.revocations {
            let (positions, rows) = by_mount.entry(row.mount).or_default();
            positions.push(position);
            rows.push(row);
        }
        for (mount, (positions, rows)) in by_mount {
            let (stored_rows, changed) = revocations::insert_all(self.db, mount, &rows).await?;
            self.known.revoked |= changed;
            for (position, InsertedRevocation { stored, fresh }) in positions.into_iter().zip(stored_rows) {
                self.counts(mount).revocations += i64::from(fresh);
                self.revoked.push((position, stored, fresh));
            }
        }
        Ok(())
    }

    /// Sends everything that must precede COMMIT: collected rows, counters and change log entries. Returns for each
    /// revocation its position, the stored revocation, and `true` if this transaction created it.
    pub(super) async fn finish(mut self) -> Result<Vec<(OutcomePosition, StoredRevocation, bool)>, PostgresError> {
        self.send_rest().await?;
        self.write_change_log().await?;
        Ok(self.revoked)
    }

    /// Sends the remaining collected rows and the counters. If there are revocations, they are inserted first, which
    /// shows how many of them are new. Otherwise the counts are known and all statements are pipelined.
    async fn send_rest(&mut self) -> Result<(), PostgresError> {
        if !self.collected.revocations.is_empty() {
            self.flush().await?;
            return self.write_counters().await;
        }
        let collected = std::mem::take(&mut self.collected);
        let new = self.unlocked_mounts(&collected);
        self.count_certificates(&collected);
        let stored = try_join(collected.send(self.db), self.write_counters());
        try_join(lock_existing_mounts(self.db, &new), stored).await.map(drop)
    }

    /// Marks the changed mounts, and notifies other nodes if documents or revocations have changed.
    async fn write_change_log(&self) -> Result<(), PostgresError> {
        for (mount, marks) in &self.known.marks {
            changes::mark_mount(self.db, *mount, *marks, self.node).await?;
        }
        if self.known.revoked || self.known.marks.values().any(|marks| marks.documents) {
            changes::notify(self.db).await?;
        }
        Ok(())
    }

    fn unlocked_mounts(&self, collected: &CollectedRows<'_>) -> Vec<MountId> {
        collected.mounts().into_iter().filter(|mount| !self.known.mounts.contains_key(mount)).collect()
    }

    fn count_certificates(&mut self, collected: &CollectedRows<'_>) {
        for row in &collected.certificates {
            self.counts(row.mount).certificates += 1;
        }
    }

    async fn write_counters(&self) -> Result<(), PostgresError> {
        let inserted: BTreeMap<_, _> = self.known.mounts.iter().collect();
        for (mount, inserted) in inserted {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                let values: SqlParameters<'_> =
                    &[&mount.0, &self.counter, &inserted.certificates, &inserted.revocations];
                execute(self.db, sql::ADD_TO_COUNTER, values).await?;
            }
        }
        Ok(())
    }
}

impl WriteTransaction for Transaction<'_> {
    type Connection = PostgresClient;

    fn db(&self) -> &PostgresClient {
        self.db
    }

    async fn require_mount(&mut self, mount: MountId) -> Result<(), PostgresError> {
        if !self.known.mounts.contains_key(&mount) {
            lock_existing_mounts(self.db, &[mount]).await?;
            self.known.mounts.insert(mount, InsertCounts::default());
        }
        Ok(())
    }

    fn forget_mount(&mut self, mount: MountId) {
        self.known.mounts.remove(&mount);
    }

    fn forget_token(&mut self, token: &TokenHash) {
        self.known.tokens.remove(token);
    }

    fn forget_tokens(&mut self) {
        self.known.tokens.clear();
    }

    fn counts(&mut self, mount: MountId) -> &mut InsertCounts {
        self.known.mounts.entry(mount).or_default()
    }

    fn mark_documents(&mut self, mount: MountId) {
        self.marks(mount).documents = true;
    }

    fn mark_crls(&mut self, mount: MountId) {
        self.marks(mount).crls = true;
    }
}

/// Locks distinct mounts against being dropped until the transaction ends, and checks that they exist. The lock is a
/// shared advisory lock because, unlike a row lock, it writes nothing. The check is a separate statement after the
/// lock, so that it sees a drop for which the lock waited. Lock and check are pipelined. The caller may send rows
/// before the response, but not COMMIT.
async fn lock_existing_mounts(db: &PostgresClient, mounts: &[MountId]) -> Result<(), PostgresError> {
    let ids: Vec<i64> = mounts.iter().filter(|mount| **mount != SYSTEM_MOUNT).map(|mount| mount.0).collect();
    if ids.is_empty() {
        return Ok(());
    }
    // Both statements are prepared first: if one of them still had to be prepared, the other could be sent before it.
    let lock = db.prepare_cached(LOCK_MOUNTS).await?;
    let check = db.prepare_cached(SELECT_ALL_MOUNTS_EXIST).await?;
    let ids: [&(dyn ToSql + Sync); 1] = [&ids];
    let (_, found) = try_join(db.query(&lock, &ids), db.query_one(&check, &ids)).await?;
    if found.try_get(0)? { Ok(()) } else { Err(PostgresError::Conflict(conflict::MOUNT_GONE)) }
}
