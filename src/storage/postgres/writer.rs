//! The single writer of this node: runs each batch of units in one transaction, all on one connection.
//!
//! The first batch opens the connection, on the runtime that runs the batches. Deadlocks and serialization failures
//! between nodes are retried. If the connection is lost before COMMIT is sent, nothing was stored, so the connection is
//! replaced and the batch is retried. Without a response to COMMIT the outcome is unknown, and the batch fails with
//! `Unavailable`.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join};
use metrics::{counter, histogram};

use super::batch::{UnitResults, WriteBatch};
use super::connect;
use super::query::{PostgresClient, PostgresError};
use super::url::PostgresUrl;
use crate::error::{Error, Kind, Result};
use crate::storage::backend::{StoreBackend, UnitOutcomes, WriteUnit};
use crate::storage::tables::mounts;
use crate::telemetry;

/// Maximum time for a batch, including retries.
const BATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after a failed connection attempt, during which batches are rejected without another attempt.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of attempts at a batch.
const MAX_BATCH_ATTEMPTS: u32 = 5;
/// Number of counter rows per mount. Each node picks one of them at random. Nodes that pick the same row wait for each
/// other's commits.
const COUNTER_ROWS: u8 = 64;

/// The single writer of this node: its connection, and the state between batches.
pub(crate) struct PostgresWriter {
    url: PostgresUrl,
    session: Option<PostgresClient>,
    next_connect_attempt: Option<Instant>,
    /// Index of the counter row that this node updates. Each mount has up to 64 rows, whose sum is its number of
    /// certificates and revocations, so that nodes rarely wait for each other.
    counter: i64,
    /// This node's id in the change log.
    node: i64,
    dropped_mounts: bool,
    deadline: Duration,
}

enum BatchFailure {
    Unreachable(Error),
    RolledBack(PostgresError),
    /// COMMIT was sent but not answered, so the outcome is unknown.
    Unknown(PostgresError),
}

impl PostgresWriter {
    pub(super) fn new(url: PostgresUrl, node: i64, dropped_mounts: bool) -> Self {
        let counter = i64::from(crate::random::bytes::<1>()[0] % COUNTER_ROWS);
        Self { url, session: None, next_connect_attempt: None, counter, node, dropped_mounts, deadline: BATCH_TIMEOUT }
    }

