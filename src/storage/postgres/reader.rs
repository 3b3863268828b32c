//! The reading connections: a small pool with a limited wait and a deadline for each read.
//!
//! The runtime that opened the store drives them, because a worker that ends or is busy must not block other reads.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use deadpool::Runtime;
use deadpool::managed::{self, Manager, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::histogram;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::query::{PostgresClient, PostgresError};
use super::url::PostgresUrl;
use super::{certificates, connect, revocations, tokens};
use crate::auth::store::{TokenHash, TokenRow};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::fair_queue::{CallerId, FairSemaphore, Permit};
use crate::pki::store::{SerialStatus, StoredCertificate, StoredRevocation};
use crate::storage::backend::{Fact, SealedDocument, StoreReader};
use crate::storage::engine::{ReadConnection, TableReader};
use crate::storage::tables::{documents, facts};
use crate::telemetry;
use crate::x509::serial::Serial;

const READ_CONNECTIONS: usize = 4;
/// Number of connections for sessions.
const SESSION_CONNECTIONS: usize = 8;
/// A list query that scans too much ends early, so that it does not delay others. The lock timeout is shorter, because
/// it has its own error and is retried.
const SESSION_SETTINGS: &str = "SET statement_timeout = '3s'; SET lock_timeout = '1s'";
/// Maximum wait for a free connection, and maximum time to create one. Longer than one connection attempt
/// ([`SESSION_TIMEOUT`](super::url::SESSION_TIMEOUT)).
const MAX_CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// Maximum duration of a read, above the server's own limit: for a server that does not respond at all.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(12);

/// The reading connections of a database.
#[derive(Clone)]
pub(crate) struct PostgresReaderPool {
    connections: managed::Pool<ConnectionManager>,
    /// Connections for sessions, whose reads and transactions take longer.
    pub(super) sessions: managed::Pool<ConnectionManager>,
    entrance: FairSemaphore,
    pub(super) home: Handle,
    pub(super) url: PostgresUrl,
    /// This node's id in the change log.
    pub(super) node: i64,
    pub(super) listener: Arc<OnceLock<ChangeListener>>,
}

/// The task that listens for other nodes, and the signal that it sends.
pub(super) struct ChangeListener {
    pub(super) task: AbortHandle,
    pub(super) signal: Arc<Notify>,
}

/// A connection borrowed for one read.
pub(super) struct PooledConnection {
    pub(super) db: Option<Object<ConnectionManager>>,
    home: Handle,
}

impl PooledConnection {
    /// Returns a connection that is idle.
    pub(super) fn answered(mut self) {
        drop(self.db.take());
    }

    /// Closes a connection that is lost or does not respond.
    pub(super) fn close(mut self) {
        self.db.take().map(Object::take);
    }
}

impl Drop for PooledConnection {
    /// Cleans up after a cancelled read. The connection may hang, so it returns to the pool only after a ROLLBACK.
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        self.home.spawn(async move {
            if !matches!(tokio::time::timeout(READ_TIMEOUT, db.simple_query("ROLLBACK")).await, Ok(Ok(_))) {
                drop(Object::take(db));
            }
        });
    }
}

/// Creates connections on the runtime that opened the store.
pub(super) struct ConnectionManager {
    url: PostgresUrl,
    home: Handle,
    use_for: ConnectionUse,
    /// A connection completed after its caller had timed out, for the next caller, so that slow networks work as well.
    spare: Arc<Mutex<Option<PostgresClient>>>,
}

impl ConnectionManager {
    fn take_spare(&self) -> Option<PostgresClient> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).take().filter(|session| !session.is_closed())
    }
}

#[derive(Clone, Copy)]
enum ConnectionUse {
    /// Read-only statements.
    Reads,
    /// Sessions, which may write.
    Sessions,
}

impl ConnectionUse {
    async fn connect(self, url: &PostgresUrl) -> Result<PostgresClient> {
        match self {
            Self::Reads => connect::open_client(url).await.map(|(client, driver)| PostgresClient::new(client, driver)),
            Self::Sessions => {
                let session = connect::open_session(url).await?;
                session.batch_execute(SESSION_SETTINGS).await.map_err(connect::connection_error)?;
                Ok(session)
            }
        }
    }
}

impl Manager for ConnectionManager {
    type Type = PostgresClient;
    type Error = Error;

    async fn create(&self) -> Result<PostgresClient> {
        if let Some(spare) = self.take_spare() {
            return Ok(spare);
        }
        let url = self.url.clone();
        let use_for = self.use_for;
        let spare = Arc::clone(&self.spare);
        let (give, made) = oneshot::channel();
        self.home.spawn(async move {
            if let Err(Ok(session)) = give.send(use_for.connect(&url).await) {
                *spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            }
        });
        made.await.map_err(|end| Error::unavailable("storage: stopped", end))?
    }

    async fn recycle(&self, db: &mut PostgresClient, _: &Metrics) -> RecycleResult<Error> {
        if db.is_closed() { Err(RecycleError::message("the connection is dead")) } else { Ok(()) }
    }
}

