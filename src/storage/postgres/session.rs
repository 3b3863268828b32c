//! SQL sessions on PostgreSQL. Each unit of work has its own connection, and runs in a transaction. A deadlock, a
//! serialization failure or a lock timeout is retried. A connection that is lost, or whose server no longer takes
//! writes, is replaced once. Without a response to COMMIT the outcome is unknown, and the work fails with
//! `Unavailable`.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, LocalBoxFuture, join};
use metrics::{counter, histogram};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::pool::READ_TIMEOUT;
use super::query::{self, PostgresClient as Connection, PostgresError};
use super::reader::PostgresReaderPool;
use crate::error::Error;
use crate::projects::store::SessionAccess;
use crate::sql::{SqlError, SqlRow, SqlSession, SqlValue, SqlWork};
use crate::storage::engine::{TableConnection, TableResult};
use crate::telemetry;

/// Maximum number of retries after a conflict.
const MAX_CONFLICT_RETRIES: u32 = 3;

/// The setting behind [`SqlSession::use_custom_plans`].
const USE_CUSTOM_PLANS: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

struct PostgresSession<'c> {
    db: &'c Connection,
    /// `true` if its work writes.
    writes: bool,
    /// `true` if the connection is lost, or its server no longer takes writes.
    gone: bool,
    /// `true` if later statements must be planned for their values; [`USE_CUSTOM_PLANS`] is sent with the next
    /// statement.
    custom_plans: bool,
}

impl PostgresSession<'_> {
    /// Runs a statement, with [`USE_CUSTOM_PLANS`] pipelined before it if needed.
    async fn send<T>(&mut self, statement: impl Future<Output = Result<T, PostgresError>>) -> Result<T, SqlError> {
        let result = if std::mem::take(&mut self.custom_plans) {
            let (planned, result) = join(self.db.batch_execute(USE_CUSTOM_PLANS), statement).await;
            planned.map_err(PostgresError::from).and(result)
        } else {
            statement.await
        };
        result.map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: PostgresError) -> SqlError {
        let (gone, failure) = to_sql_error(error, self.writes);
        self.gone |= gone;
        failure
    }
}

impl SqlSession for PostgresSession<'_> {
    fn query<'s>(
        &'s mut self,
        sql: &'s str,
        values: &'s [SqlValue],
    ) -> LocalBoxFuture<'s, Result<Vec<SqlRow>, SqlError>> {
        let db = self.db;
        self.send(db.rows(sql, values)).boxed_local()
    }

    fn use_custom_plans(&mut self) {
        self.custom_plans = true;
    }

    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [SqlValue]) -> LocalBoxFuture<'s, Result<u64, SqlError>> {
        let db = self.db;
        self.send(TableConnection::execute(db, sql, values)).boxed_local()
    }
}

impl TableConnection for Connection {
    type EngineError = tokio_postgres::Error;

    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>> {
        async move {
            let found = query::rows(self, sql, &parameters(values)).await?;
            Ok(found.iter().map(to_sql_row).collect::<Result<_, _>>()?)
        }
        .boxed()
    }

    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>> {
        async move { query::execute(self, sql, &parameters(values)).await }.boxed()
    }
}

