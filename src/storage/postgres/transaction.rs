//! State of a transaction of the writer: locked mounts and tokens, collected rows, sent revocations, and the counters
//! and change log marks to write at its end.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join;

use super::changes::ChangeMarks;
use super::collected_rows::{CollectedMark, CollectedRows, OutcomePosition};
use super::mounts::PostgresInsertCounts;
use super::query::{PostgresClient, PostgresError};
use super::revocations::InsertedRevocation;
use super::{changes, leases, mounts, revocations};
use crate::auth::store::TokenHash;
use crate::documents::{DocumentWrite, MountId};
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::storage::statements::conflict;
use crate::storage::tables::documents;

pub(super) struct Transaction<'a> {
    pub(super) db: &'a PostgresClient,
    pub(super) gathered: CollectedRows<'a>,
    /// This node's id in the change log.
    node: i64,
    /// The row of the counters that this node updates.
    counter: i64,
    known: RestorableState,
    /// The revocations that were sent, with the positions of their writes.
    revoked: Vec<(OutcomePosition, StoredRevocation, bool)>,
}

/// The part of the state that a savepoint restores.
#[derive(Clone, Default)]
struct RestorableState {
    mounts: HashMap<MountId, PostgresInsertCounts>,
    /// Live tokens, locked until the end.
    tokens: HashSet<TokenHash>,
    /// Mounts to mark at the end, sorted so that two nodes cannot deadlock.
    marks: BTreeMap<MountId, ChangeMarks>,
    /// `true` if a revocation was added or amended, of which other nodes must be notified.
    revoked: bool,
}

pub(super) struct Savepoint {
    known: RestorableState,
    gathered: CollectedMark,
    revoked: usize,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(db: &'a PostgresClient, node: i64, counter: i64) -> Self {
        let gathered = CollectedRows::default();
        let known = RestorableState::default();
        Self { db, gathered, node, counter, known, revoked: Vec::new() }
    }

    pub(super) async fn savepoint(&mut self) -> Result<Savepoint, PostgresError> {
        let point =
            Savepoint { known: self.known.clone(), gathered: self.gathered.mark(), revoked: self.revoked.len() };
        self.db.batch_execute("SAVEPOINT unit").await?;
        Ok(point)
    }

    pub(super) async fn keep(&mut self) -> Result<(), PostgresError> {
        Ok(self.db.batch_execute("RELEASE SAVEPOINT unit").await?)
    }

    /// Rolls back to the last savepoint, which releases its locks; so the known mounts and tokens are restored as well.
    pub(super) async fn roll_back_to(&mut self, point: Savepoint) -> Result<(), PostgresError> {
        self.db.batch_execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit").await?;
        self.known = point.known;
        self.gathered.truncate_to(point.gathered);
        self.revoked.truncate(point.revoked);
        Ok(())
    }

    /// Writes a document, with its mark in the change log.
    pub(super) async fn document(&mut self, write: &DocumentWrite) -> Result<(), PostgresError> {
        self.hold(write.key.mount).await?;
        documents::write(self.db, write).await?;
        self.marks(write.key.mount).documents = true;
        Ok(())
    }

    /// Checks that a mount exists and locks it until the end, with one query per transaction.
    pub(super) async fn hold(&mut self, mount: MountId) -> Result<(), PostgresError> {
        if !self.known.mounts.contains_key(&mount) {
            mounts::lock_existing(self.db, &[mount]).await?;
            self.known.mounts.insert(mount, PostgresInsertCounts::default());
        }
        Ok(())
    }

    /// Checks that a token is live and locks it until the end, with one query per transaction.
    pub(super) async fn lock_token(&mut self, token: TokenHash) -> Result<(), PostgresError> {
        if !self.known.tokens.contains(&token) {
            if !leases::lock_live_token(self.db, &token).await? {
                return Err(PostgresError::Conflict(conflict::TOKEN_GONE));
            }
            self.known.tokens.insert(token);
        }
        Ok(())
    }

    /// Removes a mount that is dropped in this transaction.
    pub(super) fn forget_mount(&mut self, mount: MountId) {
        self.known.mounts.remove(&mount);
    }

