//! What one transaction of the writer holds: units in order; certificates, what belongs to them, and
//! revocations gathered into one statement each at the end, counters last. Their mounts are held in the
//! same flight.
//!
//! A unit that can fail half-way runs behind a savepoint. A failure that shows only at the end (a taken
//! serial, a mount that is gone) gives up the transaction, and the writer comes again with every unit behind
//! a savepoint.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::future::try_join;

use super::changes::Marks;
use super::mounts::Inserted;
use super::{
    Failure, Session, certificates, changes, crls, documents, leases, meta, metadata, mounts, revocations, tidy, tokens,
};
use crate::auth::store::TokenHash;
use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;
use crate::pki::store::{CertificateRow, LeaseRow, MetadataRow, RevocationRow};
use crate::storage::backend::{Outcome, Unit, Write};
use crate::storage::sql::conflict;

/// What became of each unit.
pub(super) type Answers = Vec<Result<Vec<Outcome>>>;

/// A transaction under way.
pub(super) struct Batch<'a> {
    db: &'a Session,
    /// Who we are in the change log.
    node: i64,
    /// The row of the counters that is ours.
    counter: i64,
    /// Every unit behind a savepoint of its own.
    careful: bool,
    mounts: HashMap<MountId, Inserted>,
    /// Tokens that live and stay to the end.
    tokens: HashSet<TokenHash>,
    /// Mounts whose rows are marked at the end: in their order, so that two nodes do not wait for each other.
    marks: BTreeMap<MountId, Marks>,
    gathered: Gathered<'a>,
    answers: Answers,
}

/// What waits to be sent together.
#[derive(Default)]
struct Gathered<'a> {
    certificates: Vec<&'a CertificateRow>,
    leases: Vec<&'a LeaseRow>,
    metadata: Vec<&'a MetadataRow>,
    revocations: Vec<(Place, &'a RevocationRow)>,
}

impl Gathered<'_> {
    fn mark(&self) -> [usize; 4] {
        [self.certificates.len(), self.leases.len(), self.metadata.len(), self.revocations.len()]
    }

    /// The mounts of its rows.
    fn mounts(&self) -> BTreeSet<MountId> {
        let certificates = self.certificates.iter().map(|row| row.mount);
        let attached = self.leases.iter().map(|row| row.mount).chain(self.metadata.iter().map(|row| row.mount));
        certificates.chain(attached).chain(self.revocations.iter().map(|(_, row)| row.mount)).collect()
    }

    /// Takes back everything since [`Gathered::mark`].
    fn back_to(&mut self, [certificates, leases, metadata, revocations]: [usize; 4]) {
        self.certificates.truncate(certificates);
        self.leases.truncate(leases);
        self.metadata.truncate(metadata);
        self.revocations.truncate(revocations);
    }

    /// Inserts everything but revocations, or says that a serial is taken: then the caller undoes it.
    async fn send(&self, db: &Session) -> Result<(), Failure> {
        if !self.leases.is_empty() {
            leases::insert_all(db, &self.leases).await?;
        }
        if !self.metadata.is_empty() {
            metadata::insert_all(db, &self.metadata).await?;
        }
        if !self.certificates.is_empty() {
            certificates::insert_all(db, &self.certificates).await?;
        }
        Ok(())
    }
}

/// Where an outcome belongs: unit and write.
#[derive(Clone, Copy)]
struct Place(usize, usize);

impl<'a> Batch<'a> {
    pub(super) fn new(db: &'a Session, node: i64, counter: i64, careful: bool) -> Self {
        let (mounts, tokens, marks) = (HashMap::new(), HashSet::new(), BTreeMap::new());
        let (gathered, answers) = (Gathered::default(), Vec::new());
        Self { db, node, counter, careful, mounts, tokens, marks, gathered, answers }
    }

    /// Everything between BEGIN and COMMIT.
    pub(super) async fn run(mut self, units: &'a [Unit]) -> Result<Answers, Failure> {
        for unit in units {
            if self.careful || fails_half_way(unit) {
                self.guarded(unit).await?;
            } else {
                self.plain(unit).await?;
            }
        }
        self.finish().await?;
        self.mark().await?;
        Ok(self.answers)
    }

    /// Says in the change log what changed; nothing after certificates.
    async fn mark(&self) -> Result<(), Failure> {
        for (mount, marks) in &self.marks {
            changes::mark(self.db, *mount, *marks, self.node).await?;
        }
        let revoked = self.mounts.values().any(|inserted| inserted.revocations > 0);
        if revoked || self.marks.values().any(|marks| marks.documents) {
            changes::notify(self.db).await?;
        }
        Ok(())
    }

