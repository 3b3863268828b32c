//! Files that commands write: new ones that take nobody's place, and whole replacements.
//!
//! Either is written beside its place, synced and renamed into it, so that whoever reads it sees nothing half-done, and a
//! disk that is full leaves nothing. A replacement keeps the owner; of the mode it keeps what its kind may have. A symbolic
//! link stays, and what it leads to is replaced, where it may be followed (`spot`). `lock` keeps commands apart.

mod lock;
mod spot;
mod staged;

use std::path::Path;

use signet::error::{Error, Result};

pub(super) use self::lock::FolderLock;
pub(super) use self::spot::folder_of;
pub(super) use self::staged::{Content, Staged, There, exists, write_new};

/// That a file exists which the flag or argument `named_by` names.
///
/// # Errors
/// [`Error::of_file`]'s.
pub(super) fn require_file(named_by: &str, file: &Path) -> Result<()> {
    std::fs::metadata(file).map(drop).map_err(|e| Error::of_file(named_by, file, "read", e))
}

/// Whether anything is there, be it a link that leads nowhere.
pub(super) fn is_there(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

/// Whether a file is there with nothing in it.
pub(super) fn is_empty(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
}
