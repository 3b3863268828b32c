//! A temporary file that is written first and then renamed to a new or existing file.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result, describe_io_error};
use crate::files;
use crate::random;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};

use super::resolved_path::{ResolvedPath, file_type, write_error};

/// Length of the random suffix of a temporary file's name, in characters.
const RANDOM_SUFFIX_LENGTH: usize = 12;

/// The kind of content, which decides who may read the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum FileContent {
    /// A private key or a token. Readable by the owner, and by the group if the replaced file was readable by the
    /// group.
    Secret,
    /// Certificates. Readable by all users, unless the file that is replaced had a stricter mode.
    Public,
}

impl FileContent {
    fn new_file_mode(self) -> Mode {
        Mode::from_raw_mode(if self == Self::Secret { 0o600 } else { 0o644 })
    }

    fn max_mode(self) -> u32 {
        if self == Self::Secret { 0o640 } else { 0o777 }
    }
}

/// The treatment of an existing file at the target path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OnExisting {
    /// Fail. The existing file is not changed.
    Reject,
    /// Fail, except if the existing file is empty; then replace it.
    RejectUnlessEmpty,
    /// Replace the existing file. The new file gets its owner and mode.
    Replace,
    /// Replace the existing file. The new file belongs to the user of the process. If the path is a symbolic link, the
    /// link itself is replaced and not its target.
    Remove,
}

pub(in crate::cli) fn exists_error(file: &Path) -> Error {
    Error::new(Kind::Conflict, format!("{} exists and is not overwritten", file.display()))
}

/// Writes a new file. An existing file is only replaced if it is empty.
///
/// # Errors
/// `Conflict` when a file with content exists, `Unavailable` when the file cannot be written.
pub(in crate::cli) fn write_new(file: &Path, parts: &[&[u8]], content: FileContent) -> Result<()> {
    let staged = StagedFile::new(file, content, OnExisting::RejectUnlessEmpty)?;
    staged.remove_leftovers();
    staged.with_content(parts)?.persist()
}

/// A temporary file. It is removed on drop, unless it has been renamed to its final name.
pub(in crate::cli) struct StagedFile {
    file: PathBuf,
    resolved: ResolvedPath,
    /// The folder, opened for syncing after the rename. It is opened early, so that a folder that is writable but not
    /// readable, and thus cannot be synced, fails before anything is written.
    folder: File,
    out: File,
    temporary: OsString,
    /// `true` if the rename may replace an existing file.
    replaces_existing: bool,
}

impl StagedFile {
    /// Creates an empty temporary file next to `file`, with the owner and mode of the file that it will replace.
    ///
    /// # Errors
    /// `Conflict` if the file exists and must not be replaced; `Forbidden` when the path leads through a symbolic link
    /// of another user; `Unavailable` when the temporary file cannot be created, its folder cannot be read, or its
    /// owner cannot be set.
    pub(super) fn new(file: &Path, content: FileContent, on_existing: OnExisting) -> Result<Self> {
        let resolved =
            ResolvedPath::of(file, matches!(on_existing, OnExisting::RejectUnlessEmpty | OnExisting::Replace))?;
        match (on_existing, &resolved.found) {
            (OnExisting::Reject, Some(_)) => return Err(exists_error(file)),
            (OnExisting::RejectUnlessEmpty, Some(found)) if found.st_size > 0 => return Err(exists_error(file)),
            (OnExisting::RejectUnlessEmpty | OnExisting::Replace, Some(found))
                if file_type(found) != FileType::RegularFile =>
            {
                return Err(Error::invalid(format!("{}: is not a file that can be replaced", file.display())));
            }
            _ => {}
        }
        let folder = resolved.open_folder().map_err(|e| {
            let text = format!(
                "{}: its folder must be readable to write this file ({})",
                file.display(),
                describe_io_error(e.kind())
            );
            Error::unavailable(text, e)
        })?;
        let old = resolved.found.filter(|_| on_existing != OnExisting::Remove);
        let mode = if old.is_some() { Mode::RUSR | Mode::WUSR } else { content.new_file_mode() };
        let temporary = [&temporary_prefix(&resolved.name), OsStr::new(&random::base62(RANDOM_SUFFIX_LENGTH))]
            .into_iter()
            .collect::<OsString>();
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let out = fs::openat(&resolved.folder, &temporary, how, mode).map_err(|e| write_error(file, e.into()))?;
        let replaces_existing = old.is_some() || matches!(on_existing, OnExisting::Replace | OnExisting::Remove);
        let staged = Self { file: file.to_owned(), resolved, folder, out: out.into(), temporary, replaces_existing };
        old.map_or(Ok(()), |old| staged.copy_owner_and_mode(&old, content))?;
        Ok(staged)
    }

