//! The store of one server: implements what the domains' `store.rs` modules ask for.
//!
//! [`open`] is the front door; it gives every domain its own handle ([`Stores`]). A domain's writes are one enum,
//! its reads one trait. A unit of writes is sealed where it holds a body (`pki`, `auth`, `managed_keys`), goes through the commit
//! actor ([`commit`]) and is answered when the batch that carries it is on disk; a read goes to the backend's own
//! connections and is opened on the way back (`store`, which every engine shares). The engines are behind
//! `backend`: the embedded one is SQLite, one file in the data folder; the other is PostgreSQL, for any
//! number of nodes. What was answered as written outlives a crash of this process, of the database
//! and of the machine. What was answered as `Unavailable` because the disk or the database went away was
//! not released to anyone, but a crash right after may leave it stored: a write is safe to repeat.
//! Only the composition root and the commands name this module. Copies are made and put back in [`backup`], looked
//! through in [`verify`], carried to the other engine in [`transfer`].
//!
//! Refuses: a data folder that another process uses, a database written by a newer program, a
//! database whose durability is off, the wrong seal key.
//!
//! # Which path a new table takes
//!
//! | what it holds | path |
//! |---|---|
//! | configuration: few, read whole at start and kept in memory, secret perhaps, changed rarely and never unseen by another writer | **a sealed document**: no table. A new `kind` of [`DocumentKey`](crate::documents::DocumentKey); compare-and-set on its version; other nodes follow it by the change log |
//! | records: one row or more for every request, millions of them, read by key or in pages, stored in the same commit as what they belong to | **a row**: a table of its own, and a variant of its domain's write enum. Shares the group commit; a column that is secret is a sealed body |
//! | resources: related to each other, listed by many filters, held together by constraints and by rights that are read in the same transaction | **a session of SQL** ([`crate::sql`]): tables of its own, and the domain writes the SQL. A transaction for each request, which the group commit carries on SQLite only; nothing is sealed |
//!
//! When in doubt: what a signature waits for is a row; what a signature is made from is a document; what is
//! neither, and asks for a JOIN, is a session. Nothing that is on the way of `issue` is a session.
//!
//! A row, file by file (from 2 on to 5 the compiler asks for what is missing):
//!
//! 1. `migrations/sqlite/NNNN_*.sql` and `migrations/postgres/NNNN_*.sql`, and their lines in both `schema.rs`.
//!    What was released is never changed.
//! 2. The domain's `store.rs`: the row, a variant of the write enum for each write, a method of the trait for each
//!    read, and an outcome where none fits.
//! 3. Here, `<domain>.rs`: whether a write holds a body that is sealed, and to what; and in `sealed.rs` the table, if it
//!    does, which a later data key seals again (a test finds what was forgotten).
//! 4. `embedded/<table>.rs`: the table's SQL, a function for each read and each write; `embedded/<domain>.rs`: an
//!    arm of the one match over the writes, a line for each read.
//! 5. `postgres/<table>.rs` and `postgres/<domain>.rs`: the same. Rows that every request writes are gathered
//!    (`postgres/gathered.rs`), so that a batch sends one statement for all of them.
//! 6. `statements.rs`: what both engines take as it is, under the table's name; and what removes the rows with
//!    their mount (a test finds what was forgotten).
//! 7. `contract/`: what must hold of it, once for both engines.
//!
//! A new domain adds: its `store.rs`; a variant of `Unit` and of `Outcomes` (`backend`) with their arm in each
//! engine's `batch.rs`; the three files named `<domain>.rs`; its handle in [`Stores`]. A domain that speaks SQL
//! itself needs its trait, an `impl` of two methods in each engine, and its handle.

mod api_tokens;
mod auth;
mod backend;
pub mod backup;
pub mod commit;
mod database;
mod documents;
mod embedded;
mod file_hold;
mod keyring;
mod keys;
pub mod look;
mod managed_keys;
mod pki;
mod postgres;
mod progress;
mod reseal;
mod restored;
pub mod room;
mod scan;
pub mod seal;
mod sealed;
mod session;
mod statements;
mod store;
pub mod transfer;
pub mod verify;

#[cfg(test)]
mod contract;

use std::sync::Arc;
use std::time::Duration;

use crate::auth::store::AuthStore;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::keyring::store::KeyringStore;
use crate::keys::store::KeyStore;
use crate::nodes::store::ChangeLog;
use crate::pki::store::PkiStore;
use crate::projects::store::{ProjectStore, TokenSeal};
use crate::secret::Secret;
use api_tokens::ApiTokens;
use backend::{Fact, FactWrite, Reader, Unit};
pub use database::Database;
use file_hold::Held;
use keyring::DataKeys;
use keys::Keys;
pub use postgres::PostgresUrl;
pub use progress::Progress;
use seal::{About, Question, SealKey};
use session::Sessions;
use store::Store;

/// How long the last note of what was sealed may take.
const NOTE: Duration = Duration::from_millis(300);

