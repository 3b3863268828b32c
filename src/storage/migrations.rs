//! Migrations of a database: SQL files that are applied in order. Files are only ever added at the end of the list. The
//! schema version is the number of applied files.

use crate::error::{Error, Result};

pub(super) struct Migration {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// Builds the list of migrations from the folder of an engine and the names of its SQL files.
macro_rules! migrations {
    ($folder:literal, $($name:literal),+ $(,)?) => {
        &[$($crate::storage::migrations::Migration {
            name: $name,
            sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $name, ".sql")),
        }),+]
    };
}
pub(super) use migrations;

/// Parses the schema version that a database has stored; 0 if there is none.
pub(super) fn parse_version(stored: Option<Vec<u8>>) -> usize {
    // A version that cannot be parsed becomes a very high number, and is rejected like a newer version.
    stored.map_or(0, |text| std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX))
}

/// Returns the schema version `found` in a database and the newest supported version; `None` for an empty database (0).
///
/// # Errors
/// `Invalid` when a newer version of this program wrote the database.
pub(super) fn known_version(found: usize, migrations: &[Migration]) -> Result<Option<(usize, usize)>> {
    let newest = migrations.len();
    if found > newest {
        return Err(Error::invalid(format!(
            "storage: the database has schema version {found}, but this program supports at most {newest}; start a \
             newer version of signet"
        )));
    }
    Ok((found > 0).then_some((found, newest)))
}

/// Checks that a database has exactly this program's schema version.
///
/// # Errors
/// `Invalid` when the database has another version.
pub(super) fn require_current(found: usize, migrations: &[Migration]) -> Result<()> {
    let newest = migrations.len();
    if found == newest {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "schema: version {found}, expected {newest}; check the store with the program version that wrote it"
    )))
}

#[cfg(test)]
pub(super) fn assert_numbered_in_order(migrations: &[Migration]) {
    for (migration, number) in migrations.iter().zip(1..) {
        assert!(migration.name.starts_with(&format!("{number:04}_")), "{}", migration.name);
    }
}
