//! Inspection of a store's folder: whether it contains a store, and whether a process uses it.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::reader::Pool;
use super::{access, connection, copy, log, schema};
use crate::error::{Error, Result, io_words};

/// The contents of a folder.
pub(crate) enum Found {
    /// No store.
    Nothing,
    /// A store that a process uses.
    InUse,
    /// An unused store. The folder is locked while the reader exists.
    Facts {
        /// The version of its schema.
        schema: usize,
        /// The newest version that this program supports.
        newest: usize,
        /// The reader of the store.
        reader: Pool,
    },
}

/// Inspects a folder.
///
/// # Errors
/// `Invalid` when a newer version wrote the store; `Unavailable` when this process could not read or write it.
pub(crate) async fn look(folder: PathBuf) -> Result<Found> {
    tokio::task::spawn_blocking(move || look_into(&folder)).await.map_err(Error::internal)?
}

/// `true` if there is a store. An empty file does not count: an interrupted creation leaves it.
///
/// # Errors
/// `Conflict` when there is no store, but an interrupted restore; `Unavailable` when the folder cannot be read.
pub(crate) fn is_there(folder: &Path) -> Result<bool> {
    let path = folder.join("signet.db");
    let is_there = match std::fs::metadata(&path) {
        Ok(found) => found.len() > 0,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => false,
        Err(e) => {
            let text = format!("{}: cannot be read ({})", path.display(), io_words(e.kind()));
            return Err(Error::unavailable(text, e));
        }
    };
    if !is_there {
        copy::require_not_begun(folder)?;
    }
    Ok(is_there)
}

/// Checks that there is a store, or that one may be created.
///
/// # Errors
/// The errors of [`is_there`].
pub(super) fn require_or_new(folder: &Path) -> Result<()> {
    is_there(folder).map(drop)
}

fn look_into(folder: &Path) -> Result<Found> {
    let failed = |path: &Path, e: std::io::Error| {
        Error::unavailable(format!("{}: cannot be opened ({})", path.display(), io_words(e.kind())), e)
    };
    let path = folder.join("signet.db");
    match File::open(&path) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            copy::require_not_begun(folder)?;
            access::require_for_new(folder)?;
            return Ok(Found::Nothing);
        }
        Err(e) => return Err(failed(&path, e)),
    }
    // Must not create files. A store that no server has opened has no lock file.
    let lock_path = folder.join("signet.lock");
    let lock = match OpenOptions::new().read(true).open(&lock_path) {
        Ok(lock) => lock,
        Err(e) if e.kind() == ErrorKind::NotFound => File::open(&path).map_err(|e| failed(&path, e))?,
        Err(e) => return Err(failed(&lock_path, e)),
    };
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(Found::InUse);
    }
    // A server would not start on a store that it cannot write.
    access::require(folder)?;
    let unreadable = |e| Error::unavailable(format!("{}: cannot be read as a database", path.display()), e);
    // Without a log, the file is read as immutable: otherwise SQLite would create files. The lock prevents changes.
    let has_log = std::fs::metadata(log::path_of(&path)).is_ok_and(|log| log.len() > 0);
    let open = if has_log { connection::reader } else { connection::reader_of_still };
    let db = open(&path).map_err(unreadable)?;
    let Some((schema, newest)) = schema::known(&db)? else { return Ok(Found::Nothing) };
    Ok(Found::Facts { schema, newest, reader: Pool::open_by(open, &path, Arc::new(lock))? })
}