/// What a store needs to open.
pub struct Options {
    /// Where the data is.
    pub database: Database,
    /// The key that opens the store.
    pub seal_key: SealKey,
    /// The time, for renewals of tokens.
    pub clock: Clock,
    /// Most units of writes under way at a time; beyond it a write is `Busy`.
    pub queue: usize,
    /// What becomes of a store that is not there.
    pub absent: Absent,
}

/// What becomes of a store that is not there: where its volume is not mounted, one that is made takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It is made.
    Made,
    /// It is missed, and nothing is made: for whatever is done with a store that somebody has.
    Missed,
}

/// A store, as each domain sees it.
#[derive(Clone)]
pub struct Stores {
    /// The certificate authority engine's.
    pub pki: Arc<dyn PkiStore>,
    /// Authentication's.
    pub auth: Arc<dyn AuthStore>,
    /// What other nodes change, where there can be others.
    pub changes: Option<Arc<dyn ChangeLog>>,
    /// The projects API's.
    pub projects: Arc<dyn ProjectStore>,
    /// The registry's of managed keys.
    pub managed_keys: Arc<dyn KeyStore>,
    /// The keyring's.
    pub keyring: Arc<dyn KeyringStore>,
    /// The seal of the projects API's tokens.
    pub token_seal: Arc<dyn TokenSeal>,
}

/// An open store; clones are the same store.
#[derive(Clone)]
pub struct Storage {
    stores: Stores,
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
    keys: Arc<Keys>,
    data_keys: Arc<DataKeys>,
    api_tokens: Arc<ApiTokens>,
}

/// Opens the store, or makes it. The runtime that this is called on must live as long as the store.
///
/// # Errors
/// `NotFound` when there is none, and none is to be made; `Invalid` for the wrong seal key, a database of a newer program,
/// or one whose durability is off or does not switch on; `Conflict` when another process uses the folder; `Unavailable`
/// when it cannot be reached, read or written.
pub async fn open(options: Options) -> Result<Storage> {
    let Options { database, seal_key, clock, queue, absent } = options;
    if absent == Absent::Missed {
        look::require(&database).await?;
    }
    match database {
        Database::Embedded(folder) => {
            let now = clock.now();
            let (writer, reader) = tokio::task::spawn_blocking(move || embedded::open(&folder, now))
                .await
                .map_err(|e| Error::unavailable("storage: does not open", e))??;
            let store = Store::open(writer, reader, queue, &seal_key, clock, false).await?;
            Storage::new(Arc::new(store), None).ready().await
        }
        Database::Postgres(url) => {
            let (writer, reader) = postgres::open(url).await?;
            let store = Arc::new(Store::open(writer, reader, queue, &seal_key, clock, true).await?);
            Storage::new(store.clone(), Some(store)).ready().await
        }
    }
}

/// That the server of a database is there, takes writes and is fit for them; an embedded store has none. For whoever
/// starts beside the server and may be the first to be ready.
///
/// # Errors
/// `Unavailable` when it cannot be reached at present; `Invalid` when it must not be used, or its URL names a file that
/// cannot be.
pub async fn reach(database: &Database) -> Result<()> {
    match database {
        Database::Embedded(_) => Ok(()),
        Database::Postgres(url) => postgres::reach(url).await,
    }
}

impl Storage {
    /// Gives each domain its handle.
    fn new<R: Reader + Clone>(store: Arc<Store<R>>, changes: Option<Arc<dyn ChangeLog>>) -> Self
    where
        Store<R>: PkiStore + AuthStore + ProjectStore + 'static,
    {
        let data_keys =
            Arc::new(DataKeys::new(store.keys.clone(), Sessions::new(store.clone()), store.clone(), changes.is_some()));
        let api_tokens = Arc::new(ApiTokens::new(store.keys.clone(), Sessions::new(store.clone()), changes.is_some()));
        let stores = Stores {
            pki: store.clone(),
            auth: store.clone(),
            changes,
            projects: store.clone(),
            managed_keys: store.clone(),
            keyring: data_keys.clone(),
            token_seal: api_tokens.clone(),
        };
        let reader = Arc::new(store.reader.clone());
        Self { stores, commits: store.commits.clone(), reader, keys: store.keys.clone(), data_keys, api_tokens }
    }

    /// Does what an upgrade leaves to the first node that has the keys; ends the store when that fails.
    async fn ready(self) -> Result<Self> {
        // Sessions stay on their thread, and stores are opened on any.
        let (tokens, runtime) = (Arc::clone(&self.api_tokens), tokio::runtime::Handle::current());
        let sealed = tokio::task::spawn_blocking(move || runtime.block_on(tokens.seal_bare())).await;
        match sealed.map_err(Error::internal).and_then(|sealed| sealed) {
            Ok(()) => Ok(self),
            Err(error) => {
                // Lets go of the folder, so that the next attempt finds it free.
                self.reader.close();
                let _ = self.commits.stop().await;
                Err(error)
            }
        }
    }

    /// The store, as each domain sees it.
    pub fn stores(&self) -> Stores {
        self.stores.clone()
    }

