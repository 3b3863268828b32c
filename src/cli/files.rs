//! Writing of files by commands: new files that replace nothing, and complete replacements.
//!
//! Both are written to a temporary file in the same folder, synced and renamed, so that readers see only complete files
//! and a full disk leaves nothing behind. A replacement keeps the owner, and the permitted part of the mode. A symbolic
//! link stays and its target is replaced, if `resolved_path` allows following it. `lock` excludes other commands.

mod lock;
mod resolved_path;
mod staged;

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use signet::error::{Error, Result};
pub(super) use signet::files::folder_of;

pub(super) use self::lock::FolderLock;
pub(super) use self::staged::{FileContent, OnExisting, StagedFile, exists_error, write_new};

/// Requires that the file exists which the flag or argument `named_by` names.
///
/// # Errors
/// [`Error::of_file`]'s.
pub(super) fn require_file(named_by: &str, file: &Path) -> Result<()> {
    std::fs::metadata(file).map(drop).map_err(|e| Error::of_file(named_by, file, "read", e))
}

/// Creates a folder and the missing ones above it. `subject` begins the error and contains the path.
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
