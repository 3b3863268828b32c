//! A lock for replacing the files of a folder.
//!
//! The lock is an `flock` on a hidden file in the folder. The file has mode 0600, because every user who can open a
//! file can lock it. It is removed with the lock; if a killed command leaves it behind, the next command reuses it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result, describe_io_error};
use crate::files::folder_of;
use rustix::fs::{self, AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::resolved_path::{ResolvedPath, write_error};
use super::staged::{FileContent, OnExisting, StagedFile};

const LOCK_FILE_NAME: &str = ".signet.lock";
/// Maximum time that a command waits for the lock of a folder.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two attempts to take the lock of a folder.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An acquired lock of a folder. Until it is dropped, other commands cannot replace files in the folder.
pub(in crate::cli) struct FolderLock {
    resolved: ResolvedPath,
    /// The open, locked file. `drop` removes the file first and then closes it, which releases the lock. A waiting
    /// command that gets the lock then detects that the file was removed, and tries again.
    _lock: OwnedFd,
}

impl FolderLock {
    /// Locks the folder of a file and waits for the lock without a time limit. Callers use it when a timeout would lose
    /// a result, such as an issued certificate.
    ///
    /// # Errors
    /// `Unavailable` when the folder is not writable.
    pub(in crate::cli) async fn wait_for(file: &Path) -> Result<Self> {
        Self::within(Duration::MAX, file).await
    }

    /// Locks the folder of a file. Waits for the lock for at most [`LOCK_TIMEOUT`].
    ///
    /// # Errors
    /// `Conflict` on timeout, `Unavailable` when the folder is not writable.
    pub(in crate::cli) async fn of(file: &Path) -> Result<Self> {
        Self::within(LOCK_TIMEOUT, file).await
    }

    async fn within(timeout: Duration, file: &Path) -> Result<Self> {
        let begun = Instant::now();
        loop {
            if let Some(lock) = Self::try_lock(file)? {
                return Ok(lock);
            }
            if begun.elapsed() > timeout {
                let folder = folder_of(file).display();
                let text = format!(
                    "{folder}: another signet command is replacing files there, or {LOCK_FILE_NAME} there belongs to \
                     another user"
                );
                return Err(Error::new(Kind::Conflict, text));
            }
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    fn try_lock(file: &Path) -> Result<Option<Self>> {
        let resolved = ResolvedPath::of(file, true)?;
        let Some(lock) = open_lock_file(&resolved, file)? else { return Ok(None) };
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(write_error(&folder_of(file).join(LOCK_FILE_NAME), e.into())),
        }
        // The previous holder may have removed the lock file after this process opened it. The lock is then on a
        // removed file and does not exclude other commands.
        let of = |stat: fs::Stat| (stat.st_dev, stat.st_ino);
        let on_disk = fs::statat(&resolved.folder, LOCK_FILE_NAME, AtFlags::SYMLINK_NOFOLLOW).map(of);
        let is_there = on_disk.is_ok() && on_disk == fs::fstat(&lock).map(of);
        Ok(is_there.then_some(Self { resolved, _lock: lock }))
    }

    /// Creates the temporary file that will replace `file`, and removes temporary files that killed commands left for
    /// it.
    ///
    /// # Errors
    /// Those of [`StagedFile::new`].
    pub(in crate::cli) fn stage(
        &self,
        file: &Path,
        content: FileContent,
        on_existing: OnExisting,
    ) -> Result<StagedFile> {
        let staged = StagedFile::new(file, content, on_existing)?;
        // Only in the locked folder. In other folders, the temporary files may belong to a running command.
        if staged.is_in(&self.resolved) {
            staged.remove_leftovers();
        }
        Ok(staged)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // The result is ignored: if the lock file cannot be removed, the next command reuses it.
        let _ = fs::unlinkat(&self.resolved.folder, LOCK_FILE_NAME, AtFlags::empty());
    }
}

/// Opens or creates the lock file. `None` if another user has created it, because only that user can open it.
fn open_lock_file(resolved: &ResolvedPath, file: &Path) -> Result<Option<OwnedFd>> {
    let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match fs::openat(
        &resolved.folder,
        LOCK_FILE_NAME,
        how | OFlags::CREATE | OFlags::EXCL,
        Mode::RUSR | Mode::WUSR,
    ) {
        Ok(lock) => {
            // If root creates the lock file and is killed, the owner of the folder must still be able to open it.
            if let (true, Ok(of)) = (rustix::process::geteuid().is_root(), fs::fstat(&resolved.folder)) {
                let _ = fs::fchown(&lock, Some(Uid::from_raw(of.st_uid)), Some(Gid::from_raw(of.st_gid)));
            }
            return Ok(Some(lock));
        }
        Err(Errno::EXIST) => fs::openat(&resolved.folder, LOCK_FILE_NAME, how | OFlags::NONBLOCK, Mode::empty()),
        Err(e) => return Err(write_error(folder_of(file), e.into())),
    };
    match opened {
        // Another command removed the file between the two calls.
        Err(Errno::NOENT) => open_lock_file(resolved, file),
        Err(Errno::ACCESS) => Ok(None),
        opened => opened.map(Some).map_err(|e| {
            let e = std::io::Error::from(e);
            let lock = folder_of(file).join(LOCK_FILE_NAME);
            let text = format!(
                "{}: cannot be opened ({}); remove it when no signet command runs there",
                lock.display(),
                describe_io_error(e.kind())
            );
            Error::unavailable(text, e)
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn folder_lock_is_exclusive_and_its_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        let lock = folder.path().join(".signet.lock");
        let taken = FolderLock::try_lock(&file).unwrap().unwrap();
        assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(FolderLock::try_lock(&file).unwrap().is_none());
        drop(taken);
        assert_eq!(count(folder.path()), 0);
        // An `flock` on the folder itself has no effect, and a lock file that was left behind is reused.
        let open = File::open(folder.path()).unwrap();
        fs::flock(&open, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::fs::write(&lock, "").unwrap();
        assert!(FolderLock::try_lock(&file).unwrap().is_some());
        symlink("elsewhere", &lock).unwrap();
        let refused = FolderLock::try_lock(&file).err().unwrap();
        assert!(refused.text().contains(".signet.lock: cannot be opened"), "{}", refused.text());
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn temporary_file_of_a_killed_command_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".a-key.pem.0123456789aB", ".b-key.pem.0123456789aB", ".a-key.pem.exec", ".a-key.pem.0123456789a."]
        {
            std::fs::write(at(name), "left").unwrap();
        }
        let lock = FolderLock::try_lock(&at("a-key.pem")).unwrap().unwrap();
        lock.stage(&at("a-key.pem"), FileContent::Secret, OnExisting::Replace).unwrap().persist().unwrap();
        drop(lock);
        assert!(!at(".a-key.pem.0123456789aB").exists() && at(".b-key.pem.0123456789aB").exists());
        assert_eq!(count(folder.path()), 4);
    }
}