    /// The store as the certificate authority engine sees it.
    pub fn pki(&self) -> Arc<dyn PkiStore> {
        self.stores.pki.clone()
    }

    /// The store as authentication sees it.
    pub fn auth(&self) -> Arc<dyn AuthStore> {
        self.stores.auth.clone()
    }

    /// What other nodes change; `None` when there are no others.
    pub fn changes(&self) -> Option<Arc<dyn ChangeLog>> {
        self.stores.changes.clone()
    }

    /// The store as the projects API sees it.
    pub fn projects(&self) -> Arc<dyn ProjectStore> {
        self.stores.projects.clone()
    }

    /// The seal of the projects API's tokens.
    pub fn token_seal(&self) -> Arc<dyn TokenSeal> {
        self.stores.token_seal.clone()
    }

    /// The store as the keyring sees it.
    pub fn keyring(&self) -> Arc<dyn KeyringStore> {
        self.stores.keyring.clone()
    }

    /// By what the store is sealed.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn seal_status(&self) -> Result<About> {
        self.keys.seal_status().await
    }

    /// A question that whoever has the seal of the store can answer ([`SealKey::answer`](seal::SealKey::answer)), and
    /// its answer.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn seal_question(&self) -> Result<(Question, Secret)> {
        self.keys.seal_question().await
    }

    /// How many stored values are sealed with earlier data keys than the one in use, counted now, in small reads.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn count_older(&self) -> Result<u64> {
        self.data_keys.count_older().await
    }

    /// Seals the store by another key. Everything stays readable, here and on nodes that run; the one before opens
    /// nothing any more but copies that were made before.
    ///
    /// # Errors
    /// `Busy` with several nodes, while a data key is so new that not all of them may know it; those of a device that
    /// holds the key; `Unavailable` from the store. Nothing was changed then, unless the
    /// store was lost in the middle: then the one or the other key opens it.
    pub async fn change_seal(&self, seal: &SealKey) -> Result<About> {
        self.keys.change_seal(seal).await
    }

    /// Keeps the database file of an embedded store as it is, until what this gives is dropped: whoever copies it
    /// copies one state. Commits go on.
    ///
    /// # Errors
    /// `Conflict` when the store is no embedded one; `Unavailable` when its disk has no room for a log that grows.
    pub(crate) async fn hold_file(&self) -> Result<Held> {
        let Some(file) = self.reader.file_hold() else {
            return Err(Error::new(Kind::Conflict, "backup: the store is no embedded one"));
        };
        tokio::task::spawn_blocking(move || file.hold()).await.map_err(Error::internal)?
    }

    /// Notes that the store was restored: CRL numbers are above `now` and all that are known from here on.
    ///
    /// # Errors
    /// `Invalid` when a CRL was published later than that, or there are no higher numbers; `Unavailable`.
    async fn note_restore(&self, now: Time) -> Result<()> {
        let noted = self.restored(now).await?;
        self.commits.submit(Unit::Facts(vec![FactWrite::new(noted)])).outcome().await.map(drop)
    }

    /// The fact that what this store holds is restored at `now`.
    async fn restored(&self, now: Time) -> Result<Fact> {
        let mut found = scan::rows(&*self.stores.projects, restored::PUBLISHED, Vec::new()).await?;
        let row = found.first_mut().ok_or_else(|| Error::internal("a maximum has a row"))?;
        let published = (row.get().map_err(scan::error)?, row.get().map_err(scan::error)?);
        restored::restored(now, published, &self.reader.meta().await?)
    }

    /// How many commits ran since the store was opened.
    pub fn commits(&self) -> u64 {
        self.commits.commits()
    }

    /// Refuses new work, writes what was admitted, brings the log into the data file and closes it.
    /// Safe to repeat.
    ///
    /// # Errors
    /// `Unavailable` when the last steps fail; what was answered as written is on disk all the same.
    pub async fn shutdown(&self) -> Result<()> {
        // What is not noted is lost to the count, and nothing else: it is not waited for when the store is away.
        let _ = tokio::time::timeout(NOTE, self.data_keys.note_use()).await;
        self.reader.close();
        self.commits.stop().await
    }
}

/// What the database itself said, where that is the cause of an error and not in its text: for the terminal of who runs
/// a command, and for no caller.
pub fn said(error: &Error) -> Option<String> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let said = |cause| postgres::said(cause).map(str::to_owned).or_else(|| embedded::said(cause));
    causes.filter_map(said).next().filter(|said| !error.text().contains(said.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_database_said_is_told_once() {
        let cause = || rusqlite::Error::InvalidQuery;
        let text = cause().to_string();
        assert_eq!(said(&Error::unavailable("storage: the schema cannot be read", cause())), Some(text.clone()));
        assert_eq!(said(&Error::unavailable(format!("storage: away ({text})"), cause())), None);
        assert_eq!(said(&Error::unavailable("storage: away", std::io::Error::other("the disk"))), None);
        assert_eq!(said(&Error::invalid("no cause")), None);
    }
}
