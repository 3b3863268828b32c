//! Read access to the file of a copy: its integrity check, and read-only connections.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::reader::SqliteReaderPool;
use super::schema;
use crate::error::{Error, Kind, Result};

/// Maximum number of defects that SQLite reports.
const MAX_REPORTED_FAULTS: usize = 50;

/// Checks the file of a copy and returns its defects; none if the store in it can be opened.
///
/// # Errors
/// `Unavailable` when the file is missing or not readable.
pub(crate) fn check(file: &Path) -> Result<Vec<String>> {
    check_with(file, schema::require_current)
}

/// As [`check`], for a file that may have an older schema version.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_any_version(file: &Path) -> Result<Vec<String>> {
    check_with(file, schema::require_known)
}

fn check_with(file: &Path, require: impl Fn(&Connection) -> Result<()>) -> Result<Vec<String>> {
    // A file that this process cannot read is an error, not a defect of the file.
    File::open(file).map_err(|e| read_error(file, e))?;
    let found = connect(file).and_then(|db| Ok((find_faults(&db)?, require(&db))));
    Ok(match found {
        Err(error) => vec![format!("file: cannot be read as a database ({error})")],
        Ok((faults, Ok(()))) => faults,
        Ok((faults, Err(error))) => faults.into_iter().chain([error.to_string()]).collect(),
    })
}

fn find_faults(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let check = format!("PRAGMA integrity_check({MAX_REPORTED_FAULTS})");
    let mut statement = db.prepare(&check)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let faults = lines.iter().filter(|line| *line != "ok").map(|line| format!("file: {}", line.trim()));
    let mut keys = db.prepare("PRAGMA foreign_key_check")?;
    let broken = keys
        .query_map([], |row| row.get::<_, String>(0))?
        .take(MAX_REPORTED_FAULTS)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let broken = broken.iter().map(|table| format!("{table}: a row refers to a missing row (foreign key violation)"));
    Ok(faults.chain(broken).collect())
}

fn read_error(file: &Path, error: std::io::Error) -> Error {
    Error::of_file("FILE", file, "read", error).with_kind(Kind::Unavailable)
}

/// Opens a copy read-only.
///
/// # Errors
/// `Invalid` when it has another schema version; `Unavailable` when it cannot be read.
pub(crate) fn open(file: &Path) -> Result<SqliteReaderPool> {
    open_with(file, schema::require_current)
}

/// Opens a copy read-only. The copy may have an older schema version. Only its installation facts may be read.
///
/// # Errors
/// `Invalid` when it is not a store of a known version; `Unavailable` when it cannot be read.
pub(crate) fn open_any_version(file: &Path) -> Result<SqliteReaderPool> {
    open_with(file, schema::require_known)
}

fn open_with(file: &Path, require: impl Fn(&Connection) -> Result<()>) -> Result<SqliteReaderPool> {
    let path = std::path::absolute(file).map_err(|e| read_error(file, e))?;
    let lock = Arc::new(File::open(&path).map_err(|e| read_error(file, e))?);
    let db = connect(&path).map_err(|e| Error::unavailable(format!("{}: cannot be read ({e})", path.display()), e))?;
    require(&db)?;
    SqliteReaderPool::open(&path, lock)
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sealed_tables::SEALED_TABLES;

    #[test]
    fn copy_of_another_version_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("copy.db");
        let mut db = Connection::open(&file).unwrap();
        schema::migrate(&mut db).unwrap();
        assert!(open(&file).is_ok());
        db.execute("UPDATE meta SET value = CAST('1' AS BLOB) WHERE name = 'schema'", []).unwrap();
        let error = open(&file).err().unwrap();
        assert_eq!(error.kind(), crate::error::Kind::Invalid);
        assert!(error.to_string().contains("schema: version 1,"), "{error}");
    }

    #[test]
    fn every_table_with_sealed_bodies_is_opened() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        let with_body = "SELECT t.name FROM sqlite_master t, pragma_table_info(t.name) c
            WHERE t.type = 'table' AND c.name = 'body' ORDER BY t.name";
        let tables: Vec<String> =
            db.prepare(with_body).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut known: Vec<_> = SEALED_TABLES.iter().map(|table| table.table).collect();
        known.sort_unstable();
        assert_eq!(tables, known);
    }
}
