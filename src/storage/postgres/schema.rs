//! Migrations of the PostgreSQL database, all in one transaction. An advisory lock serializes nodes that start
//! concurrently; a node that gets the lock later finds the schema upgraded.

use super::query::{PostgresClient, PostgresError, row};
use crate::error::{Error, Result};
use crate::storage::migrations::{self, Migration, migrations};
use crate::storage::statements::meta as sql;

const MIGRATIONS: &[Migration] = migrations!(
    "postgres",
    "0001_init",
    "0002_records",
    "0003_tidy",
    "0004_change_log",
    "0005_projects",
    "0006_token_mounts",
    "0007_secret_ids",
    "0008_cubbyhole",
    "0009_identity",
    "0010_answered_requests",
    "0011_data_keys",
    "0012_organization_ends",
    "0013_team_membership_organizations",
    "0014_api_token_seals",
    "0015_team_workspace_access",
    "0016_endless_tokens",
);

/// Takes the lock of migrations. The timeouts are long, because the migration of another node, for which this one
/// waits, may take long. The lock key has two parts and so differs from the keys of mounts, which have one part.
const LOCK_SCHEMA: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min';
    SELECT pg_advisory_xact_lock(1936287598, 1)";
/// Selects whether the user may create tables in the schema of the store, and the names of user, database and schema.
const SELECT_PERMISSION: &str = "SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), FALSE),
    quote_ident(current_user), quote_ident(current_database()), quote_ident(COALESCE(current_schema(), 'public'))";

/// Upgrades the schema of a database to the newest version.
///
/// # Errors
/// `Invalid` when a newer version of this program wrote the database, or its user may not change the schema.
pub(super) async fn migrate(db: &mut PostgresClient) -> Result<()> {
    let failed =
        |e: PostgresError| e.into_public_error("storage: the schema of the database cannot be read or upgraded");
    db.batch_execute("BEGIN").await.map_err(|e| failed(e.into()))?;
    db.batch_execute(LOCK_SCHEMA).await.map_err(|e| failed(e.into()))?;
    let found = version(db).await.map_err(failed)?;
    migrations::known_version(found, MIGRATIONS)?;
    if found < MIGRATIONS.len() {
        require_permission(db).await?;
    }
    for (migration, to) in MIGRATIONS.iter().zip(1..).skip(found) {
        apply(db, migration, to).await.map_err(failed)?;
    }
    db.batch_execute("COMMIT").await.map_err(|e| failed(e.into()))?;
    for migration in &MIGRATIONS[found..] {
        tracing::info!(migration = migration.name, "database schema upgraded");
    }
    Ok(())
}

/// As [`migrations::known_version`], with the version read from the database.
pub(super) async fn known_version(db: &PostgresClient) -> Result<Option<(usize, usize)>> {
    let found = version(db)
        .await
        .map_err(|e| e.into_public_error("storage: the schema version of the database cannot be read"))?;
    migrations::known_version(found, MIGRATIONS)
}

/// As [`migrations::require_current`], with the version read from the database.
pub(super) async fn require_current(db: &PostgresClient) -> Result<()> {
    let found = version(db)
        .await
        .map_err(|e| e.into_public_error("storage: the schema version of the database cannot be read"))?;
    migrations::require_current(found, MIGRATIONS)
}

/// Checks that the connected user may upgrade the schema, now or for a later version of this program.
///
/// # Errors
/// `Invalid`, with the SQL statement that grants the permission.
pub(super) async fn require_permission(db: &PostgresClient) -> Result<()> {
    let failed = |e: PostgresError| e.into_public_error("storage: the permissions of the database user cannot be read");
    let found = row(db, SELECT_PERMISSION, &[]).await.map_err(failed)?;
    let found =
        found.ok_or_else(|| Error::internal("the query for the permissions of the database user returned no row"))?;
    let text = |at: usize| found.try_get::<_, String>(at).map_err(|e| failed(e.into()));
    if found.try_get(0).map_err(|e| failed(e.into()))? {
        return Ok(());
    }
    let user = text(1)?;
    let database = text(2)?;
    let schema = text(3)?;
    Err(Error::invalid(format!(
        "storage: user {user} may not create tables in schema {schema}, which schema upgrades require; as a superuser, \
         run ALTER DATABASE {database} OWNER TO {user} (or, if it is the owner, GRANT CREATE ON SCHEMA {schema} TO \
         {user})"
    )))
}

async fn apply(db: &PostgresClient, migration: &Migration, to: usize) -> Result<(), PostgresError> {
    db.batch_execute(migration.sql).await?;
    db.execute(sql::SCHEMA_SET, &[&to.to_string().into_bytes()]).await?;
    Ok(())
}

/// Returns the schema version of a database; 0 for an empty one.
async fn version(db: &PostgresClient) -> Result<usize, PostgresError> {
    if row(db, "SELECT 1 WHERE to_regclass('meta') IS NOT NULL", &[]).await?.is_none() {
        return Ok(0);
    }
    let stored = row(db, sql::SCHEMA, &[]).await?;
    Ok(migrations::parse_version(stored.map(|stored| stored.try_get(0)).transpose()?))
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::storage::postgres::fixture::Postgres;
    use crate::storage::tests::contract::{self, Fixture as _};

    #[test]
    fn migrations_are_numbered_in_order() {
        migrations::assert_numbered_in_order(MIGRATIONS);
    }

    #[test]
    fn migration_adds_team_members_to_their_organizations() {
        let fixture = Postgres::new();
        let database = &fixture.database;
        for migration in &MIGRATIONS[..12] {
            database.psql(migration.sql);
        }
        database.psql(contract::TEAM_MEMBERSHIPS);
        database.psql(MIGRATIONS[12].sql);
        // A row with the columns that the previous schema version has.
        database.psql("INSERT INTO team_memberships (team_id, user_id) VALUES (3, 2)");
        let text = "SELECT string_agg(team_id || ' ' || user_id || ' ' || org_id, ',' ORDER BY team_id, user_id)
            FROM team_memberships";
        assert_eq!(database.psql(text).trim(), "1 1 1,2 1 2,3 1 2,3 2 2");
    }
}