    #[cfg(test)]
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn apply_now(&mut self, units: &[WriteUnit]) -> UnitResults {
        let mut with_savepoints = false;
        for attempt in 1.. {
            let started = Instant::now();
            let result = self.attempt(units, with_savepoints).await;
            histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => "commit").record(started.elapsed());
            let failure = match result {
                Ok(answers) => return answers,
                Err(BatchFailure::Unreachable(error)) => return fail_all(units, error),
                Err(BatchFailure::Unknown(failure)) => return fail_all(units, failure.into_write_error()),
                Err(BatchFailure::RolledBack(failure)) => failure,
            };
            let again = if failure.is_conflict() || failure.is_connection_lost() {
                attempt < MAX_BATCH_ATTEMPTS
            } else {
                false
            };
            if !again && (with_savepoints || !failure.concerns_one_unit()) {
                return fail_all(units, failure.into_write_error());
            }
            with_savepoints |= !again;
            let reason = if failure.is_connection_lost() {
                "connection"
            } else if again {
                "clash"
            } else {
                "unit"
            };
            counter!(telemetry::POSTGRES_RETRIES, "reason" => reason).increment(1);
            if failure.is_conflict() {
                tokio::time::sleep(Duration::from_millis(u64::from(crate::random::bytes::<1>()[0] % 16))).await;
            }
        }
        Vec::new()
    }

    async fn attempt(&mut self, units: &[WriteUnit], with_savepoints: bool) -> Result<UnitResults, BatchFailure> {
        let node = self.node;
        let counter = self.counter;
        let db = self.connected_client().await.map_err(BatchFailure::Unreachable)?;
        // BEGIN and the batch are pipelined. The server runs them in order, and if BEGIN fails, the connection cannot
        // be used any more.
        let begin = async { Ok(db.batch_execute("BEGIN").await?) };
        match try_join(begin, WriteBatch::new(db, node, counter, with_savepoints).run(units)).await {
            Ok(((), answers)) => match db.batch_execute("COMMIT").await.map_err(PostgresError::from) {
                Ok(()) => Ok(answers),
                // If the server reports an error, it has rolled back the transaction.
                Err(failure) if !failure.is_connection_lost() => Err(BatchFailure::RolledBack(failure)),
                Err(failure) => {
                    self.session = None;
                    Err(BatchFailure::Unknown(failure))
                }
            },
            Err(failure) => {
                if failure.is_connection_lost() || db.batch_execute("ROLLBACK").await.is_err() {
                    self.session = None;
                }
                Err(BatchFailure::RolledBack(failure))
            }
        }
    }

    /// Returns the connection. Opens one if there is none or it is lost.
    async fn connected_client(&mut self) -> Result<&PostgresClient> {
        if self.session.as_ref().is_none_or(|session| session.is_closed()) {
            self.session = None;
            if self.next_connect_attempt.is_some_and(|time| Instant::now() < time) {
                return Err(Error::new(Kind::Unavailable, "storage: the database is unreachable"));
            }
            match connect::open_session(&self.url).await {
                Ok(session) => self.session = Some(session),
                Err(error) => {
                    telemetry::warn_task_failed("this node cannot connect to the database for writes", &error);
                    counter!(telemetry::POSTGRES_CONNECT_FAILURES).increment(1);
                    self.next_connect_attempt = Some(Instant::now() + RECONNECT_DELAY);
                    // The reason was logged and is not part of the text, because callers must not see it.
                    return Err(Error::unavailable("storage: the database is unreachable", error));
                }
            }
        }
        self.session.as_ref().ok_or_else(|| Error::internal("defect: the new database connection is missing"))
    }

    async fn remove_dropped(&mut self) -> Result<bool, Error> {
        let db = self.connected_client().await?;
        let started = Instant::now();
        let more = async {
            db.batch_execute("BEGIN").await?;
            let more = mounts::remove_rows_of_dropped_mount(db).await?;
            db.batch_execute("COMMIT").await?;
            Ok(more)
        };
        let more = more.await.map_err(PostgresError::into_write_error);
        histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => "drop").record(started.elapsed());
        if more.is_err() {
            // The transaction may still be open on this connection, so the connection is dropped.
            self.session = None;
        }
        more
    }

    /// Runs `work`, limited by the deadline of the writer. On timeout the connection is dropped, because the state of
    /// its transaction is unknown.
    async fn run_with_deadline<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> T) -> Result<T> {
        let deadline = self.deadline;
        let done = tokio::time::timeout(deadline, work(self)).await;
        done.map_err(|late| {
            self.session = None;
            Error::unavailable("storage: the database did not respond in time", late)
        })
    }
}

/// Returns an error for every unit. Only the first error contains the cause, so that the cause is logged once.
fn fail_all(units: &[WriteUnit], error: Error) -> UnitResults {
    let again: Vec<_> = units.iter().skip(1).map(|_| Err(Error::new(error.kind(), error.text().to_owned()))).collect();
    std::iter::once(Err(error)).chain(again).take(units.len()).collect()
}

impl StoreBackend for PostgresWriter {
    fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<UnitOutcomes>>> {
        async move {
            let answers = match self.run_with_deadline(async |writer| writer.apply_now(&units).await).await {
                Ok(answers) => answers,
                Err(error) => fail_all(&units, error),
            };
            self.dropped_mounts |= units.iter().any(WriteUnit::drops_mount);
            answers
        }
        .boxed()
    }

    fn has_background_work(&self) -> bool {
        self.dropped_mounts
    }

    fn run_background_step(&mut self) -> BoxFuture<'_, ()> {
        async move {
            let more = self.run_with_deadline(async |writer| writer.remove_dropped().await).await;
            // After a failure, this work is not repeated immediately, because it might fail in a loop. The remaining
            // rows are removed after the next drop of a mount, or after the next start.
            self.dropped_mounts = more.and_then(|more| more).unwrap_or_else(|error| {
                telemetry::warn_task_failed(
                    "rows of a dropped mount could not be removed; retried at the next drop or start",
                    &error,
                );
                false
            });
        }
        .boxed()
    }

    fn close(self) -> BoxFuture<'static, Result<()>> {
        // Dropping the writer closes the connection. Committed batches are stored, so nothing else is left to do.
        async move {
            drop(self);
            Ok(())
        }
        .boxed()
    }
}
