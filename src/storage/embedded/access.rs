//! Access checks for the data folder: this process must be able to write to the folder and its files, and they must not
//! be writable for every user.
//!
//! If this process may not write to a path, SQLite only reports that the database is read-only. SQLite also creates its
//! other files with the mode of the database. So all paths are checked before SQLite opens the database, with errors
//! that name the path. Nothing is written or created.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::error::{Error, Result};

const STORE_FILES: [&str; 4] = ["signet.lock", "signet.db", "signet.db-wal", "signet.db-shm"];

const WORLD_WRITABLE_BIT: u32 = 0o002;

/// Checks that this process may write the folder and its files, and that they are not writable for every user.
///
/// # Errors
/// `Unavailable` for the first path that this process cannot write; `Invalid` for the first path that every user may
/// write.
pub(super) fn require_writable(folder: &Path) -> Result<()> {
    require_not_world_writable(folder)?;
    STORE_FILES.iter().try_for_each(|name| require_not_world_writable(&folder.join(name)))?;
    check_access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    STORE_FILES.iter().try_for_each(|name| check_access(&folder.join(name), Access::READ_OK | Access::WRITE_OK))
}

/// As [`require_writable`]. If the folder is missing, checks that this process can create it.
///
/// # Errors
/// As [`require_writable`].
pub(super) fn require_creatable(folder: &Path) -> Result<()> {
    if folder.exists() {
        return require_writable(folder);
    }
    let parent = folder.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("."));
    check_access(parent, Access::WRITE_OK | Access::EXEC_OK)
}

/// Checks that a folder or file is not writable for every user of the machine.
///
/// # Errors
/// `Invalid` when it is.
pub(super) fn require_not_world_writable(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(found) if found.mode() & WORLD_WRITABLE_BIT != 0 => Err(Error::invalid(format!(
            "{}: every user may write to it (mode {:04o}) and could replace the store; run chmod o-w, or use \
             a folder inside it",
            path.display(),
            found.mode() & 0o7777
        ))),
        _ => Ok(()),
    }
}

fn check_access(path: &Path, rights: Access) -> Result<()> {
    match access(path, rights) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::of_io(path.display(), "written", e.into())),
    }
}
