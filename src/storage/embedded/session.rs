//! SQL sessions and shared tables on SQLite: statements run synchronously on a given connection.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, LocalBoxFuture, ready};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql};

use super::query::prepare;
use crate::error::Error;
use crate::sql::{SqlError, SqlRow, SqlSession, SqlValue, SqlWork};
use crate::storage::engine::{TableConnection, TableError, TableResult};

struct SqliteSession<'c>(&'c Connection);

/// Runs session work in the connection's current transaction. A panic of the work is returned as its error and does not
/// end the transaction.
pub(super) fn run_work(db: &Connection, work: &SqlWork) -> Result<(), SqlError> {
    let defect = |what: &'static str| Err(SqlError::Engine(Error::internal(what)));
    match catch_unwind(AssertUnwindSafe(|| work(&mut SqliteSession(db)).now_or_never())) {
        Ok(ended) => ended.unwrap_or_else(|| defect("defect: the work of a SQL session waited for something else")),
        Err(_) => defect("the work of a SQL session panicked"),
    }
}

/// Runs session work, which reports its failures to its caller itself. A failure rolls back the changes of this work,
/// but not those of other units in the batch.
pub(super) fn run_work_in_savepoint(db: &Connection, work: &SqlWork) -> rusqlite::Result<()> {
    db.execute_batch("SAVEPOINT work")?;
    if run_work(db, work).is_err() {
        // This statement fails if SQLite has already rolled back the whole transaction. Then nothing of the batch is
        // stored.
        db.execute_batch("ROLLBACK TO work")?;
    }
    db.execute_batch("RELEASE work")
}

impl SqlSession for SqliteSession<'_> {
    fn query<'s>(
        &'s mut self,
        sql: &'s str,
        values: &'s [SqlValue],
    ) -> LocalBoxFuture<'s, Result<Vec<SqlRow>, SqlError>> {
        ready(query_rows(self.0, sql, values).map_err(to_sql_error)).boxed_local()
    }

    /// Does nothing, because SQLite's query plans do not depend on parameter values.
    fn use_custom_plans(&mut self) {}

    fn execute<'s>(&'s mut self, sql: &'s str, values: &'s [SqlValue]) -> LocalBoxFuture<'s, Result<u64, SqlError>> {
        ready(execute(self.0, sql, values).map_err(to_sql_error)).boxed_local()
    }
}

/// A connection for reads of tables. The mutex makes its futures `Send`; only one thread at a time uses the connection.
pub(crate) struct SqliteReadConnection(Mutex<Connection>);

