//! The reading connections: a small pool, used from blocking threads, with a bounded wait.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{connection, documents, meta, session};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::sql::{Failure, Work};
use crate::storage::backend::{Fact, Reader, SealedDocument};
use crate::storage::file_hold::FileHold;

const CONNECTIONS: usize = 2;
/// Longest wait for a free connection.
const WAIT: Duration = Duration::from_secs(5);
/// Longest time of work that reads in a session.
const SESSION: Duration = Duration::from_secs(5);

/// The reading connections of one database.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    idle: Mutex<Idle>,
    permits: Arc<Semaphore>,
    file: FileHold,
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
        let file = FileHold::new(path.parent().unwrap_or(Path::new("")).to_owned());
        Ok(Self(Arc::new(Shared { idle, permits: Arc::new(Semaphore::new(CONNECTIONS)), file })))
    }

    /// Who may change the database file, and who keeps it as it is.
    pub(super) fn file_hold(&self) -> &FileHold {
        &self.0.file
    }

    /// Waits for the reads under way, closes every connection, and holds up later reads until the
    /// result is dropped.
    pub(super) async fn pause(&self) -> Result<Paused> {
        let permits = self.0.permits.clone().acquire_many_owned(CONNECTIONS as u32).await.map_err(|_| stopped())?;
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).connections.clear();
        Ok(Paused { shared: self.0.clone(), _permits: permits })
    }

    /// Runs `work` on a connection, on a thread that may block.
    pub(super) fn read<T: Send + 'static>(
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
    /// Runs work that only reads, all of it in one snapshot. It is interrupted when it
    /// takes too long.
    pub(super) fn session(&self, work: Work) -> BoxFuture<'static, Result<Result<(), Failure>>> {
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
    (0..CONNECTIONS).map(|_| connection::reader(path)).collect()
}

impl Reader for Pool {
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.read(meta::all)
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.read(move |db| documents::list(db, mount, kind))
    }

    fn file_hold(&self) -> Option<FileHold> {
        Some(self.0.file.clone())
    }

    fn close(&self) {
        self.0.permits.close();
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.connections.clear();
        idle.lock = None;
    }
}
