//! The store of one server: the implementation of the domains' `store.rs` traits.
//!
//! [`open`] returns a [`Storage`] with a handle for each domain ([`Stores`]). The engines behind `backend` are SQLite
//! (one file in the data folder) and PostgreSQL (any number of nodes). Values are sealed (encrypted) before they are
//! written. The commit actor ([`commit`]) collects concurrent writes into batches, and a write returns when its batch
//! is durable. Reads use other connections. A write that failed with `Unavailable` may still be stored after a crash,
//! so every write must be safe to repeat. Backups are in [`backup`], checks in [`verify`], and the copy to another
//! engine in [`transfer`].

mod api_tokens;
mod auth;
mod backend;
pub mod backup;
mod checkpoint_lock;
pub mod commit;
mod database;
pub mod disk_space;
mod documents;
mod embedded;
mod engine;
pub mod inspection;
mod keyring;
mod keys;
mod managed_keys;
mod migrations;
mod pki;
mod postgres;
mod progress;
mod reseal;
mod restore_facts;
mod scan;
pub mod seal;
mod sealed_tables;
mod session;
mod statements;
mod store;
mod tables;
pub mod transfer;
pub mod verify;

use std::sync::Arc;
use std::time::Duration;

use crate::auth::store::AuthStore;
use crate::clock::{Clock, Time};
use crate::error::{Error, Kind, Result};
use crate::keyring::store::KeyringStore;
use crate::keys::store::KeyStore;
use crate::nodes::store::ChangeLog;
use crate::pki::store::PkiStore;
use crate::projects::store::{ApiTokenSeal, ProjectStore};
use crate::secret::Secret;
use api_tokens::ApiTokens;
use backend::{Fact, FactWrite, StoreReader, WriteUnit};
use checkpoint_lock::CheckpointPause;
pub use database::Database;
use keyring::DataKeys;
use keys::StoreKeys;
pub use postgres::PostgresUrl;
pub use progress::ProgressCounters;
use seal::{SealChallenge, SealInfo, SealKey};
use session::StoreSessions;
use store::Store;

/// Timeout for recording data key usage at shutdown.
const USAGE_RECORD_TIMEOUT: Duration = Duration::from_millis(300);

/// Options for opening a store.
#[derive(Clone)]
pub struct StorageOptions {
    /// The location of the data.
    pub database: Database,
    /// The key that unseals the store.
    pub seal_key: SealKey,
    /// The source of the current time, for the renewal of tokens and the age of data keys.
    pub clock: Clock,
    /// Maximum number of write units that are queued or being committed; more are rejected as `Busy`. A unit is stored
    /// completely or not at all.
    pub commit_queue: usize,
    /// Behavior of [`open`] if there is no store.
    pub if_missing: IfMissing,
}

/// Behavior of [`open`] if there is no store. A server that creates a store by mistake would hide that the volume with
/// the existing store is not mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// [`open`] creates a new store.
    Create,
    /// [`open`] fails. Commands that need an existing store use this.
    Fail,
}

/// The storage handles that the domains use, one for each domain.
#[derive(Clone)]
pub struct Stores {
    /// Storage handle of the certificate authority engine.
    pub pki: Arc<dyn PkiStore>,
    /// Storage handle of authentication.
    pub auth: Arc<dyn AuthStore>,
    /// The log of changes by other nodes; `None` if the engine has only one node.
    pub changes: Option<Arc<dyn ChangeLog>>,
    /// Storage handle of the projects API.
    pub projects: Arc<dyn ProjectStore>,
    /// Storage handle of the registry of managed keys.
    pub managed_keys: Arc<dyn KeyStore>,
    /// Storage handle of the keyring.
    pub keyring: Arc<dyn KeyringStore>,
    /// Seals the tokens of the projects API, and checks their seals.
    pub token_seal: Arc<dyn ApiTokenSeal>,
}

/// An open store. Clones use the same store.
#[derive(Clone)]
pub struct Storage {
    stores: Stores,
    commits: commit::CommitHandle,
    reader: Arc<dyn StoreReader>,
    keys: Arc<StoreKeys>,
    data_keys: Arc<DataKeys>,
    api_tokens: Arc<ApiTokens>,
}

