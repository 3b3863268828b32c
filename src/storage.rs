//! The store of one server: implements what the domains' `store.rs` modules ask for.
//!
//! [`Storage`] is the front door. A write is sealed where it holds a body, goes through the commit
//! actor ([`commit`]) and is answered when the batch that carries it is on disk; a read goes to the
//! backend's own connections and is opened on the way back. The engines are behind
//! `backend`: the embedded one is SQLite, one file in the data folder; the other is PostgreSQL, for any
//! number of nodes. What was answered as written outlives a crash of this process, of the database
//! and of the machine. What was answered as `Unavailable` because the disk or the database went away was
//! not released to anyone, but a crash right after may leave it stored: a write is safe to repeat.
//! Only the composition root and the commands name this module.
//!
//! Refuses: a data folder that another process uses, a database written by a newer program, a
//! database whose durability is off, the wrong seal key.

mod auth;
mod backend;
pub mod commit;
mod documents;
mod embedded;
mod pki;
mod postgres;
mod projects;
pub mod seal;
mod sql;

#[cfg(test)]
mod contract;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::nodes::store::ChangeLog;
use crate::pki::store::PkiStore;
use crate::projects::store::ProjectStore;
use backend::{Outcome, Reader, Write};
pub use postgres::PostgresUrl;
use seal::{Ring, SealKey};

/// Where a store keeps its data.
#[derive(Clone)]
pub enum Database {
    /// SQLite in this folder, which is made with mode 0700 when it is not there.
    Embedded(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(PostgresUrl),
}

impl Database {
    /// The engine's name, as clients know it (`storage_type` of `sys/seal-status`).
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Postgres(_) => "postgresql",
        }
    }
}

/// What a store needs to open.
pub struct Options {
    /// Where the data is.
    pub database: Database,
    /// The key that wraps the store's data keys.
    pub seal_key: SealKey,
    /// The time, for renewals of tokens.
    pub clock: Clock,
    /// Most units of writes under way at a time; beyond it a write is `Busy`.
    pub queue: usize,
}

/// An open store; clones are the same store.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    engine: Engine,
    ring: Arc<Ring>,
    clock: Clock,
}

/// The parts of an open database.
struct Engine {
    commits: commit::Handle,
    reader: Arc<dyn Reader>,
    changes: Option<Arc<dyn ChangeLog>>,
    projects: Arc<dyn ProjectStore>,
}

impl Deref for Inner {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Opens the store, or makes it. The runtime that this is called on must live as long as the store.
///
/// # Errors
/// `Invalid` for the wrong seal key, a database of a newer program, or one whose durability is off or
/// does not switch on; `Conflict` when another process uses the folder; `Unavailable` when it cannot be
/// reached, read or written.
pub async fn open(options: Options) -> Result<Storage> {
    let Options { database, seal_key, clock, queue } = options;
    let engine = match database {
        Database::Embedded(folder) => {
            let (writer, reader) = tokio::task::spawn_blocking(move || embedded::open(&folder))
                .await
                .map_err(|e| Error::unavailable("storage: does not open", e))??;
            let commits = commit::Handle::start(writer, queue.max(1))?;
            let projects = projects::Embedded { commits: commits.clone(), reader: reader.clone() };
            Engine { commits, reader: Arc::new(reader), changes: None, projects: Arc::new(projects) }
        }
        Database::Postgres(url) => {
            let (writer, reader) = postgres::open(url).await?;
            let commits = commit::Handle::start(writer, queue.max(1))?;
            let reader = Arc::new(reader);
            Engine { commits, reader: reader.clone(), changes: Some(reader.clone()), projects: reader }
        }
    };
    match load_ring(&engine.commits, &engine.reader, &seal_key).await {
        Ok(ring) => Ok(Storage(Arc::new(Inner { engine, ring: Arc::new(ring), clock }))),
        Err(error) => {
            // Lets go of the folder, so that the next attempt finds it free.
            engine.reader.close();
            let _ = engine.commits.stop().await;
            Err(error)
        }
    }
}

async fn load_ring(commits: &commit::Handle, reader: &Arc<dyn Reader>, seal_key: &SealKey) -> Result<Ring> {
    if let Some(ring) = Ring::load(seal_key, &reader.meta().await?)? {
        return Ok(ring);
    }
    let (ring, facts) = Ring::create(seal_key)?;
    let unit = facts.into_iter().map(|(name, value)| Write::MetaInsert { name, value }).collect();
    match commits.submit(unit).outcome().await {
        Ok(_) => Ok(ring),
        // Another node made the first keys at the same time: those count.
        Err(error) if error.kind() == Kind::Conflict => Ring::load(seal_key, &reader.meta().await?)?.ok_or(error),
        Err(error) => Err(error),
    }
}

impl Storage {
    /// The store as the certificate authority engine sees it.
    pub fn pki(&self) -> Arc<dyn PkiStore> {
        self.0.clone()
    }