    /// Removes a token that may end in this transaction.
    pub(super) fn forget_token(&mut self, token: &TokenHash) {
        self.known.tokens.remove(token);
    }

    /// Removes all tokens, because any of them may end in this transaction.
    pub(super) fn forget_tokens(&mut self) {
        self.known.tokens.clear();
    }

    /// The counts of a mount, written at the end.
    pub(super) fn inserted(&mut self, mount: MountId) -> &mut PostgresInsertCounts {
        self.known.mounts.entry(mount).or_default()
    }

    /// The change log marks of a mount, written at the end.
    pub(super) fn marks(&mut self, mount: MountId) -> &mut ChangeMarks {
        self.known.marks.entry(mount).or_default()
    }

    pub(super) async fn flush(&mut self) -> Result<(), PostgresError> {
        let gathered = std::mem::take(&mut self.gathered);
        let new = self.unlocked_mounts(&gathered);
        try_join(mounts::lock_existing(self.db, &new), gathered.send(self.db)).await?;
        self.known.mounts.extend(new.into_iter().map(|mount| (mount, PostgresInsertCounts::default())));
        self.count(&gathered);
        // Sorted by mount, so that two nodes cannot deadlock.
        let mut by_mount: BTreeMap<MountId, (Vec<OutcomePosition>, Vec<&RevocationRow>)> = BTreeMap::new();
        for (position, row) in gathered.revocations {
            let (positions, rows) = by_mount.entry(row.mount).or_default();
            positions.push(position);
            rows.push(row);
        }
        for (mount, (positions, rows)) in by_mount {
            let (stored_rows, changed) = revocations::insert_all(self.db, mount, &rows).await?;
            self.known.revoked |= changed;
            for (position, InsertedRevocation { stored, fresh }) in positions.into_iter().zip(stored_rows) {
                self.inserted(mount).revocations += i64::from(fresh);
                self.revoked.push((position, stored, fresh));
            }
        }
        Ok(())
    }

    /// Does the work before COMMIT: sends collected rows, counters and change log marks. Returns the sent revocations,
    /// and whether this transaction created them.
    pub(super) async fn finish(mut self) -> Result<Vec<(OutcomePosition, StoredRevocation, bool)>, PostgresError> {
        self.send_rest().await?;
        self.mark().await?;
        Ok(self.revoked)
    }

    /// Sends the remaining collected rows and the counters. Only the insertion of revocations shows how many are new;
    /// without any, the counts are known and everything is pipelined.
    async fn send_rest(&mut self) -> Result<(), PostgresError> {
        if !self.gathered.revocations.is_empty() {
            self.flush().await?;
            return self.write_counters().await;
        }
        let gathered = std::mem::take(&mut self.gathered);
        let new = self.unlocked_mounts(&gathered);
        self.count(&gathered);
        let stored = try_join(gathered.send(self.db), self.write_counters());
        try_join(mounts::lock_existing(self.db, &new), stored).await.map(drop)
    }

    /// Marks the changed mounts, and notifies other nodes, except of certificates and CRLs.
    async fn mark(&self) -> Result<(), PostgresError> {
        for (mount, marks) in &self.known.marks {
            changes::mark(self.db, *mount, *marks, self.node).await?;
        }
        if self.known.revoked || self.known.marks.values().any(|marks| marks.documents) {
            changes::notify(self.db).await?;
        }
        Ok(())
    }

    fn unlocked_mounts(&self, gathered: &CollectedRows<'_>) -> Vec<MountId> {
        gathered.mounts().into_iter().filter(|mount| !self.known.mounts.contains_key(mount)).collect()
    }

    fn count(&mut self, gathered: &CollectedRows<'_>) {
        for row in &gathered.certificates {
            self.inserted(row.mount).certificates += 1;
        }
    }

    async fn write_counters(&self) -> Result<(), PostgresError> {
        let inserted: BTreeMap<_, _> = self.known.mounts.iter().collect();
        for (mount, inserted) in inserted {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                mounts::add_counts(self.db, *mount, self.counter, *inserted).await?;
            }
        }
        Ok(())
    }
}
