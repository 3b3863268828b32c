//! The reading connections to the SQLite database: a small pool with its own threads. A read waits a limited time for a
//! connection.

mod queue;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::query::{SqliteError, resolve_ready};
use super::session::SqliteReadConnection;
use super::{certificates, connection, revocations, session, tokens};
use crate::auth::store::{TokenHash, TokenRow};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::pki::store::{SerialStatus, StoredCertificate, StoredRevocation};
use crate::projects::store::CallerId;
use crate::rationing::QueueCaller;
use crate::sql::{SqlError, SqlWork};
use crate::storage::backend::{Fact, SealedDocument, StoreReader};
use crate::storage::checkpoint_lock::CheckpointLock;
use crate::storage::engine::{ReadConnection, TableReader};
use crate::storage::tables::{documents, facts};
use crate::x509::serial::Serial;

use queue::{READ_CONNECTIONS, ReadJob, ReadQueue, ReadRejection};

/// Maximum time that a read waits for a free connection.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(5);
/// Maximum duration of a read-only session.
const MAX_SESSION_DURATION: Duration = Duration::from_secs(5);

type OpenConnection = fn(&Path) -> rusqlite::Result<Connection>;

/// The reading connections of a database. They are closed when the last clone of the pool is dropped.
#[derive(Clone)]
pub(crate) struct SqliteReaderPool(Arc<SqliteReaders>);

struct SqliteReaders {
    queue: Arc<ReadQueue>,
    checkpoints: CheckpointLock,
}

impl Drop for SqliteReaders {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SqliteReaderPool {
    pub(super) fn open(path: &Path, lock: Arc<File>) -> Result<Self> {
        Self::open_with(connection::open_reader, path, lock)
    }

    /// As [`SqliteReaderPool::open`], but opens the connections with `open`. Such a pool cannot be resumed after a
    /// pause.
    pub(super) fn open_with(open: OpenConnection, path: &Path, lock: Arc<File>) -> Result<Self> {
        let failed =
            |e| Error::unavailable(format!("{}: the database cannot be opened for reading", path.display()), e);
        let connections = open_connections(open, path).map_err(failed)?;
        let queue = ReadQueue::start(connections, lock)
            .map_err(|e| Error::unavailable("storage: the threads for database reads could not be started", e))?;
        let checkpoints = CheckpointLock::new(path.parent().unwrap_or(Path::new("")).to_owned());
        Ok(Self(Arc::new(SqliteReaders { queue, checkpoints })))
    }

    pub(super) fn checkpoint_lock(&self) -> &CheckpointLock {
        &self.0.checkpoints
    }

    /// Waits for the reads in progress, closes all connections, and delays later reads until the returned value is
    /// dropped.
    pub(super) async fn pause(&self) -> Result<PausedReaders> {
        self.0.queue.pause().await.map_err(rejection_error)?;
        Ok(PausedReaders { queue: self.0.queue.clone(), connections: Vec::new() })
    }

