//! Reads of the store: each borrows a connection from the pool and has a deadline.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::histogram;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::pool::{ConnectionPool, ConnectionUse, READ_TIMEOUT};
use super::query::{PostgresClient, PostgresError};
use super::url::PostgresUrl;
use super::{certificates, revocations, tokens};
use crate::auth::store::{TokenHash, TokenRow};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::pki::store::{SerialStatus, StoredCertificate, StoredRevocation};
use crate::projects::store::SERVER_CALLER;
use crate::storage::backend::{Fact, SealedDocument, StoreReader};
use crate::storage::engine::{ReadConnection, TableReader};
use crate::storage::tables::{documents, facts};
use crate::telemetry;
use crate::x509::serial::Serial;

/// The connections of a store for reads and for SQL sessions.
#[derive(Clone)]
pub(crate) struct PostgresReaderPool {
    connections: ConnectionPool,
    /// Connections for SQL sessions, whose statements and transactions take longer than other reads.
    pub(super) sessions: ConnectionPool,
    pub(super) store_runtime: Handle,
    pub(super) url: PostgresUrl,
    /// This node's id in the change log.
    pub(super) node: i64,
    pub(super) listener: Arc<OnceLock<ChangeListener>>,
}

/// The task that listens for changes by other nodes, and the signal by which it reports them.
pub(super) struct ChangeListener {
    pub(super) task: AbortHandle,
    pub(super) signal: Arc<Notify>,
}

impl PostgresReaderPool {
    /// Creates the pools. Must be called on the runtime that will drive the connections.
    pub(super) fn new(url: &PostgresUrl, node: i64) -> Result<Self> {
        let store_runtime = Handle::try_current().map_err(Error::internal)?;
        let connections = ConnectionPool::new(url, ConnectionUse::Reads)?;
        let sessions = ConnectionPool::new(url, ConnectionUse::Sessions)?;
        Ok(Self { connections, sessions, store_runtime, url: url.clone(), node, listener: Arc::default() })
    }

    /// Runs `work` with a connection and the time at which the connection was opened. If the connection is lost,
    /// repeats the read once with another one, because a restart of the server closes all idle connections.
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
                let loan = pool.connections.borrow(SERVER_CALLER).await?;
                let (db, opened_at) = loan.client()?;
                let started = Instant::now();
                let done = tokio::time::timeout(READ_TIMEOUT, work(db, opened_at)).await;
                histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => name).record(started.elapsed());
                match done {
                    Ok(Ok(found)) => {
                        loan.give_back(true);
                        return Ok(found);
                    }
                    Ok(Err(failure)) if failure.is_connection_lost() && !last => loan.give_back(false),
                    Ok(Err(failure)) => {
                        loan.give_back(true);
                        return Err(failure.into_read_error());
                    }
                    Err(late) => {
                        loan.give_back(false);
                        return Err(Error::unavailable("storage: the database did not respond in time", late));
                    }
                }
            }
            Err(Error::internal("defect: a database read ended without a result"))
        }
        .boxed()
    }
}

impl StoreReader for PostgresReaderPool {
    fn facts(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.read_tables("meta", |db| facts::all(db).boxed())
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.read_tables("documents", move |db| documents::list(db, mount, kind).boxed())
    }

    fn close(&self) {
        if let Some(listener) = self.listener.get() {
            listener.task.abort();
        }
        self.connections.close();
        self.sessions.close();
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