    fn copy_owner_and_mode(&self, old: &Stat, content: FileContent) -> Result<()> {
        let failed = |e| write_error(&self.file, e);
        let own = self.out.metadata().map_err(failed)?;
        if (own.uid(), own.gid()) != (old.st_uid, old.st_gid) {
            fchown(&self.out, Some(old.st_uid), Some(old.st_gid)).map_err(|e| {
                let text = format!(
                    "{}: belongs to user {} and group {}, and can only be replaced by them or root",
                    self.file.display(),
                    old.st_uid,
                    old.st_gid
                );
                Error::unavailable(text, e)
            })?;
        }
        self.out.set_permissions(Permissions::from_mode(old.st_mode & content.max_mode())).map_err(failed)
    }

    /// Writes and syncs the content.
    ///
    /// # Errors
    /// `Unavailable` when the content cannot be written.
    pub(in crate::cli) fn with_content(self, parts: &[&[u8]]) -> Result<Self> {
        files::write_synced(&self.out, parts).map_err(|e| write_error(&self.file, e))?;
        Ok(self)
    }

    /// Renames the temporary file to its final name.
    ///
    /// # Errors
    /// `Conflict` if a file that must not be replaced has appeared meanwhile, `Unavailable` when the system refuses.
    pub(in crate::cli) fn persist(self) -> Result<()> {
        let folder = self.resolved.folder.as_fd();
        let [from, to] = [&self.temporary, &self.resolved.name].map(Path::new);
        let placed = if self.replaces_existing {
            fs::renameat(folder, from, folder, to).map_err(io::Error::from)
        } else {
            files::rename_new(folder, from, to)
        };
        placed.and_then(|()| self.folder.sync_all()).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => exists_error(&self.file),
            _ => write_error(&self.file, e),
        })
    }

    /// Opens the file that will be replaced. Fails if it is not the file that existed when the temporary file was
    /// created.
    ///
    /// # Errors
    /// `Conflict` when the file was replaced in the meantime, `Unavailable` when it cannot be opened.
    pub(in crate::cli) fn open_original(&self) -> Result<File> {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = fs::openat(&self.resolved.folder, &self.resolved.name, how, Mode::empty());
        let opened = opened.and_then(|opened| Ok((fs::fstat(&opened)?, opened)));
        let (stat, opened) = opened.map_err(|e| Error::of_io(self.file.display(), "read", e.into()))?;
        if self.resolved.found.is_none_or(|found| (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino)) {
            let text = format!("{}: another file has this name now", self.file.display());
            return Err(Error::new(Kind::Conflict, text));
        }
        Ok(opened.into())
    }

    pub(super) fn is_in(&self, resolved: &ResolvedPath) -> bool {
        let of = |resolved: &ResolvedPath| fs::fstat(&resolved.folder).map(|found| (found.st_dev, found.st_ino)).ok();
        of(&self.resolved).is_some() && of(&self.resolved) == of(resolved)
    }

    /// Removes temporary files that killed commands left for the same file. They may contain a private key.
    pub(super) fn remove_leftovers(&self) {
        let beginning = temporary_prefix(&self.resolved.name);
        // If the folder cannot be read, nothing is removed.
        for name in self.resolved.file_names().unwrap_or_default() {
            let tail = name.as_bytes().strip_prefix(beginning.as_bytes());
            let is_left = tail
                .is_some_and(|tail| tail.len() == RANDOM_SUFFIX_LENGTH && tail.iter().all(u8::is_ascii_alphanumeric));
            if is_left && name != self.temporary {
                let _ = fs::unlinkat(&self.resolved.folder, &name, AtFlags::empty());
            }
        }
    }
}

