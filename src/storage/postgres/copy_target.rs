//! The database into which `copy-store` copies an embedded store. The database is empty before the copy, and one
//! transaction inserts either all rows or none.
//!
//! Foreign keys are dropped first, because rows refer to each other in cycles. They are restored at the end, and the
//! server then checks every row. Sequences continue above the copied ids.

use tokio_postgres::types::ToSql;

use super::connect;
use super::query::{PostgresClient, PostgresError, exists, rows};
use super::schema;
use super::url::PostgresUrl;
use crate::error::{Error, Kind, Result};
use crate::sql::SqlValue;

/// Begins the transaction of a copy. The timeouts are long, because its statements take long and it is idle while the
/// other store is read.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '10s';
    SET LOCAL idle_in_transaction_session_timeout = '10min'";
/// Selects all user tables of all owners and schemas. The columns are: the name for SQL statements, the plain name
/// (NULL if the table is not in the store's own schema), and whether all rows are visible to the user. The rows of
/// foreign tables count as not visible.
const SELECT_TABLES: &str =
    "SELECT c.oid::regclass::text, CASE WHEN n.nspname = current_schema() THEN c.relname::text END,
        c.relkind <> 'f' AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
            AND NOT row_security_active(c.oid)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE (c.relkind IN ('r', 'p', 'f') OR c.relkind = 'm' AND c.relispopulated)
        AND n.nspname <> 'information_schema' AND left(n.nspname::text, 3) <> 'pg_'
    ORDER BY 1";
const SELECT_COLUMNS: &str =
    "SELECT column_name::text, udt_name::text, is_identity = 'YES' FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name::text = $1::text";
const FOREIGN_KEYS: &str = "SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid)
    FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace";
/// The rows that a new store already has, as pairs of table and SQL condition.
const INITIAL_ROWS: &[(&str, &str)] = &[("meta", "name = 'schema'"), ("mount", "id = 0")];

/// The outcome of the COMMIT of a copy.
pub(crate) enum CommitOutcome {
    /// All rows are stored.
    Stored,
    /// Either all rows are stored or none: the connection was lost before the response.
    Unknown(Error),
}

/// A database into which a store is being copied, with an open transaction.
pub(crate) struct CopyTarget {
    db: PostgresClient,
    foreign_keys: Vec<[String; 3]>,
}

/// A column of a table in the target database.
pub(crate) struct TargetColumn {
    pub(crate) name: String,
    kind: String,
    identity: bool,
}

impl CopyTarget {
    /// Creates the schema in an empty database and begins the transaction.
    ///
    /// # Errors
    /// `Conflict` when the database is not empty, and then it stays unchanged; the errors of connecting.
    pub(crate) async fn begin(url: &PostgresUrl) -> Result<Self> {
        let mut db = connect::open_dedicated_session(url).await?;
        // This is also checked before the schema is created, so that a database with other content stays unchanged.
        require_empty(&db).await?;
        schema::migrate(&mut db).await?;
        let target = Self::begin_in(db).await.map_err(copy_error)?;
        require_empty(&target.db).await?;
        for [table, name, _] in &target.foreign_keys {
            target.run(&format!("ALTER TABLE {table} DROP CONSTRAINT {name}")).await?;
        }
        Ok(target)
    }

