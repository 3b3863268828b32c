//! Safe resolution of a path into a file descriptor of its folder and the name of the file in the folder.
//!
//! When root runs a command in a folder of another user, that user could replace a folder by a symbolic link between
//! two system calls. Each component of the path is therefore opened relative to the previous one, and the file is
//! created and renamed relative to the descriptor of its folder. A symbolic link is followed only if it belongs to
//! root, to the user of the process, or to the owner of its target, similar to `fs.protected_symlinks` of Linux.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

use crate::error::{Error, Kind, Result};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Maximum number of symbolic links that are followed for one path; Linux has the same limit.
const MAX_SYMLINKS: usize = 40;

pub(super) struct ResolvedPath {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    pub(super) found: Option<Stat>,
}

enum PathStep {
    To(OsString),
    /// Check that the target of a symbolic link belongs to the owner of the link, whose user id this is. Processed
    /// after the components of the target.
    CheckLinkOwner(u32),
}

impl ResolvedPath {
    /// Resolves a path. The last component need not exist. If it is a symbolic link, `follow` decides whether the link
    /// is followed.
    ///
    /// # Errors
    /// `Forbidden` for a symbolic link that belongs neither to root, nor to the user of the process, nor to the owner
    /// of the target; `Unavailable` when the path cannot be resolved.
    pub(super) fn of(file: &Path, follow: bool) -> Result<Self> {
        let failed = |e: Errno| write_error(file, e.into());
        let whole = std::path::absolute(file).map_err(|e| write_error(file, e))?;
        let mut resolved = Self { folder: open_root().map_err(failed)?, name: OsString::new(), found: None };
        let mut steps = split_path(&whole);
        let mut links = 0;
        while let Some(step) = steps.pop() {
            let name = match step {
                PathStep::To(name) => name,
                PathStep::CheckLinkOwner(user) if resolved.found.is_some_and(|found| found.st_uid == user) => continue,
                PathStep::CheckLinkOwner(user) => return Err(foreign_link_error(file, user)),
            };
            let is_last = !steps.iter().any(|step| matches!(step, PathStep::To(_)));
            let there = match fs::openat(&resolved.folder, &name, OPEN_PATH_FLAGS, Mode::empty()) {
                Ok(there) => there,
                Err(Errno::NOENT) if is_last => {
                    (resolved.name, resolved.found) = (name, None);
                    continue;
                }
                Err(e) => return Err(failed(e)),
            };
            let found = fs::fstat(&there).map_err(failed)?;
            if file_type(&found) == FileType::Symlink && (follow || !is_last) {
                links += 1;
                if links > MAX_SYMLINKS {
                    return Err(failed(Errno::LOOP));
                }
                if ![0, rustix::process::geteuid().as_raw()].contains(&found.st_uid) {
                    steps.push(PathStep::CheckLinkOwner(found.st_uid));
                }
                let to = fs::readlinkat(&there, "", Vec::new()).map_err(failed)?;
                let to = Path::new(OsStr::from_bytes(to.to_bytes()));
                if to.is_absolute() {
                    resolved.folder = open_root().map_err(failed)?;
                    resolved.found = Some(fs::fstat(&resolved.folder).map_err(failed)?);
                }
                steps.extend(split_path(to));
                continue;
            }
            resolved.found = Some(found);
            if is_last { resolved.name = name } else { resolved.folder = there }
        }
        Ok(resolved)
    }

    pub(super) fn file_names(&self) -> std::io::Result<Vec<OsString>> {
        let entries = fs::Dir::read_from(self.open_folder()?)?;
        entries
            .map(|entry| Ok(OsString::from_vec(entry.map_err(std::io::Error::from)?.file_name().to_bytes().to_vec())))
            .collect()
    }

    /// Opens the folder for reading and syncing, which its `O_PATH` descriptor does not allow.
    pub(super) fn open_folder(&self) -> std::io::Result<File> {
        Ok(fs::openat(&self.folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

/// Flags that open a path only as a reference (`O_PATH`) and do not follow a symbolic link.
const OPEN_PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open_root() -> Result<OwnedFd, Errno> {
    fs::open("/", OPEN_PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())
}

pub(super) fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Returns the components of a path as steps, the last one first.
fn split_path(path: &Path) -> Vec<PathStep> {
    let steps = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(PathStep::To(part.as_os_str().to_owned())),
        _ => None,
    });
    steps.rev().collect()
}

pub(super) fn write_error(file: &Path, e: std::io::Error) -> Error {
    Error::of_io(file.display(), "written", e)
}

fn foreign_link_error(file: &Path, user: u32) -> Error {
    let text = format!(
        "{}: the symbolic link of user {user} points to a file of another user, and is not followed; name the file \
         itself, or create the link as root",
        file.display()
    );
    Error::new(Kind::Forbidden, text)
}
