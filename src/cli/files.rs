//! Files that commands write: new files, which replace nothing, and complete replacements of files.
//!
//! Both kinds are written to a temporary file in the same folder, synced and renamed, so that readers see only complete
//! files and a full disk leaves nothing behind. A replacement keeps the owner and the mode, except that a file with
//! secrets is readable at most by its group. A symbolic link stays and its target is replaced, if `resolved_path`
//! allows following the link. `lock` keeps other commands from replacing files of the same folder.

mod lock;
mod resolved_path;
mod staged;

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::error::{Error, Result};
pub(super) use crate::files::folder_of;

pub(super) use self::lock::FolderLock;
pub(super) use self::staged::{FileContent, OnExisting, StagedFile, exists_error, write_new};

/// Requires that `file` exists. `named_by` is the flag or argument that names it, for messages.
///
/// # Errors
/// Those of [`Error::of_file`].
pub(super) fn require_file(named_by: &str, file: &Path) -> Result<()> {
    std::fs::metadata(file).map(drop).map_err(|e| Error::of_file(named_by, file, "read", e))
}

/// Creates a folder and the missing folders above it. Error messages begin with `subject`, which contains the path.
pub(super) fn create_folder(subject: impl Display, folder: &Path, mode: u32) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(folder);
    created.map_err(|e| Error::of_io(subject, "created", e))
}

/// `true` if the path exists, even as a dangling symbolic link.
pub(super) fn path_exists(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

pub(super) fn is_empty(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
}