    /// Runs `work` with a connection on a thread of the pool. Skips the work if the caller no longer waits when a
    /// connection becomes free.
    fn run_read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SqliteReadConnection) -> Result<T, SqliteError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let queue = self.0.queue.clone();
        let caller = QueueCaller::current().caller_id();
        async move {
            let (reply, mut response) = oneshot::channel();
            let started = Arc::new(AtomicBool::new(false));
            let starts = started.clone();
            let job = move |db: &SqliteReadConnection| {
                starts.store(true, Ordering::Release);
                if !reply.is_closed() {
                    let _ = reply.send(catch_unwind(AssertUnwindSafe(|| work(db))));
                }
            };
            queue.enqueue(ReadJob::Read(caller, Box::new(job))).map_err(rejection_error)?;
            let done = match timeout(MAX_QUEUE_WAIT, &mut response).await {
                Ok(done) => done,
                Err(_) if started.load(Ordering::Acquire) => response.await,
                Err(_) => return Err(too_many_reads_error()),
            };
            match done {
                Ok(Ok(result)) => result.map_err(|e| e.into_error("storage: the read failed")),
                Ok(Err(_)) => Err(Error::internal("a database read panicked")),
                Err(_) => Err(rejection_error(queue.rejection())),
            }
        }
        .boxed()
    }

    /// Runs read-only work in one snapshot, queued fairly between callers. Interrupts the work when it takes too long,
    /// or when its caller no longer waits.
    pub(super) fn run_session(
        &self,
        caller_id: CallerId,
        work: SqlWork,
    ) -> BoxFuture<'static, Result<Result<(), SqlError>>> {
        let queue = self.0.queue.clone();
        async move {
            let running = Arc::new(Mutex::new(None));
            // The variable order matters: `started` is dropped before `interrupt`, so that no job starts after the
            // interrupt.
            let interrupt = InterruptOnDrop(running.clone());
            let (starts, started) = oneshot::channel();
            let (reply, mut response) = oneshot::channel();
            let job = move |db: &SqliteReadConnection| {
                let db = db.lock();
                set_interrupt_handle(&running, Some(db.get_interrupt_handle()));
                if starts.send(()).is_ok() {
                    let _ = reply.send(run_in_snapshot(&db, &work));
                }
                // The handle is removed, because a later interrupt would hit the next job of this connection.
                set_interrupt_handle(&running, None);
            };
            queue.enqueue(ReadJob::Session(caller_id, Box::new(job))).map_err(rejection_error)?;
            let gone = |_| rejection_error(queue.rejection());
            timeout(MAX_QUEUE_WAIT, started).await.map_err(|_| too_many_reads_error())?.map_err(gone)?;
            if let Ok(done) = timeout(MAX_SESSION_DURATION, &mut response).await {
                return done.map_err(gone)?;
            }
            drop(interrupt);
            response.await.map_err(gone)?
        }
        .boxed()
    }
}

/// A guard that interrupts the session when the guard is dropped, because the session took too long or its caller no
/// longer waits. Does nothing after the end of the session.
struct InterruptOnDrop(Arc<Mutex<Option<InterruptHandle>>>);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        if let Some(interrupt) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            interrupt.interrupt();
        }
    }
}

fn set_interrupt_handle(running: &Mutex<Option<InterruptHandle>>, handle: Option<InterruptHandle>) {
    *running.lock().unwrap_or_else(PoisonError::into_inner) = handle;
}

fn run_in_snapshot(db: &Connection, work: &SqlWork) -> Result<Result<(), SqlError>> {
    let failed = |e| Error::unavailable("storage: the read failed", e);
    let snapshot = db.unchecked_transaction().map_err(failed)?;
    let outcome = session::run_work(&snapshot, work);
    snapshot.finish().map_err(failed)?;
    Ok(outcome)
}

/// A paused pool: it has no connections, and reads wait until this value is dropped.
pub(super) struct PausedReaders {
    queue: Arc<ReadQueue>,
    connections: Vec<SqliteReadConnection>,
}

impl PausedReaders {
    pub(super) fn resume(mut self, path: &Path) -> rusqlite::Result<()> {
        self.connections = open_connections(connection::open_reader, path)?;
        Ok(())
    }
}

impl Drop for PausedReaders {
    fn drop(&mut self) {
        self.queue.resume(std::mem::take(&mut self.connections));
    }
}

fn rejection_error(refused: ReadRejection) -> Error {
    let gone = |text| Error::new(Kind::Unavailable, text);
    match refused {
        ReadRejection::Closed => gone("storage: the store is closed"),
        ReadRejection::NotOpen => gone("storage: the database could not be reopened"),
        ReadRejection::Full => too_many_reads_error(),
    }
}

fn too_many_reads_error() -> Error {
    Error::new(Kind::Busy, "storage: too many concurrent reads; retry")
}

fn open_connections(open: OpenConnection, path: &Path) -> rusqlite::Result<Vec<SqliteReadConnection>> {
    (0..READ_CONNECTIONS).map(|_| open(path).map(SqliteReadConnection::new)).collect()
}