    /// The store as authentication sees it.
    pub fn auth(&self) -> Arc<dyn AuthStore> {
        self.0.clone()
    }

    /// What other nodes change; `None` when there are no others.
    pub fn changes(&self) -> Option<Arc<dyn ChangeLog>> {
        self.0.changes.clone()
    }

    /// The store as the projects API sees it.
    pub fn projects(&self) -> Arc<dyn ProjectStore> {
        self.0.projects.clone()
    }

    /// Adds a data key that seals everything from now on; returns its term. What was sealed before
    /// stays readable. Happens by itself when a key has sealed a billion values.
    ///
    /// # Errors
    /// `Conflict` when another rotation came first; its key is in use then.
    pub async fn rotate(&self) -> Result<u32> {
        let Inner { ring, engine, .. } = &*self.0;
        rotate(ring.clone(), engine.commits.clone(), engine.reader.clone()).await
    }

    /// How many commits ran since the store was opened.
    pub fn commits(&self) -> u64 {
        self.0.commits.commits()
    }

    /// Refuses new work, writes what was admitted, brings the log into the data file and closes it.
    /// Safe to repeat.
    ///
    /// # Errors
    /// `Unavailable` when the last steps fail; what was answered as written is on disk all the same.
    pub async fn shutdown(&self) -> Result<()> {
        self.0.reader.close();
        self.0.commits.stop().await
    }
}

impl Inner {
    /// Seals a body for the row that `context` names.
    fn seal(&self, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        if self.ring.asks_for_rotation()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (ring, commits, reader) = (self.ring.clone(), self.commits.clone(), self.reader.clone());
            runtime.spawn(async move {
                match rotate(ring, commits, reader).await {
                    Ok(term) => tracing::info!(term, "data key rotated"),
                    Err(error) => tracing::warn!(%error, "data key not rotated"),
                }
            });
        }
        self.ring.seal(context, body)
    }

    /// Commits a write that answers with a number of rows. Submitted by the call itself, like every unit.
    fn count(&self, write: Write) -> BoxFuture<'static, Result<u32>> {
        let submitted = self.commits.submit(vec![write]);
        async move {
            match submitted.outcome().await?.first() {
                Some(Outcome::Removed(count)) => Ok(*count),
                _ => Err(Error::internal("the backend answered another write")),
            }
        }
        .boxed()
    }
}

async fn rotate(ring: Arc<Ring>, commits: commit::Handle, reader: Arc<dyn Reader>) -> Result<u32> {
    let new = ring.new_term()?;
    let (name, value) = new.fact.clone();
    match commits.submit(vec![Write::MetaInsert { name, value }]).outcome().await {
        Ok(_) => Ok(ring.adopt(new)),
        Err(error) => {
            if error.kind() == Kind::Conflict {
                ring.learn(&reader.meta().await?)?;
            }
            Err(error)
        }
    }
}
