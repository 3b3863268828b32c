//! The reading connections: a small pool with a bounded wait and a deadline for each read.
//!
//! They are driven by the runtime that opened the store, not by the one that happens to read first: a
//! worker that ends, or is busy signing, must not hold up the others' reads.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadpool_postgres::{Connect, Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime, TimeoutType};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::histogram;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::{Client, Config};

use super::connect::{self, PostgresUrl};
use super::{
    Failure, Session, certificates, changes, crls, documents, leases, meta, metadata, mounts, revocations, tidy, tokens,
};
use crate::auth::store::TokenRow;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::nodes::store::{ChangeLog, Changes, Point};
use crate::pki::store::{
    CrlRow, LeaseRow, MetadataRow, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use crate::storage::backend::{Fact, Reader, SealedDocument, TokenBy};
use crate::telemetry;
use crate::x509::serial::Serial;

const CONNECTIONS: usize = 4;
/// Connections of the projects API.
const SESSIONS: usize = 8;
/// A list that scans too much ends early, so that it does not hold up the others. A wait for a lock ends
/// before that: it says something else, and is tried again.
const SESSION_SETTINGS: &str = "SET statement_timeout = '3s'; SET lock_timeout = '1s'";
/// Longest wait for a free connection, and longest time to make one.
const WAIT: Duration = Duration::from_secs(5);
/// Longest time of one read, beyond the server's own limit: for a server that does not answer at all.
pub(super) const DEADLINE: Duration = Duration::from_secs(12);

/// The reading connections of one database.
#[derive(Clone)]
pub(in crate::storage) struct Pool {
    connections: deadpool_postgres::Pool,
    /// Of the projects API, whose reads and transactions take longer.
    pub(super) sessions: deadpool_postgres::Pool,
    home: Handle,
    url: PostgresUrl,
    /// Who we are in the change log.
    node: i64,
    listener: Arc<OnceLock<Listener>>,
}

/// The connection that listens for other nodes, and who is told.
struct Listener {
    task: AbortHandle,
    told: Arc<Notify>,
}

/// A connection on loan for one read.
pub(super) struct Loan {
    pub(super) db: Option<Object>,
    home: Handle,
}

impl Loan {
    /// Gives back a connection that has answered.
    pub(super) fn answered(mut self) {
        drop(self.db.take());
    }

    /// Closes a connection that is dead or does not answer.
    pub(super) fn close(mut self) {
        self.db.take().map(Object::take);
    }
}

impl Drop for Loan {
    /// The caller left in the middle of a read. The connection may be one that hangs: it goes back only
    /// when it answers, so that the next caller does not wait for it, and without a transaction.
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        self.home.spawn(async move {
            if !matches!(tokio::time::timeout(DEADLINE, db.simple_query("ROLLBACK")).await, Ok(Ok(_))) {
                drop(Object::take(db));
            }
        });
    }
}

/// Makes connections on the runtime that opened the store.
struct AtHome {
    url: PostgresUrl,
    home: Handle,
    settings: &'static str,
}