fn temporary_prefix(name: &OsStr) -> OsString {
    [OsStr::new("."), name, OsStr::new(".")].into_iter().collect()
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // The result is ignored. After `persist` the temporary name no longer exists. If the removal fails for another
        // reason, the next command that replaces the same file removes the temporary file.
        let _ = fs::unlinkat(&self.resolved.folder, &self.temporary, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn mode(file: &Path) -> u32 {
        std::fs::metadata(file).unwrap().permissions().mode() & 0o777
    }

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    fn replace(file: &Path, text: &str, content: FileContent) -> Result<()> {
        StagedFile::new(file, content, OnExisting::Replace)?.with_content(&[text.as_bytes()])?.persist()
    }

    #[test]
    fn staged_file_replacement_is_atomic() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        std::fs::write(&file, "old").unwrap();
        drop(
            StagedFile::new(&file, FileContent::Public, OnExisting::Replace).unwrap().with_content(&[b"new"]).unwrap(),
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(count(folder.path()), 1);
        replace(&file, "new", FileContent::Public).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(count(folder.path()), 1);
    }

    #[test]
    fn secret_file_keeps_owner_and_group_access() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        replace(&file, "1", FileContent::Secret).unwrap();
        assert_eq!(mode(&file), 0o600);
        for (before, after) in [(0o640, 0o640), (0o666, 0o640), (0o400, 0o400)] {
            std::fs::set_permissions(&file, Permissions::from_mode(before)).unwrap();
            replace(&file, "2", FileContent::Secret).unwrap();
            assert_eq!(mode(&file), after, "{before:o}");
        }
    }

    #[test]
    fn staged_file_replaces_the_target_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/a.pem"), "old").unwrap();
        symlink("real", at("link")).unwrap();
        symlink("../link/a.pem", at("real/b.pem")).unwrap();
        replace(&at("link/b.pem"), "new", FileContent::Public).unwrap();
        assert_eq!(std::fs::read(at("real/a.pem")).unwrap(), b"new");
        assert!(at("real/b.pem").symlink_metadata().unwrap().is_symlink());
        // Writing through a dangling symbolic link creates its target, except with `Reject` (an error) and `Remove`
        // (which replaces the link).
        symlink("real/c.pem", at("c.pem")).unwrap();
        let stays = StagedFile::new(&at("c.pem"), FileContent::Public, OnExisting::Reject);
        assert_eq!(stays.err().unwrap().kind(), Kind::Conflict);
        replace(&at("c.pem"), "new", FileContent::Public).unwrap();
        assert_eq!(std::fs::read(at("real/c.pem")).unwrap(), b"new");
        StagedFile::new(&at("c.pem"), FileContent::Public, OnExisting::Remove).unwrap().persist().unwrap();
        assert_eq!((std::fs::read(at("c.pem")).unwrap(), std::fs::read(at("real/c.pem")).unwrap().len()), (vec![], 3));
        symlink("d.pem", at("d.pem")).unwrap();
        assert!(replace(&at("d.pem"), "new", FileContent::Public).is_err(), "a circle");
    }

    #[test]
    fn link_of_another_user_is_followed_only_to_their_own_file() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let link = |to: &str, name: &str, user| {
            symlink(to, at(name)).unwrap();
            std::os::unix::fs::lchown(at(name), Some(user), Some(user)).unwrap();
        };
        for (name, user) in [("roots.pem", 0), ("theirs.pem", 1234)] {
            std::fs::write(at(name), "old").unwrap();
            chown(at(name), Some(user), Some(user)).unwrap();
        }
        std::fs::create_dir(at("folder")).unwrap();
        link("roots.pem", "bad.pem", 1234);
        link("nowhere.pem", "none.pem", 1234);
        link("folder", "way", 1234);
        link("theirs.pem", "of-another.pem", 1235);
        // A link to the root folder is rejected, because that folder belongs to root. The owner of the folder that
        // contains the link does not matter.
        std::fs::create_dir(at("own")).unwrap();
        chown(at("own"), Some(1234), Some(1234)).unwrap();
        link("/", "own/top", 1234);
        let names = ["bad.pem", "none.pem", "way/a.pem", "of-another.pem", "own/top/a-link-led-here.pem"];
        for name in names {
            let refused = replace(&at(name), "new", FileContent::Secret).unwrap_err();
            assert_eq!(refused.kind(), Kind::Forbidden, "{name}");
            assert!(refused.text().contains("the symbolic link of user 123"), "{}", refused.text());
        }
        assert_eq!(std::fs::read(at("roots.pem")).unwrap(), b"old");
        link("theirs.pem", "good.pem", 1234);
        replace(&at("good.pem"), "new", FileContent::Secret).unwrap();
        assert_eq!(std::fs::read(at("theirs.pem")).unwrap(), b"new");
        assert_eq!(std::fs::metadata(at("theirs.pem")).unwrap().uid(), 1234);
    }

    #[test]
    fn new_file_never_replaces_an_existing_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        write_new(&file, &[b"1"], FileContent::Secret).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(write_new(&file, &[b"2"], FileContent::Secret).unwrap_err().kind(), Kind::Conflict);
        // A file that appears while the temporary file is written is not replaced either.
        let late = folder.path().join("b.pem");
        let staged = StagedFile::new(&late, FileContent::Public, OnExisting::RejectUnlessEmpty).unwrap();
        std::fs::write(&late, "").unwrap();
        assert_eq!(staged.persist().unwrap_err().kind(), Kind::Conflict);
        // An empty file, as a full disk leaves it, counts as missing.
        StagedFile::new(&late, FileContent::Public, OnExisting::RejectUnlessEmpty)
            .unwrap()
            .with_content(&[b"3"])
            .unwrap()
            .persist()
            .unwrap();
        assert_eq!(std::fs::read(&late).unwrap(), b"3");
        assert!(StagedFile::new(&late, FileContent::Public, OnExisting::RejectUnlessEmpty).is_err());
        assert_eq!(count(folder.path()), 2);
    }
    #[test]
    fn unreadable_folder_is_refused_before_a_file_is_created() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let user = 65534;
        chown(folder.path(), Some(user), Some(user)).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o300)).unwrap();
        let file = folder.path().join("key.pem");
        let refused = std::thread::spawn(move || {
            let user = fs::Uid::from_raw(user);
            // This system call changes the user of the current thread only.
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            StagedFile::new(&file, FileContent::Secret, OnExisting::Reject).err().map(|error| error.text().to_owned())
        });
        let refused = refused.join().unwrap().unwrap();
        assert!(refused.contains("its folder must be readable"), "{refused}");
        assert_eq!(count(folder.path()), 0);
    }
}