/// Opens or creates the store. The current runtime must live as long as the store.
///
/// # Errors
/// `NotFound` when it is missing and must not be created; `Conflict` when another process uses the folder;
/// `Unavailable` when it cannot be reached, read or written. `Invalid` for the wrong seal key, a database of a newer
/// version, or a database that cannot make commits durable.
pub async fn open(options: StorageOptions) -> Result<Storage> {
    let StorageOptions { database, seal_key, clock, commit_queue: queue, if_missing } = options;
    if if_missing == IfMissing::Fail {
        inspection::require_existing(&database).await?;
    }
    match database {
        Database::Embedded(folder) => {
            let now = clock.now();
            let (writer, reader) = tokio::task::spawn_blocking(move || embedded::open(&folder, now))
                .await
                .map_err(|e| Error::unavailable("storage: the task that opens the database failed", e))??;
            let store = Store::open(writer, reader, queue, &seal_key, clock, false).await?;
            Storage::new(Arc::new(store), None).finish_upgrade().await
        }
        Database::Postgres(url) => {
            let (writer, reader) = postgres::open(url).await?;
            let store = Arc::new(Store::open(writer, reader, queue, &seal_key, clock, true).await?);
            Storage::new(store.clone(), Some(store)).finish_upgrade().await
        }
    }
}

/// Checks that the database server is reachable, writable and suitable; an embedded store has no server. Lets a caller
/// wait for a database server that is still starting.
///
/// # Errors
/// `Unavailable` when it cannot be reached at present; `Invalid` when it is unsuitable, or a file that its URL names
/// cannot be used.
pub async fn check_reachable(database: &Database) -> Result<()> {
    match database {
        Database::Embedded(_) => Ok(()),
        Database::Postgres(url) => postgres::check_reachable(url).await,
    }
}

impl Storage {
    fn new<R: StoreReader + Clone>(store: Arc<Store<R>>, changes: Option<Arc<dyn ChangeLog>>) -> Self
    where
        Store<R>: PkiStore + AuthStore + ProjectStore + 'static,
    {
        let data_keys = Arc::new(DataKeys::new(
            store.keys.clone(),
            StoreSessions::new(store.clone()),
            store.clone(),
            changes.is_some(),
        ));
        let api_tokens =
            Arc::new(ApiTokens::new(store.keys.clone(), StoreSessions::new(store.clone()), changes.is_some()));
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

    /// Completes the steps of a schema upgrade that need the data keys. Closes the store when they fail.
    async fn finish_upgrade(self) -> Result<Self> {
        // A SQL session must stay on one thread, but the caller of `open` may move between threads.
        let tokens = Arc::clone(&self.api_tokens);
        let runtime = tokio::runtime::Handle::current();
        let sealed = tokio::task::spawn_blocking(move || runtime.block_on(tokens.seal_unsealed())).await;
        match sealed.map_err(Error::internal).and_then(|sealed| sealed) {
            Ok(()) => Ok(self),
            Err(error) => {
                // Releases the lock on the data folder, so that the store can be opened again.
                self.reader.close();
                let _ = self.commits.stop().await;
                Err(error)
            }
        }
    }

    /// Returns the handles of all domains.
    pub fn stores(&self) -> Stores {
        self.stores.clone()
    }

    /// Returns the storage handle of the certificate authority engine.
    pub fn pki(&self) -> Arc<dyn PkiStore> {
        self.stores.pki.clone()
    }

    /// Returns the storage handle of authentication.
    pub fn auth(&self) -> Arc<dyn AuthStore> {
        self.stores.auth.clone()
    }

    /// Returns the log of changes by other nodes; `None` if the engine has only one node.
    pub fn changes(&self) -> Option<Arc<dyn ChangeLog>> {
        self.stores.changes.clone()
    }

    /// Returns the storage handle of the projects API.
    pub fn projects(&self) -> Arc<dyn ProjectStore> {
        self.stores.projects.clone()
    }

    /// Returns the seal of the projects API's tokens.
    pub fn token_seal(&self) -> Arc<dyn ApiTokenSeal> {
        self.stores.token_seal.clone()
    }

    /// Returns the storage handle of the keyring.
    pub fn keyring(&self) -> Arc<dyn KeyringStore> {
        self.stores.keyring.clone()
    }

    /// Describes the current seal of the store.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn seal_status(&self) -> Result<SealInfo> {
        self.keys.seal_status().await
    }

