//! What one transaction of the writer holds: units in order, certificates and revocations gathered
//! into one statement each at the end, counters last.
//!
//! A unit that can fail half-way runs behind a savepoint. A failure that shows only at the end (a taken
//! serial) gives up the transaction, and the writer comes again with every unit behind a savepoint.

use std::collections::{BTreeMap, HashMap};

use super::mounts::Inserted;
use super::{Failure, Session, certificates, crls, documents, meta, mounts, revocations, tokens};
use crate::documents::{DocumentWrite, MountId};
use crate::error::Result;
use crate::pki::store::{CertificateRow, RevocationRow};
use crate::storage::backend::{Outcome, Unit, Write};
use crate::storage::sql::conflict;

/// What became of each unit.
pub(super) type Answers = Vec<Result<Vec<Outcome>>>;

/// A transaction under way.
pub(super) struct Batch<'a> {
    db: &'a Session,
    /// The row of the counters that is ours.
    node: i64,
    /// Every unit behind a savepoint of its own.
    careful: bool,
    mounts: HashMap<MountId, Inserted>,
    certificates: Vec<&'a CertificateRow>,
    revocations: Vec<(Place, &'a RevocationRow)>,
    answers: Answers,
}

/// Where an outcome belongs: unit and write.
#[derive(Clone, Copy)]
struct Place(usize, usize);

impl<'a> Batch<'a> {
    pub(super) fn new(db: &'a Session, node: i64, careful: bool) -> Self {
        let (mounts, answers) = (HashMap::new(), Vec::new());
        Self { db, node, careful, mounts, certificates: Vec::new(), revocations: Vec::new(), answers }
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
        self.flush().await?;
        self.write_counters().await?;
        Ok(self.answers)
    }

    /// A unit that, when it fails, has sent nothing that must be undone.
    async fn plain(&mut self, unit: &'a Unit) -> Result<(), Failure> {
        let before = (self.certificates.len(), self.revocations.len());
        match self.unit(unit).await {
            Err(Failure::Conflict(text)) => {
                self.certificates.truncate(before.0);
                self.revocations.truncate(before.1);
                self.refuse(Failure::Conflict(text), unit);
                Ok(())
            }
            result => result,
        }
    }

    /// A unit behind a savepoint. Nothing gathered from earlier units may be sent inside it.
    async fn guarded(&mut self, unit: &'a Unit) -> Result<(), Failure> {
        let flushes = self.careful || unit.iter().any(|write| matches!(write, Write::MountDrop(_)));
        if flushes {
            self.flush().await?;
        }
        let before = (self.mounts.clone(), self.certificates.len(), self.revocations.len());
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
                self.mounts = before.0;
                self.certificates.truncate(before.1);
                self.revocations.truncate(before.2);
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

    async fn write(&mut self, place: Place, write: &'a Write) -> Result<Outcome, Failure> {
        let db = self.db;
        match write {
            Write::Document(write) => self.document(write).await,
            Write::MountCreate(mount) => mounts::create(db, *mount).await,
            Write::MountDrop(mount) => {
                self.flush().await?;
                self.mounts.remove(mount);
                mounts::drop_mount(db, *mount).await
            }
            Write::Certificate(row) => {
                self.hold(row.mount).await?;
                self.certificates.push(row);
                Ok(Outcome::Done)
            }
            Write::Revocation(row) => {
                self.hold(row.mount).await?;
                self.revocations.push((place, row));
                // Its real outcome is known once it is sent, and takes this place.
                Ok(Outcome::Done)
            }
            Write::Crl(row) => {
                self.hold(row.mount).await?;
                crls::publish(db, row).await
            }
            Write::TokenInsert(row) => tokens::insert(db, row).await,
            Write::TokenUpdate { hash, expires_at, body, now } => {
                tokens::update(db, hash, *expires_at, body, *now).await
            }
            Write::TokenSpend(hash) => tokens::spend(db, hash).await,
            Write::TokenRevoke(hash) => tokens::revoke(db, hash).await,
            Write::TokenSweep { now, limit } => tokens::sweep(db, *now, *limit).await,
            Write::MetaInsert { name, value } => meta::insert(db, name, value).await,
        }
    }

    async fn document(&mut self, write: &DocumentWrite) -> Result<Outcome, Failure> {
        self.hold(write.key.mount).await?;
        documents::write(self.db, write).await
    }

    /// That a mount exists and stays to the end, asked of the database once in a transaction.
    async fn hold(&mut self, mount: MountId) -> Result<(), Failure> {
        if !self.mounts.contains_key(&mount) {
            if !mounts::hold(self.db, mount).await? {
                return Err(Failure::Conflict(conflict::MOUNT_GONE));
            }
            self.mounts.insert(mount, Inserted::default());
        }
        Ok(())
    }

    /// Sends what was gathered.
    async fn flush(&mut self) -> Result<(), Failure> {
        let certificates = std::mem::take(&mut self.certificates);
        if !certificates.is_empty() {
            certificates::insert_all(self.db, &certificates).await?;
            for row in &certificates {
                self.mounts.entry(row.mount).or_default().certificates += 1;
            }
        }
        // In the order of the mounts, so that two nodes do not wait for each other.
        let mut by_mount: BTreeMap<MountId, (Vec<Place>, Vec<&RevocationRow>)> = BTreeMap::new();
        for (place, row) in std::mem::take(&mut self.revocations) {
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

    async fn write_counters(&self) -> Result<(), Failure> {
        let inserted: BTreeMap<_, _> = self.mounts.iter().collect();
        for (mount, inserted) in inserted {
            if inserted.certificates != 0 || inserted.revocations != 0 {
                mounts::count(self.db, *mount, self.node, *inserted).await?;
            }
        }
        Ok(())
    }
}

/// Whether a write of the unit may have to be undone because a later one fails. Certificates and
/// revocations are only gathered, and a single write leaves nothing behind when its condition fails.
fn fails_half_way(unit: &Unit) -> bool {
    let gathered = |write: &Write| matches!(write, Write::Certificate(_) | Write::Revocation(_));
    unit.len() > 1 && !unit.iter().all(gathered) || unit.iter().any(|write| matches!(write, Write::MountDrop(_)))
}
