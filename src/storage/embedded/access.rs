//! Whether this process may write a store: its folder and every file of it.
//!
//! SQLite says of a folder or of a file beside the database that it may not write only that the database is read-only, and
//! gives the files that it makes the mode of the database. So all of it is asked for first, by name, before a server opens
//! the store and where one is only looked at. Nothing is written and nothing made.

use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::error::{Error, Result, io_words};

/// What may be in the folder of a store.
const FILES: [&str; 4] = ["signet.lock", "signet.db", "signet.db-wal", "signet.db-shm"];

/// That files can be made in a folder, and those of a store in it be written.
///
/// # Errors
/// `Unavailable` naming the first that cannot.
pub(super) fn require(folder: &Path) -> Result<()> {
    require_of(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    FILES.iter().try_for_each(|name| require_of(&folder.join(name), Access::READ_OK | Access::WRITE_OK))
}

/// The same of a folder that need not be there: then it can be made.
///
/// # Errors
/// As [`require`].
pub(super) fn require_for_new(folder: &Path) -> Result<()> {
    if folder.exists() {
        return require(folder);
    }
    let above = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    require_of(above, Access::WRITE_OK | Access::EXEC_OK)
}

fn require_of(path: &Path, rights: Access) -> Result<()> {
    match access(path, rights) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => {
            let e = std::io::Error::from(e);
            Err(Error::unavailable(format!("{}: cannot be written ({})", path.display(), io_words(e.kind())), e))
        }
    }
}
