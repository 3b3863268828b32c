//! Migrations of the PostgreSQL database: append-only files, applied in order, all in one transaction. An advisory lock
//! serializes nodes that start concurrently; the second one finds the work done.

use super::query::{PostgresClient, PostgresError, row};
use crate::error::{Error, Result};
use crate::storage::restore_facts::other_version_error;
use crate::storage::statements::meta as sql;

struct PostgresMigration {
    name: &'static str,
    sql: &'static str,
}

/// All migrations. The schema version is the position in the list, starting at 1.
const MIGRATIONS: &[PostgresMigration] = &[
    PostgresMigration { name: "0001_init", sql: include_str!("../../../migrations/postgres/0001_init.sql") },
    PostgresMigration { name: "0002_records", sql: include_str!("../../../migrations/postgres/0002_records.sql") },
    PostgresMigration { name: "0003_tidy", sql: include_str!("../../../migrations/postgres/0003_tidy.sql") },
    PostgresMigration {
        name: "0004_change_log",
        sql: include_str!("../../../migrations/postgres/0004_change_log.sql"),
    },
    PostgresMigration { name: "0005_projects", sql: include_str!("../../../migrations/postgres/0005_projects.sql") },
    PostgresMigration {
        name: "0006_token_mounts",
        sql: include_str!("../../../migrations/postgres/0006_token_mounts.sql"),
    },
    PostgresMigration {
        name: "0007_secret_ids",
        sql: include_str!("../../../migrations/postgres/0007_secret_ids.sql"),
    },
    PostgresMigration { name: "0008_cubbyhole", sql: include_str!("../../../migrations/postgres/0008_cubbyhole.sql") },
    PostgresMigration { name: "0009_identity", sql: include_str!("../../../migrations/postgres/0009_identity.sql") },
    PostgresMigration {
        name: "0010_answered_requests",
        sql: include_str!("../../../migrations/postgres/0010_answered_requests.sql"),
    },
    PostgresMigration { name: "0011_data_keys", sql: include_str!("../../../migrations/postgres/0011_data_keys.sql") },
    PostgresMigration {
        name: "0012_organization_ends",
        sql: include_str!("../../../migrations/postgres/0012_organization_ends.sql"),
    },
    PostgresMigration {
        name: "0013_team_membership_organizations",
        sql: include_str!("../../../migrations/postgres/0013_team_membership_organizations.sql"),
    },
    PostgresMigration {
        name: "0014_api_token_seals",
        sql: include_str!("../../../migrations/postgres/0014_api_token_seals.sql"),
    },
    PostgresMigration {
        name: "0015_team_workspace_access",
        sql: include_str!("../../../migrations/postgres/0015_team_workspace_access.sql"),
    },
    PostgresMigration {
        name: "0016_endless_tokens",
        sql: include_str!("../../../migrations/postgres/0016_endless_tokens.sql"),
    },
];

/// A migration may take long, also on another node. Two-part lock keys differ from the one-part keys of mounts.
const LOCK_SCHEMA: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min';
    SELECT pg_advisory_xact_lock(1936287598, 1)";
/// Queries the permission to create tables in the schema of the migrations, and the names of user, database and schema.
const SELECT_PERMISSION: &str = "SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), FALSE),
    quote_ident(current_user), quote_ident(current_database()), quote_ident(COALESCE(current_schema(), 'public'))";

/// Upgrades the schema.
///
/// # Errors
/// `Invalid` when a newer version wrote the database, or its user may not change the schema.
pub(super) async fn migrate(db: &mut PostgresClient) -> Result<()> {
    let failed = |e: PostgresError| e.public("storage: the schema cannot be read or brought up to date");
    db.batch_execute("BEGIN").await.map_err(|e| failed(e.into()))?;
    db.batch_execute(LOCK_SCHEMA).await.map_err(|e| failed(e.into()))?;
    let found = version(db).await.map_err(failed)?;
    require_known(found)?;
    if found < MIGRATIONS.len() {
        require_permission(db).await?;
    }
    for (migration, to) in MIGRATIONS.iter().zip(1..).skip(found) {
        apply(db, migration, to).await.map_err(failed)?;
    }
    db.batch_execute("COMMIT").await.map_err(|e| failed(e.into()))?;
    for migration in &MIGRATIONS[found..] {
        tracing::info!(migration = migration.name, "storage schema brought up to date");
    }
    Ok(())
}

fn require_known(found: usize) -> Result<()> {
    let newest = MIGRATIONS.len();
    if found <= newest {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "storage: the database has schema version {found}, this program knows {newest}: start a newer program"
    )))
}

/// The schema version of a database and the newest supported one; `None` for an empty database.
///
/// # Errors
/// `Invalid` when a newer version wrote it.
pub(super) async fn known_version(db: &PostgresClient) -> Result<Option<(usize, usize)>> {
    let found = version(db).await.map_err(|e| e.public("storage: the schema cannot be read"))?;
    require_known(found)?;
    Ok((found > 0).then_some((found, MIGRATIONS.len())))
}

/// Checks that a database has exactly this program's schema version.
///
/// # Errors
/// `Invalid` when it has another one.
pub(super) async fn require_current(db: &PostgresClient) -> Result<()> {
    let found = version(db).await.map_err(|e| e.public("storage: the schema cannot be read"))?;
    if found == MIGRATIONS.len() { Ok(()) } else { Err(other_version_error(found, MIGRATIONS.len())) }
}

/// Checks that the connected user may upgrade the schema, now or with a later version.
///
/// # Errors
/// `Invalid` with the statement that grants the permission.
pub(super) async fn require_permission(db: &PostgresClient) -> Result<()> {
    let failed = |e: PostgresError| e.public("storage: the rights in the database cannot be read");
    let found = row(db, SELECT_PERMISSION, &[]).await.map_err(failed)?;
    let found = found.ok_or_else(|| Error::internal("a right has a row"))?;
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

async fn apply(db: &PostgresClient, migration: &PostgresMigration, to: usize) -> Result<(), PostgresError> {
    db.batch_execute(migration.sql).await?;
    db.execute(sql::SCHEMA_SET, &[&to.to_string().into_bytes()]).await?;
    Ok(())
}

/// The schema version; 0 for an empty database.
async fn version(db: &PostgresClient) -> Result<usize, PostgresError> {
    if row(db, "SELECT 1 WHERE to_regclass('meta') IS NOT NULL", &[]).await?.is_none() {
        return Ok(0);
    }
    let Some(stored) = row(db, sql::SCHEMA, &[]).await? else { return Ok(0) };
    let value: Vec<u8> = stored.try_get(0)?;
    // An unreadable version is rejected like a newer one.
    Ok(std::str::from_utf8(&value).ok().and_then(|t| t.parse().ok()).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::storage::postgres::fixture::Postgres;
    use crate::storage::tests::contract::{self, Fixture as _};

    #[test]
    fn migrations_are_numbered_in_order() {
        for (migration, number) in MIGRATIONS.iter().zip(1..) {
            assert!(migration.name.starts_with(&format!("{number:04}_")), "{}", migration.name);
        }
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
        // As the previous version inserts it.
        database.psql("INSERT INTO team_memberships (team_id, user_id) VALUES (3, 2)");
        let text = "SELECT string_agg(team_id || ' ' || user_id || ' ' || org_id, ',' ORDER BY team_id, user_id)
            FROM team_memberships";
        assert_eq!(database.psql(text).trim(), "1 1 1,2 1 2,3 1 2,3 2 2");
    }
}
