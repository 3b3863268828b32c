//! Pools of connections. Callers wait for a connection in a fair queue, for a limited time.
//!
//! The runtime that opened the store drives the reading connections, because an HTTP worker that ends or is busy must
//! not block other reads. A session exchanges many messages with the server, and on the store's runtime each message
//! would wake up two threads. So the HTTP worker that opens a connection for a session also drives it, and a worker
//! takes its own idle connections first. A worker gets a connection of another worker only if the pool is full. The
//! queue and the limit apply to the whole node. With a separate limit per worker, a worker would have too few
//! connections to keep one free for other callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::histogram;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::connect;
use super::query::PostgresClient;
use super::url::PostgresUrl;
use crate::error::{Error, Kind, Result};
use crate::rationing::{CallerId, FairSemaphore, Permit};
use crate::telemetry;

const MAX_READ_CONNECTIONS: usize = 4;
/// The statement timeout ends a slow statement, such as a list query that scans too much, so that it does not delay
/// other callers. The lock timeout is shorter, so that it fires first: its error is distinct, and the work is retried.
const SESSION_SETTINGS: &str = "SET statement_timeout = '3s'; SET lock_timeout = '1s'";
/// Maximum wait for a permit, and maximum time to create a connection. Longer than one connection attempt
/// ([`SESSION_TIMEOUT`](super::url::SESSION_TIMEOUT)).
const MAX_CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// Maximum duration of a read. It is above the server's own limit, so it only matters for a server that does not
/// respond at all.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(12);

/// The purpose of a pool's connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    /// Read-only statements.
    Reads,
    /// Sessions, which may write.
    Sessions,
}

impl ConnectionUse {
    fn max_connections(self, url: &PostgresUrl) -> usize {
        match self {
            Self::Reads => MAX_READ_CONNECTIONS,
            Self::Sessions => url.projects_connections(),
        }
    }

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

/// A pool of connections for one purpose. Clones share the connections.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<PoolInner>);

struct PoolInner {
    url: PostgresUrl,
    purpose: ConnectionUse,
    /// The runtime that opened the store.
    store_runtime: Handle,
    permits: FairSemaphore,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Idle connections. The connection that was used last is at the end.
    idle: Vec<PostgresConnection>,
    /// Number of borrowed connections, including those that are being opened or cleaned up.
    borrowed: usize,
    is_closed: bool,
}

struct PostgresConnection {
    client: PostgresClient,
    opened_at: Instant,
    /// The runtime that drives the connection.
    runtime: runtime::Id,
}

impl ConnectionPool {
    /// Creates a pool. Must be called on the runtime that will drive reading connections.
    pub(super) fn new(url: &PostgresUrl, purpose: ConnectionUse) -> Result<Self> {
        let max = purpose.max_connections(url);
        let permits = match purpose {
            ConnectionUse::Reads => FairSemaphore::with_caller_limit(max, max),
            ConnectionUse::Sessions => FairSemaphore::new(max),
        };
        let store_runtime = Handle::try_current().map_err(Error::internal)?;
        Ok(Self(Arc::new(PoolInner { url: url.clone(), purpose, store_runtime, permits, state: Mutex::default() })))
    }

    /// Borrows a connection, queued fairly between callers.
    pub(super) async fn borrow(&self, caller_id: CallerId) -> Result<PooledConnection> {
        let started = Instant::now();
        let borrowed = self.borrow_now(caller_id).await;
        histogram!(telemetry::POSTGRES_READ_WAIT_SECONDS).record(started.elapsed());
        borrowed
    }

    async fn borrow_now(&self, caller_id: CallerId) -> Result<PooledConnection> {
        let permit = tokio::time::timeout(MAX_CONNECTION_WAIT, self.0.permits.acquire(caller_id));
        let permit = permit
            .await
            .map_err(|_| Error::new(Kind::Busy, "storage: all database connections of this node are in use; retry"))?;
        let runtime = match self.0.purpose {
            ConnectionUse::Reads => self.0.store_runtime.clone(),
            ConnectionUse::Sessions => Handle::current(),
        };
        let connection = self.take_idle(runtime.id())?;
        let mut loan = PooledConnection { pool: self.clone(), connection, permit: Some(permit) };
        if loan.connection.is_none() {
            loan.connection = Some(self.open(runtime).await?);
        }
        Ok(loan)
    }