    async fn begin_in(db: PostgresClient) -> Result<Self, PostgresError> {
        db.batch_execute(BEGIN).await?;
        let found = rows(&db, FOREIGN_KEYS, &[]).await?;
        let keys = found.iter().map(|row| Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?]));
        let foreign_keys = keys.collect::<Result<_, PostgresError>>()?;
        Ok(Self { db, foreign_keys })
    }

    /// Reads the columns of a table.
    ///
    /// # Errors
    /// `Unavailable` from the server.
    pub(crate) async fn columns(&self, table: &str) -> Result<Vec<TargetColumn>> {
        let found = rows(&self.db, SELECT_COLUMNS, &[&table]).await.map_err(copy_error)?;
        let column = |row: &tokio_postgres::Row| {
            Ok(TargetColumn { name: row.try_get(0)?, kind: row.try_get(1)?, identity: row.try_get(2)? })
        };
        found.iter().map(column).collect::<Result<_, PostgresError>>().map_err(copy_error)
    }

    /// Inserts rows, each with its values in the order of `columns`. Skips rows that a new database already has.
    ///
    /// # Errors
    /// `Unavailable` from the server, also for rows that it rejects.
    pub(crate) async fn insert(&self, table: &str, columns: &[&TargetColumn], rows: Vec<Vec<SqlValue>>) -> Result<()> {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let mut number = 0;
        let mut one = || {
            let parameters = columns.iter().map(|column| {
                number += 1;
                format!("${number}::{}", column.kind)
            });
            format!("({})", parameters.collect::<Vec<_>>().join(", "))
        };
        let tuples: Vec<String> = rows.iter().map(|_| one()).collect();
        let text = format!(
            "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE VALUES {} ON CONFLICT DO NOTHING",
            names.join(", "),
            tuples.join(", ")
        );
        let values: Vec<SqlValue> = rows
            .into_iter()
            .flat_map(|row| row.into_iter().zip(columns).map(|(value, to)| to.convert(value)))
            .collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        super::query::execute(&self.db, &text, &values).await.map(drop).map_err(copy_error)
    }

    /// Counts the rows of a table.
    ///
    /// # Errors
    /// `Unavailable` from the server.
    pub(crate) async fn count_rows(&self, table: &str) -> Result<i64> {
        let count = format!("SELECT COUNT(*) FROM {table}");
        let found = rows(&self.db, &count, &[]).await.map_err(copy_error)?;
        found
            .first()
            .and_then(|row| row.try_get(0).ok())
            .ok_or_else(|| Error::internal(format!("the query for the number of rows of {table} returned no row")))
    }

    /// Sets the sequence of a table's identity column, so that the next id is above `last`.
    ///
    /// # Errors
    /// `Unavailable` from the server.
    pub(crate) async fn set_sequence(&self, table: &str, columns: &[&TargetColumn], last: i64) -> Result<()> {
        for column in columns.iter().filter(|column| column.identity && last > 0) {
            let name = &column.name;
            self.run(&format!("SELECT setval(pg_get_serial_sequence('{table}', '{name}'), {last})")).await?;
        }
        Ok(())
    }

    /// Restores the foreign keys and commits. The server checks all rows when a foreign key is restored.
    ///
    /// # Errors
    /// `Unavailable` from the server; nothing is stored then.
    pub(crate) async fn commit(self) -> Result<CommitOutcome> {
        for [table, name, definition] in &self.foreign_keys {
            self.run(&format!("ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")).await?;
        }
        match self.db.batch_execute("COMMIT").await.map_err(PostgresError::from) {
            Ok(()) => Ok(CommitOutcome::Stored),
            // An error response to COMMIT means that nothing was committed. If the session ends without a response, the
            // outcome is unknown.
            Err(failure) if failure.code().is_some() && !failure.is_connection_lost() => Err(copy_error(failure)),
            Err(failure) => Ok(CommitOutcome::Unknown(copy_error(failure))),
        }
    }

    async fn run(&self, text: &str) -> Result<()> {
        self.db.batch_execute(text).await.map_err(|e| copy_error(e.into()))
    }
}

impl TargetColumn {
    /// Converts a value of the embedded store, in which booleans are integers, to the type of this column.
    fn convert(&self, value: SqlValue) -> SqlValue {
        match value {
            SqlValue::Int(flag) if self.kind == "bool" => SqlValue::Bool(flag != 0),
            other => other,
        }
    }
}

/// Waits for all transactions that write facts, and returns `true` if the database has the fact.
///
/// # Errors
/// `Unavailable` when the database is unreachable, or such a transaction runs longer than the lock timeout.
pub(crate) async fn has_fact(url: &PostgresUrl, fact: &str) -> Result<bool> {
    let db = connect::open_session(url).await?;
    let found = async {
        db.batch_execute(BEGIN).await?;
        // The server may still process the COMMIT of the lost connection. This statement waits for the locks of that
        // transaction.
        db.batch_execute("LOCK TABLE meta IN SHARE MODE").await?;
        exists(&db, "SELECT 1 FROM meta WHERE name = $1", &[&fact]).await
    };
    found.await.map_err(copy_error)
}

async fn require_empty(db: &PostgresClient) -> Result<()> {
    for found in rows(db, SELECT_TABLES, &[]).await.map_err(copy_error)? {
        let read = || Ok((found.try_get(0)?, found.try_get(1)?, found.try_get(2)?));
        let (table, own, is_seen): (String, Option<String>, bool) = read().map_err(|e: PostgresError| copy_error(e))?;
        let full = |why: &str| Error::new(Kind::Conflict, format!("the database is not empty: table {table} {why}"));
        if !is_seen {
            return Err(full("cannot be read and may have rows; copy into a new database"));
        }
        let of_new =
            INITIAL_ROWS.iter().find(|(name, _)| own.as_deref() == Some(name)).map_or("FALSE", |(_, rows)| rows);
        let any = format!("SELECT 1 FROM {table} WHERE NOT ({of_new}) LIMIT 1");
        if !rows(db, &any, &[]).await.map_err(copy_error)?.is_empty() {
            return Err(full("has rows; copy into a new database"));
        }
    }
    Ok(())
}