impl Connect for AtHome {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let (url, settings) = (self.url.clone(), self.settings);
        let made = self.home.spawn(async move {
            let (client, driver) = connect::client(&url).await?;
            client.batch_execute(settings).await?;
            Ok((client, driver))
        });
        async move {
            match made.await {
                Ok(result) => result,
                // The runtime is ending, and there is no error to say so: the pool's own limit ends this.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl Pool {
    /// Must be called on the runtime that is to drive the connections.
    pub(super) fn new(url: &PostgresUrl, node: i64) -> Result<Self> {
        let home = Handle::try_current().map_err(Error::internal)?;
        let connections = connections(url, &home, CONNECTIONS, "")?;
        let sessions = self::connections(url, &home, SESSIONS, SESSION_SETTINGS)?;
        Ok(Self { connections, sessions, home, url: url.clone(), node, listener: Arc::default() })
    }

    /// Runs `work` on a connection. One that turns out to be dead is replaced once: a read is safe to
    /// repeat, and after a restart of the server every idle connection is dead.
    fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a Session) -> BoxFuture<'a, Result<T, Failure>> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let pool = self.clone();
        async move {
            for last in [false, true] {
                let loan = pool.lend().await?;
                let Some(db) = &loan.db else { break };
                let started = Instant::now();
                let done = tokio::time::timeout(DEADLINE, work(db)).await;
                histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => name).record(started.elapsed());
                match done {
                    Ok(Ok(found)) => {
                        loan.answered();
                        return Ok(found);
                    }
                    Ok(Err(failure)) if failure.is_gone() && !last => loan.close(),
                    Ok(Err(failure)) => {
                        loan.answered();
                        return Err(failure.of_read());
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

    async fn lend(&self) -> Result<Loan> {
        self.lend_of(&self.connections).await
    }

    /// A connection of one of the pools.
    pub(super) async fn lend_of(&self, pool: &deadpool_postgres::Pool) -> Result<Loan> {
        let started = Instant::now();
        let db = pool.get().await;
        histogram!(telemetry::POSTGRES_READ_WAIT_SECONDS).record(started.elapsed());
        let db = db.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => Error::new(Kind::Busy, "storage: too many reads at once"),
            PoolError::Closed => Error::new(Kind::Unavailable, "storage: stopped"),
            other => Error::unavailable("storage: the database is out of reach", other),
        })?;
        Ok(Loan { db: Some(db), home: self.home.clone() })
    }
}

impl Reader for Pool {
    fn meta(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.read("meta", |db| meta::all(db).boxed())
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.read("documents", move |db| documents::list(db, mount, kind).boxed())
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.read("certificate", move |db| certificates::get(db, mount, serial).boxed())
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.read("status", move |db| certificates::status(db, mount, serial).boxed())
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read("serials", move |db| certificates::serials(db, mount, after, limit).boxed())
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read("revoked_serials", move |db| revocations::serials(db, mount, after, limit).boxed())
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.read("revocations", move |db| revocations::by_sequence(db, mount, after, limit).boxed())
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.read("crls", move |db| crls::list(db, mount).boxed())
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.read("counts", move |db| mounts::counts(db, mount).boxed())
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.read("lease", move |db| {
            let id = id.clone();
            async move { leases::get(db, &id).await }.boxed()
        })
    }

    fn lease_ids(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.read("lease_ids", move |db| {
            let (after, below) = (after.clone(), below.clone());
            async move { leases::ids(db, &after, &below, limit).await }.boxed()
        })
    }

    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        self.read("ending_leases", move |db| {
            let (after, below) = (after.clone(), below.clone());
            async move { leases::ending(db, &after, &below, limit).await }.boxed()
        })
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.read("certificates", move |db| certificates::with_der(db, mount, after, limit).boxed())
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.read("tidy", move |db| tidy::get(db, mount).boxed())
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.read("metadata", move |db| metadata::get(db, mount, serial).boxed())
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.read("metadata_serials", move |db| metadata::serials(db, mount, after, limit).boxed())
    }

    fn token(&self, by: TokenBy) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.read("token", move |db| tokens::get(db, by).boxed())
    }

    fn close(&self) {
        if let Some(listener) = self.listener.get() {
            listener.task.abort();
        }
        self.connections.close();
        self.sessions.close();
    }
}

/// A pool of at most `size` connections with more settings than those of every one.
fn connections(
    url: &PostgresUrl,
    home: &Handle,
    size: usize,
    settings: &'static str,
) -> Result<deadpool_postgres::Pool> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let at_home = AtHome { url: url.clone(), home: home.clone(), settings };
    deadpool_postgres::Pool::builder(Manager::from_connect(connect::config(url), at_home, recycling))
        .max_size(size)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(WAIT))
        .recycle_timeout(Some(WAIT))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(Error::internal)
}

impl ChangeLog for Pool {
    fn since(&self, point: Point) -> BoxFuture<'static, Result<Changes>> {
        let node = self.node;
        self.read("changes", move |db| changes::since(db, point, node).boxed())
    }

    fn listen(&self) -> Arc<Notify> {
        let start = || {
            let told = Arc::new(Notify::new());
            let task = self.home.spawn(changes::listen(self.url.clone(), Arc::downgrade(&told)));
            Listener { task: task.abort_handle(), told }
        };
        Arc::clone(&self.listener.get_or_init(start).told)
    }
}
