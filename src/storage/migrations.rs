//! Migrations of a database: append-only files, applied in order. The schema version is the position of the last one in
//! the list, starting at 1.

use crate::error::{Error, Result};

pub(super) struct Migration {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// A list of migrations: the folder of the engine and the names of the files.
macro_rules! migrations {
    ($folder:literal, $($name:literal),+ $(,)?) => {
        &[$($crate::storage::migrations::Migration {
            name: $name,
            sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $name, ".sql")),
        }),+]
    };
}
pub(super) use migrations;

/// Reads the version that a database has stored; 0 for none.
pub(super) fn parse_version(stored: Option<Vec<u8>>) -> usize {
    // An unreadable version is rejected like a newer one.
    stored.map_or(0, |text| std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX))
}

/// The version of a database and the newest supported one; `None` for an empty database.
///
/// # Errors
/// `Invalid` when a newer version wrote it.
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
/// `Invalid` when it has another one.
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
