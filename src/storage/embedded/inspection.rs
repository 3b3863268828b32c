//! Inspection of a data folder: whether it contains a store, and whether a process uses the store.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::reader::SqliteReaderPool;
use super::{access, connection, copy, log, schema};
use crate::error::{Error, Result};

/// The result of inspecting a data folder.
pub(crate) enum FolderInspection {
    /// The folder contains no store.
    Nothing,
    /// The folder contains a store that a process uses.
    InUse,
    /// The folder contains a store that no process uses. The folder stays locked while the reader exists.
    Unused {
        /// The schema version of the store.
        schema: usize,
        /// The newest schema version that this program supports.
        newest: usize,
        /// Reads the store.
        reader: SqliteReaderPool,
    },
}

/// Inspects a data folder.
///
/// # Errors
/// `Invalid` when a newer version of this program wrote the store; `Unavailable` when this process could not read or
/// write it.
pub(crate) async fn inspect(folder: PathBuf) -> Result<FolderInspection> {
    tokio::task::spawn_blocking(move || inspect_folder(&folder)).await.map_err(Error::internal)?
}

/// Returns `true` if a data folder contains a store. An empty database file does not count, because an interrupted
/// creation leaves one.
///
/// # Errors
/// `Conflict` when there is no store, but an interrupted restore has left files; `Unavailable` when the folder cannot
/// be read.
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

/// Checks that a data folder contains a store, or that one may be created in it.
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
    // The lock file is not created if it is missing, because an inspection must not create files. It is missing if no
    // server has opened the store.
    let lock_path = folder.join("signet.lock");
    let lock = match OpenOptions::new().read(true).open(&lock_path) {
        Ok(lock) => lock,
        Err(e) if e.kind() == ErrorKind::NotFound => File::open(&path).map_err(|e| failed(&path, e))?,
        Err(e) => return Err(failed(&lock_path, e)),
    };
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(FolderInspection::InUse);
    }
    // Checked because a server would not start on a store that it cannot write.
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
