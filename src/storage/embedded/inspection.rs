//! Inspection of a store's folder: whether it contains a store, and whether a process uses it.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::reader::SqliteReaderPool;
use super::{access, connection, copy, log, schema};
use crate::error::{Error, Result};

/// The contents of a folder.
pub(crate) enum FolderInspection {
    /// No store.
    Nothing,
    /// A store that a process uses.
    InUse,
    /// An unused store. The folder is locked while the reader exists.
    Unused {
        /// The version of its schema.
        schema: usize,
        /// The newest version that this program supports.
        newest: usize,
        /// The reader of the store.
        reader: SqliteReaderPool,
    },
}

/// Inspects a folder.
///
/// # Errors
/// `Invalid` when a newer version wrote the store; `Unavailable` when this process could not read or write it.
pub(crate) async fn inspect(folder: PathBuf) -> Result<FolderInspection> {
    tokio::task::spawn_blocking(move || inspect_folder(&folder)).await.map_err(Error::internal)?
}

/// `true` if there is a store. An empty file does not count: an interrupted creation leaves it.
///
/// # Errors
/// `Conflict` when there is no store, but an interrupted restore; `Unavailable` when the folder cannot be read.
pub(crate) fn store_exists(folder: &Path) -> Result<bool> {
    let path = folder.join("signet.db");
    let is_there = match std::fs::metadata(&path) {
        Ok(found) => found.len() > 0,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => false,
        Err(e) => return Err(Error::of_io(path.display(), "read", e)),
    };
    if !is_there {
        copy::require_no_interrupted_restore(folder)?;
    }
    Ok(is_there)
}

/// Checks that there is a store, or that one may be created.
///
/// # Errors
/// The errors of [`store_exists`].
pub(super) fn require_store_or_new(folder: &Path) -> Result<()> {
    store_exists(folder).map(drop)
}

fn inspect_folder(folder: &Path) -> Result<FolderInspection> {
    let failed = |path: &Path, e| Error::of_io(path.display(), "opened", e);
    let path = folder.join("signet.db");
    match File::open(&path) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            copy::require_no_interrupted_restore(folder)?;
            access::require_creatable(folder)?;
            return Ok(FolderInspection::Nothing);
        }
        Err(e) => return Err(failed(&path, e)),
    }
    // Opened without creating it, because an inspection must not create files. A store that no server has opened has no
    // lock file.
    let lock_path = folder.join("signet.lock");
    let lock = match OpenOptions::new().read(true).open(&lock_path) {
        Ok(lock) => lock,
        Err(e) if e.kind() == ErrorKind::NotFound => File::open(&path).map_err(|e| failed(&path, e))?,
        Err(e) => return Err(failed(&lock_path, e)),
    };
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(FolderInspection::InUse);
    }
    // A server would not start on a store that it cannot write.
    access::require_writable(folder)?;
    let unreadable = |e| Error::unavailable(format!("{}: cannot be read as a database", path.display()), e);
    // Without a log, the file is opened as immutable, because SQLite would otherwise create files. The lock on the
    // folder prevents changes.
    let has_log = std::fs::metadata(log::log_path(&path)).is_ok_and(|log| log.len() > 0);
    let open = if has_log { connection::open_reader } else { connection::open_immutable_reader };
    let db = open(&path).map_err(unreadable)?;
    let Some((schema, newest)) = schema::known_version(&db)? else { return Ok(FolderInspection::Nothing) };
    Ok(FolderInspection::Unused { schema, newest, reader: SqliteReaderPool::open_with(open, &path, Arc::new(lock))? })
}