    /// Returns a challenge that only a holder of the seal key can answer ([`SealKey::answer`](seal::SealKey::answer)),
    /// and the expected response.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn seal_challenge(&self) -> Result<(SealChallenge, Secret)> {
        self.keys.seal_challenge().await
    }

    /// Counts the stored values that are sealed with earlier data keys, in small reads.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    pub async fn count_old_values(&self) -> Result<u64> {
        self.data_keys.count_old_values().await
    }

    /// Replaces the key that seals the store. All data stays readable, here and on running nodes. The previous key then
    /// opens only copies of the store that were made before the change.
    ///
    /// # Errors
    /// `Busy` while some node may not know the newest data key; `Conflict` when other nodes keep changing the data
    /// keys; the errors of the device that holds the key; `Unavailable` from the store. After an error nothing has
    /// changed, except if the connection was lost during the commit. Then either the previous or the new key opens the
    /// store.
    pub async fn change_seal(&self, seal: &SealKey) -> Result<SealInfo> {
        self.keys.change_seal(seal).await
    }

    /// Pauses checkpoints of the embedded database until the result is dropped, so that its file can be copied.
    ///
    /// # Errors
    /// `Conflict` when the store is not embedded; `Unavailable` when its disk lacks space for a growing log.
    pub(crate) async fn pause_checkpoints(&self) -> Result<CheckpointPause> {
        let Some(lock) = self.reader.checkpoint_lock() else {
            return Err(Error::new(
                Kind::Conflict,
                "backup: only an embedded store can be copied; use PostgreSQL's own tools for its databases",
            ));
        };
        tokio::task::spawn_blocking(move || lock.pause()).await.map_err(Error::internal)?
    }

    /// Records that the store was restored at `now`, so that new CRL numbers are above all earlier ones.
    ///
    /// # Errors
    /// `Invalid` when a CRL is dated after `now`, or no higher CRL number exists; `Unavailable` from the store.
    async fn record_restore(&self, now: Time) -> Result<()> {
        let (name, _) = self.new_restore_fact(now).await?;
        let restore = (name, restore_facts::encode_restore_times(now, None));
        self.commits.submit(WriteUnit::Facts(vec![FactWrite::new(restore)])).outcome().await.map(drop)
    }

    async fn new_restore_fact(&self, now: Time) -> Result<Fact> {
        let mut found = scan::query_rows(&*self.stores.projects, restore_facts::SELECT_CRL_MAXIMA, Vec::new()).await?;
        let row = found
            .first_mut()
            .ok_or_else(|| Error::internal("the query for the newest CRL of the store returned no row"))?;
        let published = (row.get().map_err(scan::query_error)?, row.get().map_err(scan::query_error)?);
        restore_facts::restore_fact(now, published, &self.reader.facts().await?)
    }

    /// Returns the number of commits since the store was opened.
    pub fn commits(&self) -> u64 {
        self.commits.commits()
    }

    /// Rejects new writes, commits the queued ones and closes the store. The embedded store first merges its log into
    /// the database file. Safe to repeat.
    ///
    /// # Errors
    /// `Unavailable` when closing fails; committed writes are durable nevertheless.
    pub async fn shutdown(&self) -> Result<()> {
        // A failure only makes the recorded number of uses too low, so an unreachable store must not delay the
        // shutdown.
        let _ = tokio::time::timeout(USAGE_RECORD_TIMEOUT, self.data_keys.record_use()).await;
        self.reader.close();
        self.commits.stop().await
    }
}

/// Returns the message of the database that caused an error, unless the error's text already contains it. Not for API
/// callers.
pub fn database_message(error: &Error) -> Option<String> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let message_of =
        |cause| postgres::server_message(cause).map(str::to_owned).or_else(|| embedded::sqlite_message(cause));
    causes.filter_map(message_of).next().filter(|message| !error.text().contains(message.as_str()))
}

#[cfg(test)]
mod tests {
    pub(in crate::storage) mod contract;

    use super::*;

    #[test]
    fn database_message_is_omitted_if_the_text_contains_it() {
        let cause = || rusqlite::Error::InvalidQuery;
        let text = cause().to_string();
        assert_eq!(
            database_message(&Error::unavailable("storage: the schema cannot be read", cause())),
            Some(text.clone())
        );
        assert_eq!(database_message(&Error::unavailable(format!("storage: away ({text})"), cause())), None);
        assert_eq!(database_message(&Error::unavailable("storage: away", std::io::Error::other("the disk"))), None);
        assert_eq!(database_message(&Error::invalid("no cause")), None);
    }
}
