//! What one transaction of the writer knows and has still to send: mounts and tokens that it holds, rows that are
//! gathered, revocations that stand, and what its end writes: the counters, and the marks of the change log.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join;

use super::changes::Marks;
use super::gathered::{Gathered, Mark, Place};
use super::mounts::Inserted;
use super::query::{Failure, Session};
use super::revocations::Standing;
use super::{changes, documents, leases, mounts, revocations};
use crate::auth::store::TokenHash;
use crate::documents::{DocumentWrite, MountId};
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::storage::statements::conflict;

/// A transaction under way.
pub(super) struct Transaction<'a> {
    pub(super) db: &'a Session,
    /// What is sent together, later.
    pub(super) gathered: Gathered<'a>,
    /// Who we are in the change log.
    node: i64,
    /// The row of the counters that is ours.
    counter: i64,
    known: Known,
    /// Revocations that were sent, in their places.
    revoked: Vec<(Place, StoredRevocation, bool)>,
}

/// What it knows of the database, and what it still has to say there.
#[derive(Clone, Default)]
struct Known {
    mounts: HashMap<MountId, Inserted>,
    /// Tokens that live and stay to the end.
    tokens: HashSet<TokenHash>,
    /// Mounts whose rows are marked at the end: in their order, so that two nodes do not wait for each other.
    marks: BTreeMap<MountId, Marks>,
    /// There is a revocation, or a reason of one, that other nodes do not know.
    revoked: bool,
}

/// A point to which a transaction can go back.
pub(super) struct Savepoint {
    known: Known,
    gathered: Mark,
    revoked: usize,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(db: &'a Session, node: i64, counter: i64) -> Self {
        let (gathered, known) = (Gathered::default(), Known::default());
        Self { db, gathered, node, counter, known, revoked: Vec::new() }
    }

    /// Begins what can be undone by [`Transaction::undo`].
    pub(super) async fn savepoint(&mut self) -> Result<Savepoint, Failure> {
        let point =
            Savepoint { known: self.known.clone(), gathered: self.gathered.mark(), revoked: self.revoked.len() };
        self.db.batch_execute("SAVEPOINT unit").await?;
        Ok(point)
    }

    /// Keeps what was done since the last savepoint.
    pub(super) async fn keep(&mut self) -> Result<(), Failure> {
        Ok(self.db.batch_execute("RELEASE SAVEPOINT unit").await?)
    }

    /// Undoes everything since the last savepoint. Its locks go with it: what it knew of mounts holds no longer.
    pub(super) async fn undo(&mut self, point: Savepoint) -> Result<(), Failure> {
        self.db.batch_execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit").await?;
        self.known = point.known;
        self.gathered.back_to(point.gathered);
        self.revoked.truncate(point.revoked);
        Ok(())
    }

    /// A document, with its mark in the change log.
    pub(super) async fn document(&mut self, write: &DocumentWrite) -> Result<(), Failure> {
        self.hold(write.key.mount).await?;
        documents::write(self.db, write).await?;
        self.marks(write.key.mount).documents = true;
        Ok(())
    }

    /// That a mount exists and stays to the end, asked of the database once in a transaction.
    pub(super) async fn hold(&mut self, mount: MountId) -> Result<(), Failure> {
        if !self.known.mounts.contains_key(&mount) {
            mounts::hold(self.db, &[mount]).await?;
            self.known.mounts.insert(mount, Inserted::default());
        }
        Ok(())
    }

    /// That a token lives and stays to the end, asked of the database once in a transaction.
    pub(super) async fn hold_token(&mut self, token: TokenHash) -> Result<(), Failure> {
        if !self.known.tokens.contains(&token) {
            if !leases::hold_token(self.db, &token).await? {
                return Err(Failure::Conflict(conflict::TOKEN_GONE));
            }
            self.known.tokens.insert(token);
        }
        Ok(())
    }

