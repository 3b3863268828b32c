//! The reading connections: a small pool, used from blocking threads, with a bounded wait.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    STATEMENTS, certificates, crls, documents, leases, meta, metadata, mounts, revocations, session, tidy, tokens,
};
use crate::auth::store::TokenRow;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::pki::store::{
    CrlRow, LeaseRow, MetadataRow, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use crate::projects::store::{Failure, Work};
use crate::storage::backend::{Fact, Reader, SealedDocument, TokenBy};
use crate::x509::serial::Serial;

const CONNECTIONS: usize = 2;
/// Longest wait for a free connection.
const WAIT: Duration = Duration::from_secs(5);
/// Longest wait of a read for the start of the database's log.
const BUSY: Duration = Duration::from_secs(5);

/// Longest time of work that reads for the projects API.
const SESSION: Duration = Duration::from_secs(5);

/// The reading connections of one database.
#[derive(Clone)]
pub(in crate::storage) struct Pool(Arc<Shared>);

struct Shared {
    idle: Mutex<Idle>,
    permits: Arc<Semaphore>,
}

struct Idle {
    connections: Vec<Connection>,
    /// The lock on the folder; given up with the last connection.
    lock: Option<Arc<File>>,
}

/// A connection on loan; it returns to the pool when dropped, after a panic too.
struct Lease {
    shared: Arc<Shared>,
    db: Option<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.lock.is_some() {
            idle.connections.extend(self.db.take());
        }
    }
}

impl Pool {
    pub(super) fn open(path: &Path, lock: Arc<File>) -> Result<Self> {
        let failed = |e| Error::unavailable(format!("{}: cannot be opened for reading", path.display()), e);
        let connections = connect_all(path).map_err(failed)?;
        let idle = Mutex::new(Idle { connections, lock: Some(lock) });
        Ok(Self(Arc::new(Shared { idle, permits: Arc::new(Semaphore::new(CONNECTIONS)) })))
    }

    /// Waits for the reads under way, closes every connection, and holds up later reads until the
    /// result is dropped.
    pub(super) async fn pause(&self) -> Result<Paused> {
        let permits = self.0.permits.clone().acquire_many_owned(CONNECTIONS as u32).await.map_err(|_| stopped())?;
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).connections.clear();
        Ok(Paused { shared: self.0.clone(), _permits: permits })
    }

    /// Runs `work` on a connection, on a thread that may block.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let shared = self.0.clone();
        async move {
            let lease = lease(shared).await?;
            let done = tokio::task::spawn_blocking(move || {
                let db = lease.db.as_ref().ok_or(rusqlite::Error::InvalidQuery)?;
                work(db)
            });
            match done.await {
                Ok(result) => result.map_err(|e| Error::unavailable("storage: the read failed", e)),
                Err(panic) => Err(Error::internal(format!("a read ended early (panicked: {})", panic.is_panic()))),
            }
        }
        .boxed()
    }
}

impl Pool {
    /// Runs work of the projects API that only reads, all of it in one snapshot. It is interrupted when it
    /// takes too long.
    pub(in crate::storage) fn session(&self, work: Work) -> BoxFuture<'static, Result<Result<(), Failure>>> {
        let shared = self.0.clone();
        async move {
            let lease = lease(shared).await?;
            let interrupt = lease.db.as_ref().map(Connection::get_interrupt_handle);
            let done = tokio::task::spawn_blocking(move || {
                let db = lease.db.as_ref().ok_or_else(stopped)?;
                let failed = |e| Error::unavailable("storage: the read failed", e);
                let snapshot = db.unchecked_transaction().map_err(failed)?;
                let outcome = session::run(&snapshot, &work);
                snapshot.finish().map_err(failed)?;
                Ok(outcome)
            });
            let mut done = std::pin::pin!(done);
            let ended = match tokio::time::timeout(SESSION, &mut done).await {
                Ok(ended) => ended,
                Err(_) => {
                    if let Some(interrupt) = interrupt {
                        interrupt.interrupt();
                    }
                    done.await
                }
            };
            ended.unwrap_or_else(|_| Err(Error::internal("a read panicked")))
        }
        .boxed()
    }
}

/// A pool without connections; reads wait.
pub(super) struct Paused {
    shared: Arc<Shared>,
    _permits: OwnedSemaphorePermit,
}

impl Paused {
    /// Opens the connections again.
    pub(super) fn resume(self, path: &Path) -> rusqlite::Result<()> {
        let connections = connect_all(path)?;
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.lock.is_some() {
            idle.connections = connections;
        }
        Ok(())
    }
}

async fn lease(shared: Arc<Shared>) -> Result<Lease> {
    let permit = tokio::time::timeout(WAIT, shared.permits.clone().acquire_owned())
        .await
        .map_err(|_| Error::new(Kind::Busy, "storage: too many reads at once"))?
        .map_err(|_| stopped())?;
    let db = shared.idle.lock().unwrap_or_else(PoisonError::into_inner).connections.pop();
    if db.is_none() {
        return Err(if shared.permits.is_closed() {
            stopped()
        } else {
            Error::new(Kind::Unavailable, "storage: the database does not open")
        });
    }
    Ok(Lease { shared, db, _permit: permit })
}

fn stopped() -> Error {
    Error::new(Kind::Unavailable, "storage: stopped")
}

fn connect_all(path: &Path) -> rusqlite::Result<Vec<Connection>> {
    (0..CONNECTIONS).map(|_| connect(path)).collect()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.busy_timeout(BUSY)?;
    db.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;")?;
    Ok(db)
}

impl Reader for Pool {
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.read(meta::all)
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.read(move |db| documents::list(db, mount, kind))
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.read(move |db| certificates::get(db, mount, serial))
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.read(move |db| certificates::status(db, mount, serial))
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read(move |db| certificates::serials(db, mount, after, limit))
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read(move |db| revocations::serials(db, mount, after, limit))
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.read(move |db| revocations::by_sequence(db, mount, after, limit))
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.read(move |db| crls::list(db, mount))
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.read(move |db| mounts::counts(db, mount))
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.read(move |db| leases::get(db, &id))
    }

    fn lease_ids(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.read(move |db| leases::ids(db, &after, &below, limit))
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.read(move |db| leases::ending(db, &after, &below, limit))
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.read(move |db| certificates::with_der(db, mount, after, limit))
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.read(move |db| tidy::get(db, mount))
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.read(move |db| metadata::get(db, mount, serial))
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read(move |db| metadata::serials(db, mount, after, limit))
    }

    fn token(&self, by: TokenBy) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.read(move |db| tokens::get(db, by))
    }

    fn close(&self) {
        self.0.permits.close();
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.connections.clear();
        idle.lock = None;
    }
}
