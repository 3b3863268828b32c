//! Writing of files by commands: creation of new files, and atomic replacement of existing ones.
//!
//! In both cases the content is written to a temporary file in the same folder, synced and renamed, so that readers see
//! only complete files. A replacement keeps the owner and the mode of the file, but a file with secrets is readable at
//! most by its group. If the path is a symbolic link that `resolved_path` allows to follow, its target is replaced.
//! `lock` keeps other commands from replacing files in the same folder at the same time.

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

/// Fails if `file` does not exist. `named_by` is the flag or argument that names the file, for messages.
///
/// # Errors
/// Those of [`Error::of_file`].
pub(super) fn require_file(named_by: &str, file: &Path) -> Result<()> {
    std::fs::metadata(file).map(drop).map_err(|e| Error::of_file(named_by, file, "read", e))
}

/// Creates a folder and its missing parent folders. Error messages begin with `subject`, which contains the path.
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
