//! The embedded engine: SQLite, one file `signet.db` in the data folder.
//!
//! With WAL and `synchronous=FULL`, a commit is durable when it returns. One connection writes, on the commit actor's
//! thread; a small pool reads; another connection only runs checkpoints, so that commits are not delayed. A lock on
//! `signet.lock` excludes other processes. After a failed sync, written data may be missing on the disk. `log` and
//! `writer` ensure that no later commit depends on such data.

mod access;
mod batch;
mod certificates;
mod checkpoint;
mod connection;
pub(super) mod copy;
pub(super) mod copy_access;
#[cfg(test)]
mod fixture;
pub(super) mod inspection;
mod log;
mod projects;
mod query;
mod reader;
mod revocations;
mod schema;
mod session;
mod tokens;
mod transaction;
mod writer;

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::clock::Time;
use crate::error::{Error, Result};
#[cfg(test)]
pub(super) use fixture::Embedded;
use reader::SqliteReaderPool;
use writer::SqliteWriter;

/// Returns SQLite's own message, if an error was caused by SQLite.
pub(super) fn sqlite_message(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    cause.downcast_ref::<rusqlite::Error>().map(ToString::to_string)
}

/// Opens or creates the database of a folder, upgrades its schema, and returns writer and readers. If the database is a
/// restored copy, completes the restore, with `now` as its time. Does not create a database next to an interrupted
/// restore.
pub(super) fn open(folder: &Path, now: Time) -> Result<(SqliteWriter, SqliteReaderPool)> {
    let failed = |e| Error::of_io(format_args!("data folder {}", folder.display()), "used", e);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    access::require_writable(folder)?;
    let lock = Arc::new(connection::lock(folder)?);
    let path = folder.join("signet.db");
    inspection::require_store_or_new(folder)?;
    // Created here with mode 0600, because SQLite creates its other files with the mode of the database.
    OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    File::open(folder).and_then(|f| f.sync_all()).map_err(failed)?;
    log::rewrite_log(&path).map_err(failed)?;
    let mut db = connection::open_writer(&path)?;
    schema::migrate(&mut db)?;
    copy::complete_restore(&mut db, now)?;
    copy::require_unmoved(&db)?;
    let reader = SqliteReaderPool::open(&path, lock.clone())?;
    Ok((SqliteWriter::new(db, path, lock, reader.clone())?, reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn data_folder_is_0700_and_files_are_0600() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let _open = open(&folder, Time::UNIX_EPOCH).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap()).collect();
        assert!(files.len() >= 3, "database, log, lock");
        for file in files {
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", file.file_name());
        }
    }

    #[test]
    fn unusable_data_folder_error_has_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let text = |error: crate::error::Error| error.to_string();
        let refused = open(&file.join("data"), Time::UNIX_EPOCH).err().map(text).unwrap();
        assert!(refused.ends_with("cannot be used (not a directory)"), "{refused}");
        std::fs::create_dir(dir.path().join("signet.lock")).unwrap();
        let refused = open(dir.path(), Time::UNIX_EPOCH).err().map(text).unwrap();
        assert!(refused.ends_with("signet.lock: cannot be opened (is a directory)"), "{refused}");
        let refused = copy_access::open(&dir.path().join("absent")).err().map(text).unwrap();
        assert!(refused.starts_with("FILE: file does not exist: ") && refused.ends_with("absent"), "{refused}");
        let refused = copy::restore(&dir.path().join("absent"), &dir.path().join("new"), &Default::default());
        let refused = text(refused.err().unwrap());
        assert!(refused.starts_with("FILE: file does not exist: ") && refused.ends_with("absent"), "{refused}");
    }

    #[test]
    fn data_folder_is_locked_until_the_first_open_ends() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), Time::UNIX_EPOCH).unwrap();
        let error = open(dir.path(), Time::UNIX_EPOCH).err().unwrap();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains("in use by another"));
        drop(first);
        assert!(open(dir.path(), Time::UNIX_EPOCH).is_ok());
    }
}