impl StoreReader for SqliteReaderPool {
    fn facts(&self) -> BoxFuture<'static, Result<Vec<Fact>>> {
        self.run_read(|db| resolve_ready(facts::all(db)))
    }

    fn documents(&self, mount: MountId, kind: Option<&'static str>) -> BoxFuture<'static, Result<Vec<SealedDocument>>> {
        self.run_read(move |db| resolve_ready(documents::list(db, mount, kind)))
    }

    fn checkpoint_lock(&self) -> Option<CheckpointLock> {
        Some(self.0.checkpoints.clone())
    }

    fn close(&self) {
        self.0.queue.close();
    }
}

impl TableReader for SqliteReaderPool {
    type Connection = SqliteReadConnection;

    fn read_tables<T: Send + 'static>(
        &self,
        _: &'static str,
        work: impl for<'c> Fn(&'c SqliteReadConnection) -> BoxFuture<'c, Result<T, SqliteError>> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        self.run_read(move |db| resolve_ready(work(db)))
    }
}

impl ReadConnection for SqliteReadConnection {
    fn token(&self, sql: &'static str, hash: TokenHash) -> BoxFuture<'_, Result<Option<TokenRow>, SqliteError>> {
        ready_result(tokens::by_hash(&self.lock(), sql, &hash))
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'_, Result<Vec<TokenRow>, SqliteError>> {
        ready_result(tokens::page(&self.lock(), &after, limit))
    }

    fn certificate(
        &self,
        mount: MountId,
        serial: Serial,
    ) -> BoxFuture<'_, Result<Option<StoredCertificate>, SqliteError>> {
        ready_result(certificates::get(&self.lock(), mount, serial))
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'_, Result<SerialStatus, SqliteError>> {
        ready_result(certificates::status(&self.lock(), mount, serial))
    }

    fn revocations(
        &self,
        mount: MountId,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<StoredRevocation>, SqliteError>> {
        ready_result(revocations::by_sequence(&self.lock(), mount, after, limit))
    }
}

fn ready_result<'c, T: Send + 'c>(result: rusqlite::Result<T>) -> BoxFuture<'c, Result<T, SqliteError>> {
    ready(result.map_err(SqliteError::from)).boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;
    use crate::clock::Time;
    use crate::storage::backend::{FactWrite, StoreBackend as _, WriteUnit};
    use crate::storage::embedded::{open, writer::SqliteWriter};