    /// What is still gathered, and the counters. Only the insertion of revocations tells how many are new;
    /// without any the counts are known, and everything is sent at once.
    async fn finish(&mut self) -> Result<(), Failure> {
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

    /// A unit that, when it fails, has sent nothing that must be undone.
    async fn plain(&mut self, unit: &'a Unit) -> Result<(), Failure> {
        if unit.iter().any(|write| self.waits_for(write)) {
            self.flush().await?;
        }
        let before = self.gathered.mark();
        match self.unit(unit).await {
            Err(Failure::Conflict(text)) => {
                self.gathered.back_to(before);
                self.refuse(Failure::Conflict(text), unit);
                Ok(())
            }
            result => result,
        }
    }

    /// A unit behind a savepoint. Nothing gathered from earlier units may be sent inside it.
    async fn guarded(&mut self, unit: &'a Unit) -> Result<(), Failure> {
        let flushes = self.careful || unit.iter().any(|write| self.waits_for(write));
        if flushes {
            self.flush().await?;
        }
        let before = (self.mounts.clone(), self.tokens.clone(), self.gathered.mark(), self.marks.clone());
        self.db.batch_execute("SAVEPOINT unit").await?;
        let mut result = self.unit(unit).await;
        if result.is_ok() && flushes {
            result = self.flush().await;
        }
        match result {
            Ok(()) => self.db.batch_execute("RELEASE SAVEPOINT unit").await?,
            Err(failure) if failure.is_of_one_unit() => {
                self.db.batch_execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit").await?;
                // Its locks went with it: what it knew of mounts holds no longer.
                (self.mounts, self.tokens) = (before.0, before.1);
                self.gathered.back_to(before.2);
                self.marks = before.3;
                self.refuse(failure, unit);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Puts the answer of a unit that was not stored in the place of its outcomes.
    fn refuse(&mut self, failure: Failure, unit: &Unit) {
        let answer = match failure {
            Failure::SerialTaken => Ok(unit.iter().map(|_| Outcome::SerialTaken).collect()),
            other => Err(other.of_write()),
        };
        if let Some(last) = self.answers.last_mut() {
            *last = answer;
        }
    }

    async fn unit(&mut self, unit: &'a Unit) -> Result<(), Failure> {
        let index = self.answers.len();
        self.answers.push(Ok(Vec::with_capacity(unit.len())));
        for (at, write) in unit.iter().enumerate() {
            let outcome = self.write(Place(index, at), write).await?;
            if let Some(Ok(outcomes)) = self.answers.get_mut(index) {
                outcomes.push(outcome);
            }
        }
        Ok(())
    }

    /// Whether what is gathered must be sent before this write, which looks at it.
    fn waits_for(&self, write: &Write) -> bool {
        match write {
            Write::MountDrop(_) => true,
            Write::TokenSpend(_)
            | Write::TokenRevoke(_)
            | Write::TokenSweep { .. }
            | Write::LeasesMark(_)
            | Write::LeasesEnd(_)
            | Write::LeasesMarkEnded { .. }
            | Write::LeaseSweep { .. } => !self.gathered.leases.is_empty(),
            _ => false,
        }
    }

    async fn write(&mut self, place: Place, write: &'a Write) -> Result<Outcome, Failure> {
        let db = self.db;
        if self.waits_for(write) {
            self.flush().await?;
        }
        match write {
            Write::Document(write) => self.document(write).await,
            Write::MountCreate(mount) => mounts::create(db, *mount).await,
            Write::MountDrop(mount) => {
                self.mounts.remove(mount);
                mounts::drop_mount(db, *mount).await
            }
            Write::Certificate(row) => {
                self.gathered.certificates.push(row);
                Ok(Outcome::Done)
            }
            Write::Revocation(row) => {
                self.gathered.revocations.push((place, row));
                // Its real outcome is known once it is sent, and takes this place.
                Ok(Outcome::Done)
            }
            Write::Crl(row) => {
                self.hold(row.mount).await?;
                let published = crls::publish(db, row).await?;
                self.marks.entry(row.mount).or_default().crls = true;
                Ok(published)
            }
            Write::Lease(row) => {
                self.hold_token(row.token).await?;
                self.gathered.leases.push(row);
                Ok(Outcome::Done)
            }
            Write::LeasesMark(ids) => leases::mark(db, ids).await,
            Write::LeasesEnd(ids) => leases::end(db, ids).await,
            Write::LeasesMarkEnded { limit } => leases::mark_ended(db, *limit).await,
            Write::LeaseSweep { now, limit } => leases::sweep(db, *now, *limit).await,
            Write::Metadata(row) => {
                self.gathered.metadata.push(row);
                Ok(Outcome::Done)
            }
            Write::RevocationIssuer { mount, serial, issuer } => {
                self.hold(*mount).await?;
                tidy::revocation_issuer(db, *mount, serial, issuer).await
            }
            Write::TidyBegin { row, seen, now } => {
                self.hold(row.mount).await?;
                tidy::begin(db, row, *seen, *now).await
            }
            Write::TidyKeep { mount, run, valid_until, report } => {
                tidy::keep(db, *mount, *run, *valid_until, report).await
            }
            Write::TidyCancel { mount, now } => tidy::cancel(db, *mount, *now).await,
            Write::Remove { mount, what, limit } => {
                self.hold(*mount).await?;
                // What is only gathered yet is none of its business: it has hardly expired.
                let removed = tidy::remove(db, *mount, what, *limit).await?;
                let counted = self.mounts.entry(*mount).or_default();
                counted.certificates -= i64::from(removed.certificates);
                counted.revocations -= i64::from(removed.revocations);
                Ok(Outcome::Tidied(removed))
            }
            Write::TokenInsert(row) => tokens::insert(db, row).await,
            Write::TokenUpdate { hash, expires_at, body, now } => {
                tokens::update(db, hash, *expires_at, body, *now).await
            }
            Write::TokenSpend(hash) => {
                self.tokens.remove(hash);
                tokens::spend(db, hash).await
            }
            Write::TokenRevoke(hash) => {
                // Its descendants go with it: nobody counts as held any more.
                self.tokens.clear();
                tokens::revoke(db, hash).await
            }
            Write::TokenSweep { now, limit } => {
                self.tokens.clear();
                tokens::sweep(db, *now, *limit).await
            }
            Write::MetaInsert { name, value } => meta::insert(db, name, value).await,
            // It has sessions of its own here.
            Write::Work(_) => Err(Failure::Unreadable("work of another engine")),
        }
    }

    async fn document(&mut self, write: &DocumentWrite) -> Result<Outcome, Failure> {
        self.hold(write.key.mount).await?;
        let written = documents::write(self.db, write).await?;
        self.marks.entry(write.key.mount).or_default().documents = true;
        Ok(written)
    }

    /// That a mount exists and stays to the end, asked of the database once in a transaction.
    async fn hold(&mut self, mount: MountId) -> Result<(), Failure> {
        if !self.mounts.contains_key(&mount) {
            mounts::hold(self.db, &[mount]).await?;
            self.mounts.insert(mount, Inserted::default());
        }
        Ok(())
    }

    /// That a token lives and stays to the end, asked of the database once in a transaction.
    async fn hold_token(&mut self, token: TokenHash) -> Result<(), Failure> {
        if !self.tokens.contains(&token) {
            if !leases::hold_token(self.db, &token).await? {
                return Err(Failure::Conflict(conflict::TOKEN_GONE));
            }
            self.tokens.insert(token);
        }
        Ok(())
    }

    /// Mounts of gathered rows that are not held yet.
    fn not_held(&self, gathered: &Gathered<'_>) -> Vec<MountId> {
        gathered.mounts().into_iter().filter(|mount| !self.mounts.contains_key(mount)).collect()
    }

    /// Sends what was gathered.
    async fn flush(&mut self) -> Result<(), Failure> {
        let gathered = std::mem::take(&mut self.gathered);
        let new = self.not_held(&gathered);
        try_join(mounts::hold(self.db, &new), gathered.send(self.db)).await?;
        self.mounts.extend(new.into_iter().map(|mount| (mount, Inserted::default())));
        self.count(&gathered);
        // In the order of the mounts, so that two nodes do not wait for each other.
        let mut by_mount: BTreeMap<MountId, (Vec<Place>, Vec<&RevocationRow>)> = BTreeMap::new();
        for (place, row) in gathered.revocations {
            let (places, rows) = by_mount.entry(row.mount).or_default();
            places.push(place);
            rows.push(row);
        }
        for (mount, (places, rows)) in by_mount {
            let stand = revocations::insert_all(self.db, mount, &rows).await?;
            for (Place(unit, at), (stored, fresh)) in places.into_iter().zip(stand) {
                self.mounts.entry(mount).or_default().revocations += i64::from(fresh);
                if let Some(outcome) = self.answers[unit].as_mut().ok().and_then(|outcomes| outcomes.get_mut(at)) {
                    *outcome = Outcome::Revoked { stored, fresh };
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, gathered: &Gathered<'_>) {
        for row in &gathered.certificates {
            self.mounts.entry(row.mount).or_default().certificates += 1;
        }
    }

    async fn write_counters(&self) -> Result<(), Failure> {
        let inserted: BTreeMap<_, _> = self.mounts.iter().collect();
        for (mount, inserted) in inserted {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                mounts::count(self.db, *mount, self.counter, *inserted).await?;
            }
        }
        Ok(())
    }
}

/// Whether a write of the unit may have to be undone because a later one fails. Certificates, what belongs
/// to them and revocations are only gathered, and a single write leaves nothing behind when its condition fails.
fn fails_half_way(unit: &Unit) -> bool {
    let gathered = |write: &Write| {
        matches!(write, Write::Certificate(_) | Write::Lease(_) | Write::Metadata(_) | Write::Revocation(_))
    };
    unit.len() > 1 && !unit.iter().all(gathered) || unit.iter().any(|write| matches!(write, Write::MountDrop(_)))
}
