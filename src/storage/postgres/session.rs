//! SQL sessions on PostgreSQL: each work has its own connection, and a transaction if it writes. A deadlock, a
//! serialization failure or a lock timeout is retried. A connection that is lost, or whose server no longer takes
//! writes, is replaced once. Without a response to COMMIT the outcome is unknown, and the work is `Unavailable`.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join};
use metrics::{counter, histogram};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::query::{self, Session as Connection};
use super::reader::{DEADLINE, Loan, Pool};
use crate::error::Error;
use crate::sql::{Failure, Row, Session, Value, Work};
use crate::telemetry;
use crate::turns::Asker;

/// Maximum number of retries after a conflict.
const AGAIN: u32 = 3;

/// See [`Session::fit`].
const FIT: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

struct Remote<'c> {
    db: &'c Connection,
    /// `true` if its work writes.
    writes: bool,
    /// `true` if the connection is lost, or its server no longer takes writes.
    gone: bool,
    /// `true` if later statements must be planned for their values; [`FIT`] is sent with the next statement.
    fit: bool,
}

impl Remote<'_> {
    /// Runs a statement, with [`FIT`] pipelined before it if needed.
    async fn ask<T>(
        &mut self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let given = if std::mem::take(&mut self.fit) {
            let (told, given) = join(self.db.batch_execute(FIT), statement).await;
            told.and(given)
        } else {
            statement.await
        };
        given.map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: tokio_postgres::Error) -> Failure {
        let (gone, failure) = failure(error, self.writes);
        self.gone |= gone;
        failure
    }
}

impl Session for Remote<'_> {
    fn query<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<Vec<Row>, Failure>> {
        let db = self.db;
        let found = async move {
            let statement = db.prepare_cached(sql).await?;
            let rows = db.query(&statement, &parameters(values)).await?;
            rows.iter().map(row).collect::<Result<Vec<Row>, _>>()
        };
        self.ask(found).boxed_local()
    }

    fn fit(&mut self) {
        self.fit = true;
    }

    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [Value]) -> LocalBoxFuture<'s, Result<u64, Failure>> {
        let db = self.db;
        let changed = async move {
            let statement = db.prepare_cached(sql).await?;
            db.execute(&statement, &parameters(values)).await
        };
        self.ask(changed).boxed_local()
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

fn row(found: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    (0..found.len()).map(|n| found.try_get(n)).collect::<Result<_, _>>().map(Row::new)
}

/// Reads the column types of the schema.
impl<'r> FromSql<'r> for Value {
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

impl ToSql for Value {
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
            Self::Octets(octets) => octets.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Converts an error for work that `writes` or reads, and returns whether the connection is unusable.
fn failure(error: tokio_postgres::Error, writes: bool) -> (bool, Failure) {
    let answer = error.as_db_error();
    let constraint = answer.and_then(|answer| answer.constraint()).map(str::to_owned);
    let said = match (error.code(), constraint) {
        (Some(&SqlState::QUERY_CANCELED), _) => Failure::TooLong,
        (
            Some(
                &(SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED | SqlState::LOCK_NOT_AVAILABLE),
            ),
            _,
        ) => Failure::Clash,
        (Some(code), Some(name)) if code.code().starts_with("23") => Failure::Constraint(name),
        _ => {
            let failure = query::Failure::from(error);
            let gone = failure.is_gone();
            return (gone, Failure::Engine(if writes { failure.of_write() } else { failure.of_read() }));
        }
    };
    (false, said)
}

enum Attempt {
    Ended(Result<(), Failure>),
    /// The connection was lost or unusable before COMMIT was sent: nothing is stored.
    Dead(Failure),
}

impl Pool {
    /// Runs work, queued fairly between callers. Work that `writes` is committed if it succeeds.
    pub(super) async fn run(self, name: &'static str, asker: Asker, work: Work, writes: bool) -> Result<(), Failure> {
        let (mut clashes, mut replaced) = (0, false);
        loop {
            let (place, loan) = self.lend_session(asker).await.map_err(Failure::Engine)?;
            let started = Instant::now();
            let attempt = tokio::time::timeout(DEADLINE, attempt(loan, &work, writes)).await;
            histogram!(telemetry::POSTGRES_TRANSACTION_SECONDS, "name" => name).record(started.elapsed());
            drop(place);
            match attempt {
                Err(late) => {
                    return Err(Failure::Engine(Error::unavailable("storage: the database takes too long", late)));
                }
                Ok(Attempt::Dead(_)) if !replaced => replaced = true,
                Ok(Attempt::Dead(failure)) => return Err(failure),
                Ok(Attempt::Ended(Err(Failure::Clash))) if clashes < AGAIN => {
                    clashes += 1;
                    counter!(telemetry::POSTGRES_RETRIES, "reason" => "clash").increment(1);
                    let jitter = u64::from(crate::random::bytes::<1>()[0] % 16);
                    tokio::time::sleep(Duration::from_millis(u64::from(clashes) * 5 + jitter)).await;
                }
                Ok(Attempt::Ended(outcome)) => return outcome,
            }
        }
    }
}

async fn attempt(loan: Loan, work: &Work, writes: bool) -> Attempt {
    let Some(db) = &loan.db else { return Attempt::Ended(Err(Failure::Engine(Error::internal("no connection")))) };
    let mut remote = Remote { db, writes, gone: false, fit: false };
    let (begun, outcome) = if writes {
        // Not pipelined: if BEGIN failed, a statement would be a transaction of its own.
        match db.batch_execute("BEGIN").await {
            Ok(()) => (Ok(()), work(&mut remote).await),
            Err(error) => (Err(error), Ok(())),
        }
    } else {
        // Pipelined with the first statement. A read uses one snapshot, so that the count and the rows of a list agree.
        let begin = db.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        join(begin, work(&mut remote)).await
    };
    let gone = remote.gone;
    match (begun, outcome) {
        (Err(error), _) => {
            loan.close();
            Attempt::Dead(failure(error, writes).1)
        }
        (Ok(()), Err(failure)) if gone => {
            loan.close();
            Attempt::Dead(failure)
        }
        (Ok(()), outcome) => end(loan, outcome, writes).await,
    }
}

async fn end(loan: Loan, outcome: Result<(), Failure>, writes: bool) -> Attempt {
    let Some(db) = &loan.db else { return Attempt::Ended(outcome) };
    let end = if outcome.is_ok() && writes { "COMMIT" } else { "ROLLBACK" };
    match db.batch_execute(end).await {
        Ok(()) => {
            loan.answered();
            Attempt::Ended(outcome)
        }
        Err(error) => {
            loan.close();
            Attempt::Ended(outcome.and(Err(failure(error, writes).1)))
        }
    }
}