    /// A mount that ends in this transaction.
    pub(super) fn forget_mount(&mut self, mount: MountId) {
        self.known.mounts.remove(&mount);
    }

    /// A token that may end in this transaction.
    pub(super) fn forget_token(&mut self, token: &TokenHash) {
        self.known.tokens.remove(token);
    }

    /// Any token may end in this transaction.
    pub(super) fn forget_tokens(&mut self) {
        self.known.tokens.clear();
    }

    /// What is counted for a mount when the transaction ends.
    pub(super) fn inserted(&mut self, mount: MountId) -> &mut Inserted {
        self.known.mounts.entry(mount).or_default()
    }

    /// What the change log is told of a mount when the transaction ends.
    pub(super) fn marks(&mut self, mount: MountId) -> &mut Marks {
        self.known.marks.entry(mount).or_default()
    }

    /// Sends what was gathered.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        let gathered = std::mem::take(&mut self.gathered);
        let new = self.not_held(&gathered);
        try_join(mounts::hold(self.db, &new), gathered.send(self.db)).await?;
        self.known.mounts.extend(new.into_iter().map(|mount| (mount, Inserted::default())));
        self.count(&gathered);
        // In the order of the mounts, so that two nodes do not wait for each other.
        let mut by_mount: BTreeMap<MountId, (Vec<Place>, Vec<&RevocationRow>)> = BTreeMap::new();
        for (place, row) in gathered.revocations {
            let (places, rows) = by_mount.entry(row.mount).or_default();
            places.push(place);
            rows.push(row);
        }
        for (mount, (places, rows)) in by_mount {
            let (standing, changed) = revocations::insert_all(self.db, mount, &rows).await?;
            self.known.revoked |= changed;
            for (place, Standing { stored, fresh }) in places.into_iter().zip(standing) {
                self.inserted(mount).revocations += i64::from(fresh);
                self.revoked.push((place, stored, fresh));
            }
        }
        Ok(())
    }

    /// What comes before COMMIT: what is still gathered, the counters, and the change log. The revocations that
    /// stand, and whether this transaction made them.
    pub(super) async fn finish(mut self) -> Result<Vec<(Place, StoredRevocation, bool)>, Failure> {
        self.send_rest().await?;
        self.mark().await?;
        Ok(self.revoked)
    }

    /// What is still gathered, and the counters. Only the insertion of revocations tells how many are new;
    /// without any the counts are known, and everything is sent at once.
    async fn send_rest(&mut self) -> Result<(), Failure> {
        if !self.gathered.revocations.is_empty() {
            self.flush().await?;
            return self.write_counters().await;
        }
        let gathered = std::mem::take(&mut self.gathered);
        let new = self.not_held(&gathered);
        self.count(&gathered);
        let stored = try_join(gathered.send(self.db), self.write_counters());
        try_join(mounts::hold(self.db, &new), stored).await.map(drop)
    }

    /// Says in the change log what changed; nothing after certificates.
    async fn mark(&self) -> Result<(), Failure> {
        for (mount, marks) in &self.known.marks {
            changes::mark(self.db, *mount, *marks, self.node).await?;
        }
        if self.known.revoked || self.known.marks.values().any(|marks| marks.documents) {
            changes::notify(self.db).await?;
        }
        Ok(())
    }

    /// Mounts of gathered rows that are not held yet.
    fn not_held(&self, gathered: &Gathered<'_>) -> Vec<MountId> {
        gathered.mounts().into_iter().filter(|mount| !self.known.mounts.contains_key(mount)).collect()
    }

    fn count(&mut self, gathered: &Gathered<'_>) {
        for row in &gathered.certificates {
            self.inserted(row.mount).certificates += 1;
        }
    }

    async fn write_counters(&self) -> Result<(), Failure> {
        let inserted: BTreeMap<_, _> = self.known.mounts.iter().collect();
        for (mount, inserted) in inserted {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                mounts::count(self.db, *mount, self.counter, *inserted).await?;
            }
        }
        Ok(())
    }
}