fn parameters(values: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

fn to_sql_row(found: &tokio_postgres::Row) -> Result<SqlRow, tokio_postgres::Error> {
    (0..found.len()).map(|n| found.try_get(n)).collect::<Result<_, _>>().map(SqlRow::new)
}

/// Decodes the column types that occur in the schema.
impl<'r> FromSql<'r> for SqlValue {
    fn from_sql(kind: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Bool(bool::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            _ => Self::Text(String::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL | Type::BYTEA | Type::TEXT | Type::VARCHAR)
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Int(number) => number.to_sql(kind, out),
            Self::Bool(flag) => flag.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
            Self::Ints(numbers) => numbers.to_sql(kind, out),
            Self::Texts(texts) => texts.to_sql(kind, out),
            Self::ByteStrings(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Converts an error of a session's work into an [`SqlError`]; `writes` is `true` if the work may write. The first result
/// is `true` if the connection is lost.
fn to_sql_error(error: PostgresError, writes: bool) -> (bool, SqlError) {
    let constraint = error.server_error().and_then(|answer| answer.constraint()).map(str::to_owned);
    let sql_error = match (error.code(), constraint) {
        (Some(&SqlState::QUERY_CANCELED), _) => SqlError::Timeout,
        (
            Some(
                &(SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED | SqlState::LOCK_NOT_AVAILABLE),
            ),
            _,
        ) => SqlError::SerializationConflict,
        (Some(code), Some(name)) if code.code().starts_with("23") => SqlError::Constraint(name),
        _ => {
            let gone = error.is_connection_lost();
            return (gone, SqlError::Engine(if writes { error.into_write_error() } else { error.into_read_error() }));
        }
    };
    (false, sql_error)
}

enum SessionAttempt {
    Ended {
        outcome: Result<(), SqlError>,
        /// `true` if the connection is outside of a transaction and can be used again.
        is_idle: bool,
    },
    /// The connection was lost or unusable before COMMIT was sent: nothing is stored.
    ConnectionLost(SqlError),
}

impl PostgresReaderPool {
    /// Runs work, queued fairly between callers. Work that may write is committed if it succeeds.
    pub(super) async fn run(self, name: &'static str, access: SessionAccess, work: SqlWork) -> Result<(), SqlError> {
        let writes = matches!(access, SessionAccess::Write(_));
        let mut conflicts = 0;
        let mut replaced = false;
        loop {
            let loan = self.sessions.borrow(access.caller_id()).await.map_err(SqlError::Engine)?;
            let (db, _) = loan.client().map_err(SqlError::Engine)?;
            let started = Instant::now();
            let attempt = tokio::time::timeout(READ_TIMEOUT, run_attempt(db, &work, writes)).await;
            histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => name).record(started.elapsed());
            match attempt {
                Err(late) => {
                    return Err(SqlError::Engine(Error::unavailable(
                        "storage: the database did not respond in time",
                        late,
                    )));
                }
                Ok(SessionAttempt::ConnectionLost(failure)) => {
                    loan.give_back(false);
                    if replaced {
                        return Err(failure);
                    }
                    replaced = true;
                }
                Ok(SessionAttempt::Ended { outcome, is_idle }) => {
                    loan.give_back(is_idle);
                    if !matches!(outcome, Err(SqlError::SerializationConflict)) || conflicts == MAX_CONFLICT_RETRIES {
                        return outcome;
                    }
                    conflicts += 1;
                    counter!(telemetry::POSTGRES_RETRIES, "reason" => "clash").increment(1);
                    let jitter = u64::from(crate::random::bytes::<1>()[0] % 16);
                    tokio::time::sleep(Duration::from_millis(u64::from(conflicts) * 5 + jitter)).await;
                }
            }
        }
    }
}

async fn run_attempt(db: &Connection, work: &SqlWork, writes: bool) -> SessionAttempt {
    let mut remote = PostgresSession { db, writes, gone: false, custom_plans: false };
    let (begun, outcome) = if writes {
        // BEGIN is not pipelined: if it failed, each later statement would be a transaction of its own.
        match db.batch_execute("BEGIN").await {
            Ok(()) => (Ok(()), work(&mut remote).await),
            Err(error) => (Err(error), Ok(())),
        }
    } else {
        // BEGIN is pipelined with the first statement. The whole read uses one snapshot, so that the count and the rows
        // of a list agree.
        let begin = db.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        join(begin, work(&mut remote)).await
    };
    let outcome = match (begun, outcome) {
        (Err(error), _) => return SessionAttempt::ConnectionLost(to_sql_error(error.into(), writes).1),
        (Ok(()), Err(failure)) if remote.gone => return SessionAttempt::ConnectionLost(failure),
        (Ok(()), outcome) => outcome,
    };
    let end = if outcome.is_ok() && writes { "COMMIT" } else { "ROLLBACK" };
    match db.batch_execute(end).await {
        Ok(()) => SessionAttempt::Ended { outcome, is_idle: true },
        Err(error) => {
            let outcome = outcome.and(Err(to_sql_error(error.into(), writes).1));
            SessionAttempt::Ended { outcome, is_idle: false }
        }
    }
}