    /// Takes an idle connection, if possible one that this runtime drives. Returns `None` if the caller must open one.
    fn take_idle(&self, runtime: runtime::Id) -> Result<Option<PostgresConnection>> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::new(Kind::Unavailable, "storage: the store is closed"));
        }
        state.idle.retain(|connection| !connection.client.is_closed());
        let of_this_runtime = state.idle.iter().position(|connection| connection.runtime == runtime);
        let any = (self.is_full(&state) && !state.idle.is_empty()).then_some(0);
        state.borrowed += 1;
        Ok(of_this_runtime.or(any).map(|index| state.idle.remove(index)))
    }

    /// Opens a connection. If that takes too long for the caller, the pool keeps the connection for the next caller, so
    /// that slow networks work as well.
    async fn open(&self, runtime: Handle) -> Result<PostgresConnection> {
        let pool = self.clone();
        let id = runtime.id();
        let (give, opened) = oneshot::channel();
        runtime.spawn(async move {
            let client = pool.0.purpose.connect(&pool.0.url).await;
            let opened = client.map(|client| PostgresConnection { client, opened_at: Instant::now(), runtime: id });
            if let Err(Ok(late)) = give.send(opened) {
                pool.keep(late);
            }
        });
        match tokio::time::timeout(MAX_CONNECTION_WAIT, opened).await {
            Ok(Ok(opened)) => opened.map_err(unreachable_error),
            Ok(Err(ended)) => Err(Error::unavailable("storage: the store is closed", ended)),
            Err(late) => Err(unreachable_error(late)),
        }
    }

    /// Ends the loan of a connection: keeps it if it is idle, or only counts it as returned if it was closed (`None`).
    fn end_loan(&self, connection: Option<PostgresConnection>, permit: Permit) {
        self.lock().borrowed -= 1;
        if let Some(connection) = connection {
            self.keep(connection);
        }
        drop(permit);
    }

    /// Keeps an idle connection, unless the pool is full or closed.
    fn keep(&self, connection: PostgresConnection) {
        let mut state = self.lock();
        if !state.is_closed && !self.is_full(&state) {
            state.idle.push(connection);
        }
    }

    fn is_full(&self, state: &PoolState) -> bool {
        state.idle.len() + state.borrowed >= self.0.purpose.max_connections(&self.0.url)
    }

    /// Closes the idle connections now, and borrowed ones when they are returned.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A borrowed connection. Dropping it without [`PooledConnection::give_back`] cancels the work on it.
pub(super) struct PooledConnection {
    pool: ConnectionPool,
    connection: Option<PostgresConnection>,
    permit: Option<Permit>,
}

impl PooledConnection {
    /// Returns the client and the time at which its connection was opened.
    pub(super) fn client(&self) -> Result<(&PostgresClient, Instant)> {
        let connection = self
            .connection
            .as_ref()
            .ok_or_else(|| Error::internal("defect: a database connection was used after its return to the pool"))?;
        Ok((&connection.client, connection.opened_at))
    }

    /// Returns the connection to the pool if it is idle, and closes it if it is lost or does not respond.
    pub(super) fn give_back(mut self, is_idle: bool) {
        let connection = self.connection.take().filter(|_| is_idle);
        if let Some(permit) = self.permit.take() {
            self.pool.end_loan(connection, permit);
        }
    }
}

impl Drop for PooledConnection {
    /// Cleans up after cancelled work. The connection may hang, so it returns to the pool only after a ROLLBACK.
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let Some(connection) = self.connection.take() else { return self.pool.end_loan(None, permit) };
        let pool = self.pool.clone();
        self.pool.0.store_runtime.spawn(async move {
            let rollback = tokio::time::timeout(READ_TIMEOUT, connection.client.simple_query("ROLLBACK"));
            let is_idle = matches!(rollback.await, Ok(Ok(_)));
            pool.end_loan(Some(connection).filter(|_| is_idle), permit);
        });
    }
}

fn unreachable_error(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unavailable("storage: the database is unreachable", cause)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use super::*;
    use crate::storage::postgres::fixture::Postgres;
    use crate::storage::tests::contract::Fixture as _;

    /// A thread with a runtime of its own, like an HTTP worker.
    struct Worker {
        runtime: Handle,
        stop: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    }

    impl Worker {
        fn start() -> Self {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let handle = runtime.handle().clone();
            let (stop, stopped) = oneshot::channel();
            let thread = std::thread::spawn(move || runtime.block_on(stopped).unwrap());
            Self { runtime: handle, stop, thread }
        }

        fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
            let (give, taken) = mpsc::channel();
            self.runtime.spawn(async move { give.send(work.await).unwrap() });
            taken.recv().unwrap()
        }

        /// Returns the server processes of `count` connections that are borrowed concurrently.
        fn borrow(&self, pool: &ConnectionPool, count: usize) -> HashSet<i32> {
            let pool = pool.clone();
            self.run(async move {
                let mut processes = HashSet::new();
                let mut loans = Vec::new();
                for caller_id in 0..count as CallerId {
                    let loan = pool.borrow(caller_id).await.unwrap();
                    let row = loan.client().unwrap().0.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
                    processes.insert(row.get(0));
                    loans.push(loan);
                }
                loans.into_iter().for_each(|loan| loan.give_back(true));
                processes
            })
        }

        fn stop(self) {
            self.stop.send(()).unwrap();
            self.thread.join().unwrap();
        }
    }

    #[test]
    fn session_connection_serves_its_worker_first_and_others_when_the_pool_is_full() {
        let fixture = Postgres::new();
        const MAX_CONNECTIONS: usize = 5;
        let url = fixture.url().with_projects_connections(MAX_CONNECTIONS);
        let [one, other] = [Worker::start(), Worker::start()];
        let pool = one.run(async move { ConnectionPool::new(&url, ConnectionUse::Sessions).unwrap() });
        let of_one = one.borrow(&pool, 1);
        let of_other = other.borrow(&pool, 1);
        assert!(of_one.is_disjoint(&of_other), "each worker opens a connection");
        let all = one.borrow(&pool, MAX_CONNECTIONS);
        assert!(all.len() == MAX_CONNECTIONS && all.is_superset(&of_one) && all.is_superset(&of_other));
        assert_eq!(other.borrow(&pool, 1), of_other);
        one.stop();
        let later = other.borrow(&pool, MAX_CONNECTIONS);
        assert_eq!(
            later.intersection(&all).copied().collect::<HashSet<_>>(),
            of_other,
            "the others ended with their worker"
        );
        pool.close();
        let refused = other.run(async move { pool.borrow(1).await.err().unwrap() });
        assert_eq!(refused.text(), "storage: the store is closed");
        other.stop();
    }
}
