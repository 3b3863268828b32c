//! Migrations of the embedded database: append-only files, applied in order, one transaction each.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::error::{Error, Result};
use crate::storage::restore_facts::other_version_error;
use crate::storage::statements::meta as sql;

struct SqliteMigration {
    name: &'static str,
    sql: &'static str,
}

/// All migrations. The schema version is the position in the list, starting at 1.
const MIGRATIONS: &[SqliteMigration] = &[
    SqliteMigration { name: "0001_init", sql: include_str!("../../../migrations/sqlite/0001_init.sql") },
    SqliteMigration { name: "0002_records", sql: include_str!("../../../migrations/sqlite/0002_records.sql") },
    SqliteMigration { name: "0003_tidy", sql: include_str!("../../../migrations/sqlite/0003_tidy.sql") },
    SqliteMigration { name: "0004_projects", sql: include_str!("../../../migrations/sqlite/0004_projects.sql") },
    SqliteMigration {
        name: "0005_token_mounts",
        sql: include_str!("../../../migrations/sqlite/0005_token_mounts.sql"),
    },
    SqliteMigration { name: "0006_secret_ids", sql: include_str!("../../../migrations/sqlite/0006_secret_ids.sql") },
    SqliteMigration { name: "0007_cubbyhole", sql: include_str!("../../../migrations/sqlite/0007_cubbyhole.sql") },
    SqliteMigration { name: "0008_identity", sql: include_str!("../../../migrations/sqlite/0008_identity.sql") },
    SqliteMigration {
        name: "0009_answered_requests",
        sql: include_str!("../../../migrations/sqlite/0009_answered_requests.sql"),
    },
    SqliteMigration { name: "0010_data_keys", sql: include_str!("../../../migrations/sqlite/0010_data_keys.sql") },
    SqliteMigration { name: "0011_token_ends", sql: include_str!("../../../migrations/sqlite/0011_token_ends.sql") },
    SqliteMigration {
        name: "0012_organization_ends",
        sql: include_str!("../../../migrations/sqlite/0012_organization_ends.sql"),
    },
    SqliteMigration {
        name: "0013_team_membership_organizations",
        sql: include_str!("../../../migrations/sqlite/0013_team_membership_organizations.sql"),
    },
    SqliteMigration {
        name: "0014_api_token_seals",
        sql: include_str!("../../../migrations/sqlite/0014_api_token_seals.sql"),
    },
    SqliteMigration {
        name: "0015_team_workspace_access",
        sql: include_str!("../../../migrations/sqlite/0015_team_workspace_access.sql"),
    },
];

/// Checks that a database is a store, and not of a newer version.
///
/// # Errors
/// `Invalid` when it is not.
pub(super) fn require_known(db: &Connection) -> Result<()> {
    match version(db).map_err(|e| Error::unavailable("storage: the schema cannot be read", e))? {
        0 => Err(Error::invalid("storage: the file is not a store")),
        known if known <= MIGRATIONS.len() => Ok(()),
        newer => Err(newer_version_error(newer)),
    }
}

/// Checks that a database has exactly this program's schema version.
///
/// # Errors
/// `Invalid` when it has another one.
pub(super) fn require_current(db: &Connection) -> Result<()> {
    let found = version(db).map_err(|e| Error::unavailable("storage: the schema cannot be read", e))?;
    if found == MIGRATIONS.len() { Ok(()) } else { Err(other_version_error(found, MIGRATIONS.len())) }
}

/// The schema version of a database and the newest supported one; `None` for an empty database.
///
/// # Errors
/// `Invalid` when a newer version wrote it.
pub(super) fn known_version(db: &Connection) -> Result<Option<(usize, usize)>> {
    let found = version(db).map_err(|e| Error::unavailable("storage: the schema cannot be read", e))?;
    match found {
        0 => Ok(None),
        known if known <= MIGRATIONS.len() => Ok(Some((known, MIGRATIONS.len()))),
        newer => Err(newer_version_error(newer)),
    }
}

fn newer_version_error(found: usize) -> Error {
    Error::invalid(format!(
        "storage: the database has schema version {found}, this program knows {}: start a newer program",
        MIGRATIONS.len()
    ))
}

/// Upgrades the schema.
///
/// # Errors
/// `Invalid` when a newer version wrote the database.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    let failed = |e| Error::unavailable("storage: the schema cannot be read or brought up to date", e);
    let found = version(db).map_err(failed)?;
    if found > MIGRATIONS.len() {
        return Err(newer_version_error(found));
    }
    for (migration, to) in MIGRATIONS.iter().zip(1..).skip(found) {
        apply(db, migration, to).map_err(failed)?;
        tracing::info!(migration = migration.name, "storage schema brought up to date");
    }
    Ok(())
}

fn apply(db: &mut Connection, migration: &SqliteMigration, to: usize) -> rusqlite::Result<()> {
    let tx = Transaction::new(db, TransactionBehavior::Immediate)?;
    tx.execute_batch(migration.sql)?;
    tx.execute(sql::SCHEMA_SET, params![to.to_string().into_bytes()])?;
    tx.commit()
}

/// The schema version; 0 for an empty database.
fn version(db: &Connection) -> rusqlite::Result<usize> {
    if !db.table_exists(None, "meta")? {
        return Ok(0);
    }
    let value: Option<Vec<u8>> = db.query_row(sql::SCHEMA, [], |row| row.get(0)).optional()?;
    // An unreadable version is rejected like a newer one.
    Ok(value.map_or(0, |v| std::str::from_utf8(&v).ok().and_then(|t| t.parse().ok()).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn migrations_are_numbered_in_order() {
        for (migration, number) in MIGRATIONS.iter().zip(1..) {
            assert!(migration.name.starts_with(&format!("{number:04}_")), "{}", migration.name);
        }
    }

    #[test]
    fn migrating_again_changes_nothing() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        migrate(&mut db).unwrap();
        assert_eq!(version(&db).unwrap(), MIGRATIONS.len());
    }

    #[test]
    fn migration_adds_team_members_to_their_organizations() {
        let mut db = Connection::open_in_memory().unwrap();
        for (migration, to) in MIGRATIONS[..12].iter().zip(1..) {
            apply(&mut db, migration, to).unwrap();
        }
        db.execute_batch(crate::storage::tests::contract::TEAM_MEMBERSHIPS).unwrap();
        apply(&mut db, &MIGRATIONS[12], 13).unwrap();
        // As the previous version inserts it.
        db.execute_batch("INSERT INTO team_memberships (team_id, user_id) VALUES (3, 2)").unwrap();
        let text = "SELECT group_concat(team_id || ' ' || user_id || ' ' || org_id) FROM
            (SELECT * FROM team_memberships ORDER BY team_id, user_id)";
        let found: String = db.query_row(text, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "1 1 1,2 1 2,3 1 2,3 2 2");
    }

    #[test]
    fn a_database_with_a_newer_schema_is_refused_with_a_clear_text() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        db.execute("UPDATE meta SET value = CAST('99' AS BLOB) WHERE name = 'schema'", []).unwrap();
        let error = migrate(&mut db).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("schema version 99"), "{error}");
    }
}