    impl SqliteReaderPool {
        fn read<T: Send + 'static>(
            &self,
            work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
        ) -> BoxFuture<'static, Result<T>> {
            self.run_read(|db| Ok(work(&db.lock())?))
        }
    }

    fn store() -> (tempfile::TempDir, SqliteWriter, SqliteReaderPool) {
        let dir = tempfile::tempdir().unwrap();
        let (writer, pool) = open(dir.path(), Time::from_unix_timestamp(0).unwrap()).unwrap();
        (dir, writer, pool)
    }

    fn count_facts(db: &Connection) -> rusqlite::Result<i64> {
        db.query_row("SELECT COUNT(*) FROM meta WHERE name LIKE 'fact%'", [], |row| row.get(0))
    }

    /// Occupies every connection of the pool until the returned sender is dropped.
    async fn keep_busy(pool: &SqliteReaderPool) -> mpsc::SyncSender<()> {
        let (free, busy) = mpsc::sync_channel(0);
        let busy = Arc::new(Mutex::new(busy));
        let (there, mut begun) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..READ_CONNECTIONS {
            let busy = busy.clone();
            let there = there.clone();
            let read = pool.read(move |_| {
                there.send(()).unwrap();
                let _ = busy.lock().unwrap_or_else(PoisonError::into_inner).recv();
                Ok::<_, rusqlite::Error>(())
            });
            tokio::spawn(read);
        }
        for _ in 0..READ_CONNECTIONS {
            begun.recv().await.unwrap();
        }
        free
    }

    #[tokio::test]
    async fn read_sees_everything_stored_before_its_request() {
        let (_dir, mut writer, pool) = store();
        let mut reads = Vec::new();
        for stored in 0..200 {
            for _ in 0..20 {
                let read = tokio::spawn(pool.read(count_facts));
                reads.push(async move { (stored, read.await.unwrap().unwrap()) });
            }
            let fact = WriteUnit::Facts(vec![FactWrite::new((format!("fact {stored}"), vec![1]))]);
            assert!(writer.apply(vec![fact]).await[0].is_ok());
        }
        for (stored, seen) in join_all(reads).await {
            assert!((stored..=200).contains(&seen), "{seen} of {stored}");
        }
        assert!(pool.read(|db| Ok::<_, rusqlite::Error>(db.is_autocommit())).await.unwrap(), "no snapshot is kept");
    }

    #[tokio::test]
    async fn failing_or_panicking_read_fails_only_itself() {
        let (_dir, _writer, pool) = store();
        let busy = keep_busy(&pool).await;
        let reads = (0..40).map(|n| {
            tokio::spawn(pool.read(move |db| match n % 4 {
                0 => panic!("a defect"),
                1 => db.query_row("SELECT 1 FROM nowhere", [], |_| Ok(0)),
                _ => count_facts(db),
            }))
        });
        let reads: Vec<_> = reads.collect();
        drop(busy);
        for (n, read) in reads.into_iter().enumerate() {
            let read = read.await.unwrap();
            match n % 4 {
                0 => assert_eq!(read.unwrap_err().kind(), Kind::Internal),
                1 => assert_eq!(read.unwrap_err().kind(), Kind::Unavailable),
                _ => assert_eq!(read.unwrap(), 0),
            }
        }
    }

    #[tokio::test]
    async fn paused_pool_closes_its_connections_and_reads_wait() {
        let (dir, _writer, pool) = store();
        for resumed in [true, false] {
            let busy = keep_busy(&pool).await;
            let pausing = pool.clone();
            let waiting = tokio::spawn(pool.read(count_facts));
            let pausing = tokio::spawn(async move { pausing.pause().await });
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!pausing.is_finished(), "reads are under way");
            drop(busy);
            let paused = pausing.await.unwrap().unwrap();
            let late = tokio::spawn(pool.read(count_facts));
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!late.is_finished());
            if resumed {
                paused.resume(&dir.path().join("signet.db")).unwrap();
                assert_eq!(late.await.unwrap().unwrap(), 0);
                assert_eq!(waiting.await.unwrap().unwrap(), 0);
            } else {
                drop(paused);
                let error = late.await.unwrap().unwrap_err();
                assert!(error.to_string().contains("could not be reopened"), "{error}");
                assert!(pool.read(count_facts).await.unwrap_err().to_string().contains("could not be reopened"));
            }
        }
    }

    #[tokio::test]
    async fn closed_pool_drops_waiters_and_releases_its_lock_at_last() {
        let (dir, writer, pool) = store();
        drop(writer);
        let busy = keep_busy(&pool).await;
        let waiting = tokio::spawn(pool.read(count_facts));
        tokio::time::sleep(Duration::from_millis(20)).await;
        pool.close();
        assert!(waiting.await.unwrap().unwrap_err().to_string().contains("the store is closed"));
        assert!(pool.read(count_facts).await.unwrap_err().to_string().contains("the store is closed"));
        assert!(pool.pause().await.is_err());
        drop((busy, pool));
        for _ in 0..2 {
            let (writer, pool) = open(dir.path(), Time::from_unix_timestamp(0).unwrap()).unwrap();
            assert_eq!(pool.read(count_facts).await.unwrap(), 0);
            drop((writer, pool));
        }
    }

    #[tokio::test]
    async fn read_that_waits_too_long_is_busy_and_never_runs() {
        let (_dir, _writer, pool) = store();
        let busy = keep_busy(&pool).await;
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let left = tokio::spawn(pool.read(move |_| {
            runs.store(true, Ordering::Release);
            Ok::<_, rusqlite::Error>(())
        }));
        let read = pool.read(count_facts);
        let session = pool.run_session(0, Arc::new(|_| unreachable!()));
        let (read, session) = tokio::join!(read, session);
        assert_eq!(read.unwrap_err().kind(), Kind::Busy);
        assert_eq!(session.unwrap_err().kind(), Kind::Busy);
        assert_eq!(left.await.unwrap().unwrap_err().kind(), Kind::Busy);
        drop(busy);
        assert_eq!(pool.read(count_facts).await.unwrap(), 0);
        assert!(!ran.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn read_queue_is_bounded_and_resumes_with_remaining_readers() {
        let (_dir, _writer, pool) = store();
        let busy = keep_busy(&pool).await;
        let here = tokio::spawn(pool.read(count_facts));
        tokio::task::yield_now().await;
        let left = (0..20_000).filter_map(|_| pool.read(count_facts).now_or_never());
        let refused = left.filter(|read| read.as_ref().is_err_and(|error| error.kind() == Kind::Busy)).count();
        assert!((1..10_000).contains(&refused), "{refused}");
        drop(busy);
        assert_eq!(here.await.unwrap().unwrap(), 0);
        assert_eq!(pool.read(count_facts).await.unwrap(), 0);
    }

    /// Starts a session that reports its start and lasts until the sender of `busy` is dropped.
    fn start_blocked_session(
        pool: &SqliteReaderPool,
        caller_id: CallerId,
        begun: &tokio::sync::mpsc::UnboundedSender<CallerId>,
        busy: &Arc<Mutex<mpsc::Receiver<()>>>,
    ) -> tokio::task::JoinHandle<Result<Result<(), SqlError>>> {
        let busy = Arc::clone(busy);
        let begun = begun.clone();
        tokio::spawn(pool.run_session(
            caller_id,
            Arc::new(move |_| {
                begun.send(caller_id).unwrap();
                let _ = busy.lock().unwrap_or_else(PoisonError::into_inner).recv();
                std::future::ready(Ok(())).boxed_local()
            }),
        ))
    }

    #[tokio::test]
    async fn sessions_leave_connections_to_reads_and_other_callers() {
        let (_dir, _writer, pool) = store();
        let (free, busy) = mpsc::sync_channel::<()>(0);
        let busy = Arc::new(Mutex::new(busy));
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let mut sessions: Vec<_> = (0..20).map(|_| start_blocked_session(&pool, 1, &begins, &busy)).collect();
        assert_eq!((begun.recv().await, begun.recv().await), (Some(1), Some(1)));
        sessions
            .extend([start_blocked_session(&pool, 2, &begins, &busy), start_blocked_session(&pool, 3, &begins, &busy)]);
        assert_eq!(begun.recv().await, Some(2), "though others have waited longer");
        for _ in 0..100 {
            let read = timeout(Duration::from_secs(2), pool.read(count_facts)).await;
            assert_eq!(read.expect("a connection is left").unwrap(), 0);
        }
        assert!(begun.try_recv().is_err());
        // When the first session ends, the caller without a running session gets the connection.
        free.send(()).unwrap();
        assert_eq!(begun.recv().await, Some(3));
        drop(free);
        for session in sessions {
            session.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(pool.read(count_facts).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn session_is_interrupted_when_its_caller_has_gone() {
        let (_dir, _writer, pool) = store();
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let work: SqlWork = Arc::new(move |session| {
            let ends = ends.clone();
            begins.send(()).unwrap();
            async move {
                let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
                let outcome = session.query(endless, &[]).await.map(drop);
                ends.send(matches!(outcome, Err(SqlError::Timeout))).unwrap();
                outcome
            }
            .boxed_local()
        });
        let session = tokio::spawn(pool.run_session(1, work));
        begun.recv().await.unwrap();
        // Gives the work time to start its statement.
        tokio::time::sleep(Duration::from_millis(100)).await;
        session.abort();
        assert_eq!(timeout(Duration::from_secs(4), ended.recv()).await.unwrap(), Some(true));
    }
}
