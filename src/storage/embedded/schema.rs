//! Migrations of the embedded database, one transaction each.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::error::{Error, Result};
use crate::storage::migrations::{self, Migration, migrations};
use crate::storage::statements::meta as sql;

const MIGRATIONS: &[Migration] = migrations!(
    "sqlite",
    "0001_init",
    "0002_records",
    "0003_tidy",
    "0004_projects",
    "0005_token_mounts",
    "0006_secret_ids",
    "0007_cubbyhole",
    "0008_identity",
    "0009_answered_requests",
    "0010_data_keys",
    "0011_token_ends",
    "0012_organization_ends",
    "0013_team_membership_organizations",
    "0014_api_token_seals",
    "0015_team_workspace_access",
);

/// Checks that a database is a store whose schema version this program knows.
///
/// # Errors
/// `Invalid` when it is not.
pub(super) fn require_known(db: &Connection) -> Result<()> {
    known_version(db)?.map(drop).ok_or_else(|| Error::invalid("storage: the file is not a database of signet"))
}

/// As [`migrations::require_current`], with the version read from the database.
pub(super) fn require_current(db: &Connection) -> Result<()> {
    migrations::require_current(version(db).map_err(unreadable_error)?, MIGRATIONS)
}

/// As [`migrations::known_version`], with the version read from the database.
pub(super) fn known_version(db: &Connection) -> Result<Option<(usize, usize)>> {
    migrations::known_version(version(db).map_err(unreadable_error)?, MIGRATIONS)
}

fn unreadable_error(error: rusqlite::Error) -> Error {
    Error::unavailable("storage: the schema version of the database cannot be read", error)
}

/// Upgrades the schema of a database to the newest version.
///
/// # Errors
/// `Invalid` when a newer version of this program wrote the database.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    let failed = |e| Error::unavailable("storage: the schema of the database cannot be read or upgraded", e);
    let found = version(db).map_err(failed)?;
    migrations::known_version(found, MIGRATIONS)?;
    for (migration, to) in MIGRATIONS.iter().zip(1..).skip(found) {
        apply(db, migration, to).map_err(failed)?;
        tracing::info!(migration = migration.name, "database schema upgraded");
    }
    Ok(())
}

fn apply(db: &mut Connection, migration: &Migration, to: usize) -> rusqlite::Result<()> {
    let tx = Transaction::new(db, TransactionBehavior::Immediate)?;
    tx.execute_batch(migration.sql)?;
    tx.execute(sql::SCHEMA_SET, params![to.to_string().into_bytes()])?;
    tx.commit()
}

/// Returns the schema version of a database; 0 for an empty one.
fn version(db: &Connection) -> rusqlite::Result<usize> {
    if !db.table_exists(None, "meta")? {
        return Ok(0);
    }
    Ok(migrations::parse_version(db.query_row(sql::SCHEMA, [], |row| row.get(0)).optional()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn migrations_are_numbered_in_order() {
        migrations::assert_numbered_in_order(MIGRATIONS);
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
        // A row with the columns that the previous schema version has.
        db.execute_batch("INSERT INTO team_memberships (team_id, user_id) VALUES (3, 2)").unwrap();
        let text = "SELECT group_concat(team_id || ' ' || user_id || ' ' || org_id) FROM
            (SELECT * FROM team_memberships ORDER BY team_id, user_id)";
        let found: String = db.query_row(text, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "1 1 1,2 1 2,3 1 2,3 2 2");
    }

    #[test]
    fn database_with_a_newer_schema_is_rejected() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        db.execute("UPDATE meta SET value = CAST('99' AS BLOB) WHERE name = 'schema'", []).unwrap();
        let error = migrate(&mut db).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("schema version 99"), "{error}");
    }
}