impl PostgresReaderPool {
    /// Must be called on the runtime that will drive the connections.
    pub(super) fn new(url: &PostgresUrl, node: i64) -> Result<Self> {
        let home = Handle::try_current().map_err(Error::internal)?;
        let connections = build_pool(url, &home, READ_CONNECTIONS, ConnectionUse::Reads)?;
        let sessions = self::build_pool(url, &home, SESSION_CONNECTIONS, ConnectionUse::Sessions)?;
        let entrance = FairSemaphore::new(SESSION_CONNECTIONS);
        Ok(Self { connections, sessions, entrance, home, url: url.clone(), node, listener: Arc::default() })
    }

    /// Runs `work` on a connection, with the creation time of the connection. A lost connection is replaced once: reads
    /// are safe to repeat, and after a restart of the server all idle connections are lost.
    pub(super) fn read_with_age<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a PostgresClient, Instant) -> BoxFuture<'a, Result<T, PostgresError>>
        + Send
        + Sync
        + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let pool = self.clone();
        async move {
            for last in [false, true] {
                let loan = pool.borrow().await?;
                let Some(db) = &loan.db else { break };
                let started = Instant::now();
                let done = tokio::time::timeout(READ_TIMEOUT, work(db, Object::metrics(db).created)).await;
                histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => name).record(started.elapsed());
                match done {
                    Ok(Ok(found)) => {
                        loan.answered();
                        return Ok(found);
                    }
                    Ok(Err(failure)) if failure.is_connection_lost() && !last => loan.close(),
                    Ok(Err(failure)) => {
                        loan.answered();
                        return Err(failure.into_read_error());
                    }
                    Err(late) => {
                        loan.close();
                        return Err(Error::unavailable("storage: the database takes too long", late));
                    }
                }
            }
            Err(Error::internal("a read that neither ended nor failed"))
        }
        .boxed()
    }

    async fn borrow(&self) -> Result<PooledConnection> {
        self.borrow_from(&self.connections, Instant::now()).await
    }

    /// Borrows a connection for a session, queued fairly between callers.
    pub(super) async fn borrow_session(&self, caller_id: CallerId) -> Result<(Permit, PooledConnection)> {
        let started = Instant::now();
        let permit = tokio::time::timeout(MAX_CONNECTION_WAIT, self.entrance.enter(caller_id))
            .await
            .map_err(|_| too_many_reads_error())?;
        Ok((permit, self.borrow_from(&self.sessions, started).await?))
    }

    /// Borrows a connection from a pool, for a caller that has waited since `started`.
    async fn borrow_from(&self, pool: &managed::Pool<ConnectionManager>, started: Instant) -> Result<PooledConnection> {
        let db = pool.get().await;
        histogram!(telemetry::POSTGRES_READ_WAIT_SECONDS).record(started.elapsed());
        let db = db.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => too_many_reads_error(),
            PoolError::Closed => Error::new(Kind::Unavailable, "storage: stopped"),
            other => Error::unavailable("storage: the database is unreachable", other),
        })?;
        Ok(PooledConnection { db: Some(db), home: self.home.clone() })
    }
}

impl StoreReader for PostgresReaderPool {
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.read_tables("meta", |db| facts::all(db).boxed())
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.read_tables("documents", move |db| documents::list(db, mount, kind).boxed())
    }

    fn close(&self) {
        if let Some(listener) = self.listener.get() {
            listener.task.abort();
        }
        for pool in [&self.connections, &self.sessions] {
            pool.close();
            drop(pool.manager().take_spare());
        }
    }
}

impl TableReader for PostgresReaderPool {
    type Connection = PostgresClient;

    fn read_tables<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'c> Fn(&'c PostgresClient) -> BoxFuture<'c, Result<T, PostgresError>> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        self.read_with_age(name, move |db, _| work(db))
    }
}

impl ReadConnection for PostgresClient {
    fn token(&self, sql: &'static str, hash: TokenHash) -> BoxFuture<'_, Result<Option<TokenRow>, PostgresError>> {
        tokens::by_hash(self, sql, hash).boxed()
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'_, Result<Vec<TokenRow>, PostgresError>> {
        tokens::page(self, after, limit).boxed()
    }

    fn certificate(
        &self,
        mount: MountId,
        serial: Serial,
    ) -> BoxFuture<'_, Result<Option<StoredCertificate>, PostgresError>> {
        certificates::get(self, mount, serial).boxed()
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'_, Result<SerialStatus, PostgresError>> {
        certificates::status(self, mount, serial).boxed()
    }

    fn revocations(
        &self,
        mount: MountId,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<StoredRevocation>, PostgresError>> {
        revocations::by_sequence(self, mount, after, limit).boxed()
    }
}

fn build_pool(
    url: &PostgresUrl,
    home: &Handle,
    size: usize,
    use_for: ConnectionUse,
) -> Result<managed::Pool<ConnectionManager>> {
    managed::Pool::builder(ConnectionManager { url: url.clone(), home: home.clone(), use_for, spare: Arc::default() })
        .max_size(size)
        .wait_timeout(Some(MAX_CONNECTION_WAIT))
        .create_timeout(Some(MAX_CONNECTION_WAIT))
        .recycle_timeout(Some(MAX_CONNECTION_WAIT))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(Error::internal)
}

fn too_many_reads_error() -> Error {
    Error::new(Kind::Busy, "storage: too many reads at once")
}