impl SqliteReadConnection {
    pub(super) fn new(db: Connection) -> Self {
        Self(Mutex::new(db))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableConnection for SqliteReadConnection {
    type EngineError = rusqlite::Error;

    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>> {
        ready(query_rows(&self.lock(), sql, values).map_err(TableError::Engine)).boxed()
    }

    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>> {
        ready(execute(&self.lock(), sql, values).map_err(TableError::Engine)).boxed()
    }
}

impl TableConnection for Connection {
    type EngineError = rusqlite::Error;

    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>> {
        ready(query_rows(self, sql, values).map_err(TableError::Engine)).boxed()
    }

    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>> {
        ready(execute(self, sql, values).map_err(TableError::Engine)).boxed()
    }
}

fn execute(db: &Connection, sql: &str, values: &[SqlValue]) -> rusqlite::Result<u64> {
    let mut statement = prepare(db, &rewrite_sql(sql, values))?;
    let mut changed = 0;
    for_each_byte_string(values, |values| {
        changed += statement.execute(rusqlite::params_from_iter(values))? as u64;
        Ok(())
    })?;
    Ok(changed)
}

fn query_rows(db: &Connection, sql: &str, values: &[SqlValue]) -> rusqlite::Result<Vec<SqlRow>> {
    let mut statement = prepare(db, &rewrite_sql(sql, values))?;
    let columns = statement.column_count();
    let mut rows = Vec::new();
    for_each_byte_string(values, |values| {
        let found = statement.query_map(rusqlite::params_from_iter(values), |row| {
            (0..columns).map(|n| row.get_ref(n).map(to_sql_value)).collect::<rusqlite::Result<_>>().map(SqlRow::new)
        })?;
        for row in found {
            rows.push(row?);
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Calls `run` with the values. If one of them is a list of byte strings, calls `run` once for each element of the
/// list, because JSON has no bytes, and SQLite cannot estimate the length of a list.
fn for_each_byte_string(
    values: &[SqlValue],
    mut run: impl FnMut(&[SqlValue]) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let is_list = |value: &SqlValue| matches!(value, SqlValue::ByteStrings(_));
    let Some(at) = values.iter().position(is_list) else { return run(values) };
    let mut one = values.to_vec();
    let SqlValue::ByteStrings(list) = std::mem::replace(&mut one[at], SqlValue::Null) else { return Ok(()) };
    for bytes in list {
        one[at] = SqlValue::Bytes(bytes);
        run(&one)?;
    }
    Ok(())
}

fn to_sql_value(found: ValueRef<'_>) -> SqlValue {
    match found {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Int(number),
        // No column of the schema has this type.
        ValueRef::Real(number) => SqlValue::Int(number as i64),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.to_vec()),
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let list = |json: serde_json::Value| ToSqlOutput::from(json.to_string());
        Ok(match self {
            Self::Null => ToSqlOutput::from(rusqlite::types::Null),
            Self::Int(number) => ToSqlOutput::from(*number),
            Self::Bool(flag) => ToSqlOutput::from(*flag),
            Self::Text(text) => ToSqlOutput::from(text.as_str()),
            Self::Bytes(bytes) => ToSqlOutput::from(bytes.as_slice()),
            Self::Ints(numbers) => list(numbers.clone().into()),
            Self::Texts(texts) => list(texts.clone().into()),
            Self::ByteStrings(_) => {
                return Err(rusqlite::Error::ToSqlConversionFailure(
                    "a statement may have only one list of byte strings".into(),
                ));
            }
        })
    }
}

/// Converts the SQL that both engines share to SQL for SQLite. A list becomes one JSON parameter. A list of byte
/// strings becomes a parameter for one of its elements. Row locks are removed.
pub(super) fn rewrite_sql<'s>(sql: &'s str, values: &[SqlValue]) -> Cow<'s, str> {
    const ANY: &str = "= ANY(";
    const LOCKS: [&str; 4] = [" FOR UPDATE", " FOR NO KEY UPDATE", " FOR SHARE", " FOR KEY SHARE"];
    let lock = LOCKS.into_iter().find_map(|lock| sql.split_once(lock));
    let sql = lock.map_or(sql, |(sql, _)| sql);
    if !sql.contains(ANY) {
        return Cow::Borrowed(sql);
    }
    let mut parts = sql.split(ANY);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (parameter, rest) = part.split_once(')').unwrap_or((part, ""));
        let number = parameter.trim_start_matches('$').parse().unwrap_or(0_usize);
        let is_bytes = matches!(values.get(number.wrapping_sub(1)), Some(SqlValue::ByteStrings(_)));
        match is_bytes {
            true => text.push_str(&format!("= {parameter}{rest}")),
            false => text.push_str(&format!("IN (SELECT value FROM json_each({parameter})){rest}")),
        }
    }
    Cow::Owned(text)
}

fn to_sql_error(error: rusqlite::Error) -> SqlError {
    let rusqlite::Error::SqliteFailure(code, message) = &error else { return engine_error(error) };
    match (code.code, message) {
        (ErrorCode::ConstraintViolation, Some(message)) => SqlError::Constraint(constraint_name(message)),
        (ErrorCode::OperationInterrupted, _) => SqlError::Timeout,
        _ => engine_error(error),
    }
}

fn engine_error(error: rusqlite::Error) -> SqlError {
    SqlError::Engine(Error::unavailable("storage: a statement failed in the database", error))
}

/// Returns the name that the violated constraint has in the schema. The name of a constraint on unique columns is
/// `<table>_<columns>_key`.
fn constraint_name(message: &str) -> String {
    if let Some(columns) = message.strip_prefix("UNIQUE constraint failed: ") {
        let table = columns.split('.').next().unwrap_or_default();
        let names = columns.split(", ").filter_map(|column| column.split_once('.')).map(|(_, name)| name);
        return format!("{table}_{}_key", names.collect::<Vec<_>>().join("_"));
    }
    match message.strip_prefix("CHECK constraint failed: ") {
        Some(name) => name.to_owned(),
        None => "foreign_key".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_row_locks_are_rewritten_for_sqlite() {
        let sql = "SELECT id FROM t WHERE a = ANY($1) AND b = $2 AND c = ANY($3) ORDER BY id FOR UPDATE";
        let read = "SELECT id FROM t WHERE a IN (SELECT value FROM json_each($1)) AND b = $2 AND c IN \
                    (SELECT value FROM json_each($3)) ORDER BY id";
        let bytes = SqlValue::ByteStrings(vec![]);
        assert_eq!(rewrite_sql(sql, &[]), read);
        assert_eq!(
            rewrite_sql("DELETE FROM t WHERE a = $1 AND b = ANY($2)", &[1_i64.into(), bytes]),
            "DELETE FROM t WHERE a = $1 AND b = $2"
        );
        assert_eq!(
            rewrite_sql("SELECT t.id FROM t JOIN u ON u.id = t.u FOR UPDATE OF t", &[]),
            "SELECT t.id FROM t JOIN u ON u.id = t.u"
        );
        for lock in ["SHARE", "KEY SHARE", "NO KEY UPDATE", "UPDATE SKIP LOCKED"] {
            let locking = format!("SELECT id FROM t WHERE a = $1 FOR {lock}");
            assert_eq!(rewrite_sql(&locking, &[]), "SELECT id FROM t WHERE a = $1");
        }
        assert_eq!(rewrite_sql("SELECT 1", &[]), "SELECT 1");
    }

    #[test]
    fn panic_fails_only_its_own_work() {
        let db = Connection::open_in_memory().unwrap();
        let work: SqlWork = std::sync::Arc::new(|_| async { panic!("a defect") }.boxed_local());
        assert!(
            matches!(run_work(&db, &work), Err(SqlError::Engine(error)) if error.kind() == crate::error::Kind::Internal)
        );
        let waits: SqlWork = std::sync::Arc::new(|_| futures_util::future::pending().boxed_local());
        assert!(run_work(&db, &waits).is_err());
    }

    #[test]
    fn sqlite_constraint_errors_have_the_schema_names() {
        for (message, name) in [
            ("UNIQUE constraint failed: projects.org_id, projects.name_lc", "projects_org_id_name_lc_key"),
            ("UNIQUE constraint failed: users.email_lc", "users_email_lc_key"),
            ("CHECK constraint failed: projects_pool_mode", "projects_pool_mode"),
            ("FOREIGN KEY constraint failed", "foreign_key"),
        ] {
            assert_eq!(constraint_name(message), name);
        }
    }
}
