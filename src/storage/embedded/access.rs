//! Whether this process may write a store, and no other user of the machine: its folder and every file of it.
//!
//! SQLite says of a folder or of a file beside the database that it may not write only that the database is read-only, and
//! gives the files that it makes the mode of the database. So all of it is asked for first, by name, before a server opens
//! the store and where one is only looked at. Nothing is written and nothing made.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::error::{Error, Result, io_words};

/// What may be in the folder of a store.
const FILES: [&str; 4] = ["signet.lock", "signet.db", "signet.db-wal", "signet.db-shm"];

/// Write permission for others.
const OTHERS_WRITE: u32 = 0o002;

/// That files can be made in a folder, and those of a store in it be written, and not by every user of the machine.
///
/// # Errors
/// `Unavailable` naming the first that cannot; `Invalid` naming the first that everybody may write.
pub(super) fn require(folder: &Path) -> Result<()> {
    require_own(folder)?;
    FILES.iter().try_for_each(|name| require_own(&folder.join(name)))?;
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

/// That not every user of the machine may write a folder or a file of it.
///
/// # Errors
/// `Invalid` naming it.
pub(super) fn require_own(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(found) if found.mode() & OTHERS_WRITE != 0 => Err(Error::invalid(format!(
            "{}: every user may write to it (mode {:04o}), and so replace the store: take that away (chmod o-w), or use \
             a folder inside it",
            path.display(),
            found.mode() & 0o7777
        ))),
        _ => Ok(()),
    }
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
