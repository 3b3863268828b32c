//! The steps of a durable change of a file: write a temporary file, sync it, rename it, and sync the folder.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

/// Returns the folder of a file; `.` for a file name alone.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Appends `suffix` to the name of a file.
pub fn append_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates a file for writing. The file must not exist yet.
///
/// # Errors
/// `AlreadyExists`, and the errors of the file system.
pub fn create_new(file: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(file)
}

/// Removes a file. A missing file is not an error.
///
/// # Errors
/// The errors of the file system.
pub fn remove_if_exists(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file and syncs it.
///
/// # Errors
/// The errors of the file system.
pub fn write_synced(mut file: &File, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}

/// Syncs the folder of a file, so that a power failure does not undo its creation or rename.
///
/// # Errors
/// The errors of the file system.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

/// Renames `from`, a synced file, to `to`, replacing any existing file, and syncs the folder.
///
/// # Errors
/// The errors of the file system.
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    sync_folder(to)
}

/// Renames `from` to `to`, both relative to `folder`, without replacing an existing file. On some file systems, the
/// name `from` remains too.
///
/// # Errors
/// `AlreadyExists` when the name is taken, and the errors of the file system.
pub fn rename_new(folder: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        // The file system does not support `NOREPLACE`. A hard link does not replace an existing file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => linkat(folder, from, folder, to, AtFlags::empty())?,
        renamed => renamed?,
    }
    Ok(())
}
