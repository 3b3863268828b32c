//! Files that commands write: new ones that take nobody's place, and whole replacements.
//!
//! A replacement is written beside the file, synced and renamed over it, so that whoever reads it sees the one before or
//! the one after. It keeps the owner; of the mode it keeps what its kind may have. A symbolic link stays, and what it
//! leads to is replaced.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use signet::error::{Error, Kind, Result, io_words};
use signet::random;

/// What a file is, which decides who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A private key: its owner alone, and the group of one that is replaced where it may already.
    Key,
    /// Certificates: everybody, or as narrow as the one that is replaced.
    Certificates,
}

impl Content {
    fn mode_of_new(self) -> u32 {
        if self == Self::Key { 0o600 } else { 0o644 }
    }

    fn most(self) -> u32 {
        if self == Self::Key { 0o640 } else { 0o777 }
    }
}

/// That a file is there and stays.
pub(super) fn exists(file: &Path) -> Error {
    let text = format!("{} exists and is not overwritten (--existing keep or replace says otherwise)", file.display());
    Error::new(Kind::Conflict, text)
}

fn unwritable(file: &Path, e: std::io::Error) -> Error {
    Error::unavailable(format!("{}: cannot be written ({})", file.display(), io_words(e.kind())), e)
}

/// Writes a file that must not be there.
///
/// # Errors
/// `Conflict` when it is, `Unavailable` when it cannot be written.
pub(super) fn write_new(file: &Path, parts: &[&[u8]], content: Content) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(content.mode_of_new()).open(file);
    let written = opened.and_then(|mut out| {
        parts.iter().try_for_each(|part| out.write_all(part))?;
        out.sync_all()
    });
    written.and_then(|()| sync_folder(file)).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => exists(file),
        _ => unwritable(file, e),
    })
}

fn sync_folder(file: &Path) -> std::io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

/// The folder of a file.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is written and synced, and takes its place when it is told to; it goes when it is not.
pub(super) struct Staged {
    temporary: Option<PathBuf>,
    target: PathBuf,
}

impl Staged {
    /// Writes what is to stand in `file`.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be written, or not be given to the owner of the one before.
    pub(super) fn write(file: &Path, parts: &[&[u8]], content: Content) -> Result<Self> {
        // Behind a link is what is replaced.
        let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = folder_of(&target).join(format!(".{name}.{}", random::base62(12)));
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let mut out = opened.map_err(|e| unwritable(file, e))?;
        let staged = Self { temporary: Some(temporary), target };
        staged.like_the_one_before(&out, content)?;
        let written = parts.iter().try_for_each(|part| out.write_all(part)).and_then(|()| out.sync_all());
        written.map_err(|e| unwritable(file, e))?;
        Ok(staged)
    }

    /// Gives it the owner and the mode of the file whose place it takes.
    fn like_the_one_before(&self, new: &File, content: Content) -> Result<()> {
        let failed = |e| unwritable(&self.target, e);
        let mode = match std::fs::metadata(&self.target) {
            Ok(old) => {
                let own = new.metadata().map_err(failed)?;
                if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                    fchown(new, Some(old.uid()), Some(old.gid())).map_err(|e| {
                        let text = format!(
                            "{}: belongs to user {} and group {}, and can only be replaced by them or root",
                            self.target.display(),
                            old.uid(),
                            old.gid()
                        );
                        Error::unavailable(text, e)
                    })?;
                }
                old.mode() & content.most()
            }
            Err(_) => content.mode_of_new(),
        };
        new.set_permissions(Permissions::from_mode(mode)).map_err(failed)
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// `Unavailable` when the system refuses.
    pub(super) fn place(mut self) -> Result<()> {
        let Some(temporary) = self.temporary.as_ref() else { return Ok(()) };
        std::fs::rename(temporary, &self.target).map_err(|e| unwritable(&self.target, e))?;
        self.temporary = None;
        sync_folder(&self.target).map_err(|e| unwritable(&self.target, e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nobody reads it; what is left of it has a name that begins with a dot.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Keeps other commands of this program from replacing files of a folder, until it is dropped.
pub(super) struct FolderLock {
    _folder: File,
}

impl FolderLock {
    /// Takes the folder of a file.
    ///
    /// # Errors
    /// `Conflict` when another command has it, `Unavailable` when it cannot be opened.
    pub(super) fn of(file: &Path) -> Result<Self> {
        let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let path = folder_of(&target);
        let folder = File::open(path).map_err(|e| {
            Error::unavailable(format!("{}: cannot be opened ({})", path.display(), io_words(e.kind())), e)
        })?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let text = format!("{}: another signet command replaces files there at this moment", path.display());
            Error::new(Kind::Conflict, text)
        })?;
        Ok(Self { _folder: folder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(file: &Path) -> u32 {
        std::fs::metadata(file).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_staged_takes_its_place_whole_or_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        std::fs::write(&file, "old").unwrap();
        drop(Staged::write(&file, &[b"new"], Content::Certificates).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        Staged::write(&file, &[b"ne", b"w"], Content::Certificates).unwrap().place().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_is_for_its_owner_and_for_the_group_that_had_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        Staged::write(&file, &[b"1"], Content::Key).unwrap().place().unwrap();
        assert_eq!(mode(&file), 0o600);
        for (before, after) in [(0o640, 0o640), (0o666, 0o640), (0o400, 0o400)] {
            std::fs::set_permissions(&file, Permissions::from_mode(before)).unwrap();
            Staged::write(&file, &[b"2"], Content::Key).unwrap().place().unwrap();
            assert_eq!(mode(&file), after, "{before:o}");
        }
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.pem"), folder.path().join("link.pem"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        Staged::write(&link, &[b"new"], Content::Certificates).unwrap().place().unwrap();
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_new_file_takes_nobodys_place_and_a_folder_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        write_new(&file, &[b"1"], Content::Key).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(write_new(&file, &[b"2"], Content::Key).unwrap_err().kind(), Kind::Conflict);
        let lock = FolderLock::of(&file).unwrap();
        assert!(FolderLock::of(&file).is_err());
        drop(lock);
        assert!(FolderLock::of(&file).is_ok());
    }
}