/// Returns the error for a failed statement, with the server's message for the operator who runs the copy.
fn copy_error(failure: PostgresError) -> Error {
    let server_message = failure.server_error().map(|answer| answer.message().to_owned());
    let error = failure.into_write_error();
    match server_message {
        Some(server_message) => {
            Error::unavailable(format!("the database rejected the copied data ({server_message})"), error)
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::postgres::fixture::Postgres;
    use crate::storage::tests::contract::Fixture as _;

    #[tokio::test]
    async fn database_with_foreign_rows_is_refused_and_unchanged() {
        let fixture = Postgres::new();
        let url = PostgresUrl::parse(&fixture.database.url()).unwrap();
        fixture.database.psql("CREATE TABLE \"Its own\" (name TEXT); INSERT INTO \"Its own\" VALUES ('x')");
        let error = CopyTarget::begin(&url).await.err().unwrap();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains("the database is not empty: table \"Its own\" has rows"), "{error}");
        assert_eq!(fixture.query_number("SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema()"), 1);
        fixture.database.psql("DELETE FROM \"Its own\"");
        assert!(CopyTarget::begin(&url).await.is_ok());
    }

    #[tokio::test]
    async fn store_of_an_earlier_version_is_refused_and_not_migrated() {
        let fixture = Postgres::new();
        let url = PostgresUrl::parse(&fixture.database.url()).unwrap();
        fixture.open(10).await.unwrap().shutdown().await.unwrap();
        fixture.execute("UPDATE meta SET value = $1 WHERE name = 'schema'", &[b"1"]);
        let error = CopyTarget::begin(&url).await.err().unwrap();
        assert!(error.kind() == Kind::Conflict && error.text().contains("not empty"), "{error}");
        assert_eq!(fixture.query_bytes("SELECT value FROM meta WHERE name = 'schema'"), b"1");
    }

    #[tokio::test]
    async fn foreign_rows_count_in_any_schema_even_if_unreadable() {
        let fixture = Postgres::new();
        let name = &fixture.database.name;
        let psql = |sql: &str| fixture.database.psql(sql);
        let owner = format!("owner_{name}_{}", std::process::id());
        psql(&format!(
            "CREATE ROLE {owner} LOGIN; ALTER DATABASE {name} OWNER TO {owner}; GRANT ALL ON SCHEMA public TO {owner}"
        ));
        let url = fixture.database.url().replace("user=signet", &format!("user={owner}"));
        let url = PostgresUrl::parse(&url).unwrap();
        let mine = format!("SET ROLE {owner}; ");
        for (make, remove, says) in [
            ("CREATE TABLE customers AS SELECT 1", "DROP TABLE customers", "customers cannot be read"),
            (
                "CREATE SCHEMA theirs; CREATE TABLE theirs.a (a INT)",
                "DROP SCHEMA theirs CASCADE",
                "theirs.a cannot be read",
            ),
            (
                &*format!("{mine}CREATE SCHEMA app; CREATE TABLE app.meta AS SELECT 'schema' AS name"),
                "DROP SCHEMA app CASCADE",
                "app.meta has rows",
            ),
            (
                &*format!(
                    "{mine}CREATE SCHEMA app; CREATE TABLE app.parts (a INT) PARTITION BY LIST (a); CREATE TABLE app.one PARTITION OF app.parts FOR VALUES IN (1); INSERT INTO app.parts VALUES (1)"
                ),
                "DROP SCHEMA app CASCADE",
                "has rows",
            ),
        ] {
            psql(make);
            let error = CopyTarget::begin(&url).await.err().unwrap_or_else(|| panic!("{make} is empty"));
            assert!(error.kind() == Kind::Conflict && error.text().contains(says), "{make}: {error}");
            psql(remove);
        }
        assert_eq!(
            fixture.query_number("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'"),
            0,
            "nothing was made"
        );
        psql(&format!("{mine}CREATE SCHEMA app; CREATE TABLE app.a (a INT)"));
        assert!(CopyTarget::begin(&url).await.is_ok(), "it has no rows of anybody's");
    }
}
